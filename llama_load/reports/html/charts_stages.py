"""The chart of stages: throughput of all users against the speed that one user sees."""

from __future__ import annotations

from collections.abc import Sequence

from llama_load.foreign_text import printable
from llama_load.metrics.knee import knee
from llama_load.metrics.stage_figures import StageFigures
from llama_load.reports.html.charts import FONT, Chart, Figure, Key, colour
from llama_load.reports.html.plot import annotation, source
from llama_load.reports.stage_table import stage_name
from llama_load.reports.translations import Translate
from llama_load.tables.numbers import brief


def stage_chart(stages: Sequence[StageFigures], t: Translate) -> Chart | None:
    """A dot per stage, joined in their order, the knee marked (see `metrics.knee`); None with fewer than two known stages."""
    known = [
        (stage, stage.figures.tok_per_s_per_user, stage.figures.output_throughput)
        for stage in stages
        if stage.figures.tok_per_s_per_user and stage.figures.output_throughput
    ]
    if len(known) < 2:
        return None
    plot = Figure(t("output tokens/s, one user"), t("output tokens/s, all users"), zoom="both", height=320)
    plot.x_range.set(start=0, range_padding=0.15)
    plot.y_range.set(range_padding=0.15)
    names = [printable(stage_name(stage)) for stage, _, _ in known]
    points = source(x=[one_user for _, one_user, _ in known], y=[total for _, _, total in known], name=names)
    plot.draw(points, "Line", x="x", y="y", line_color=colour("axis"), line_width=2)
    keys = []
    for role, text, of_role in (
        ("blue", t("comparable"), [place for place, (stage, _, _) in enumerate(known) if stage.is_comparable]),
        ("grey", t("not comparable"), [place for place, (stage, _, _) in enumerate(known) if not stage.is_comparable]),
    ):
        if of_role:
            data = source(
                x=[known[place][1] for place in of_role], y=[known[place][2] for place in of_role], name=[names[p] for p in of_role]
            )
            dots = plot.draw(data, "Scatter", x="x", y="y", size=9, fill_color=colour(role), line_color=colour(role))
            lines = [
                (t("stage"), "@name"),
                (t("output tokens/s, one user"), "@x{0,0.0}"),
                (t("output tokens/s, all users"), "@y{0,0.0}"),
            ]
            plot.hover([dots], lines)
            keys.append(Key(role, text))
    best = knee(stages)
    summary = t("Output tokens/s of all users against those of one user, at {count} loads.").format(count=len(known))
    if best is not None:
        place = next(place for place, (stage, _, _) in enumerate(known) if stage is best)
        data = source(x=[known[place][1]], y=[known[place][2]])
        plot.draw(data, "Scatter", x="x", y="y", size=19, fill_color=None, line_color=colour("orange"), line_width=2.5)
        keys.append(Key("orange", t("knee: the most of both together (their product)")))
        summary += " " + t("The knee is at {name}: {total} tokens/s, {each} for each user.").format(
            name=names[place], total=brief(known[place][2]), each=brief(known[place][1])
        )
    look = {"text_font": FONT, "text_font_size": "12px", "text_color": colour("label")}
    plot.add(annotation(points, "LabelSet", x="x", y="y", text="name", x_offset=10, y_offset=4, **look))
    return Chart(plot, t("Throughput against the speed of one user"), summary, keys)
