"""The files of a search: search.json, search.md, search.html, and the lines for a terminal."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from llama_load.lab.search.capacity_answer import Answer, knee, margins, sentence, speed_of_user
from llama_load.lab.search.search_probe import ProbeResult
from llama_load.lab.sweep.folder import write_json, write_text
from llama_load.lab.sweep.sweep_page import page
from llama_load.reports.html.charts import Chart, Figure, Key, colour
from llama_load.reports.html.plot import annotation, source, span
from llama_load.tables import LEFT, RIGHT, Cell, Column, Row, Table, document_lines, figure, titled_lines
from llama_load.tables.numbers import NONE, percent
from llama_load.tables.text_width import wrapped
from llama_load.units import quantity
from llama_load.version import __version__

JSON, MARKDOWN, HTML = "search.json", "search.md", "search.html"
MOST_WIDTH = 100  # of sentences on a terminal


def write_search(answer: Answer, folder: Path, title: str) -> list[str]:
    """Write the three files; the lines for a terminal are returned, the sentence first."""
    text = sentence(answer)
    table = probe_table(answer)
    notes = [*margins(answer), *answer.capacity.notes, *answer.notes]
    spent = f"{quantity(len(answer.capacity.probes), 'probe')}, {quantity(answer.capacity.sent, 'request')}"
    sections = [("Notes", notes)]
    write_json(folder / JSON, as_json(answer))
    lines = document_lines(title, [table], sections)
    write_text(folder / MARKDOWN, "\n".join([*lines[:2], f"**{text}**", "", f"{spent}.", "", *lines[2:]]))
    write_text(folder / HTML, page(title, f"{text} ({spent})", [table], sections, drawn=charts(answer)))
    return terminal_lines(text, table, notes)


def terminal_lines(text: str, table: Table, notes: list[str]) -> list[str]:
    """The sentence, the table and the notes; sentences as wide as the terminal."""
    width = min(MOST_WIDTH, shutil.get_terminal_size().columns)
    lines = [*wrapped(text, width), "", *titled_lines(table), ""]
    for note in notes:
        lines += wrapped(note, width)
    return lines


def probe_table(answer: Answer) -> Table:
    """A row for each probe of the searched load, in order of the load."""
    names = answer.settings.goals
    heads = [answer.settings.unit, "requests", "met all", *names, "tok/s all", "tok/s one user", ""]
    best = knee(answer)
    rows: list[Row] = []
    for probe in answer.curve:
        marks = ["knee"] * (probe is best) + [probe.fault] * bool(probe.fault)
        rows.append([
            Cell(answer.number(probe.level), probe.level),
            str(probe.sent),
            _interval_text(probe),
            *(percent(probe.by_objective.get(name), gap=" ") for name in names),
            figure(probe.figures.get("output_throughput"), 1),
            figure(speed_of_user(probe), 1),
            "; ".join(marks),
        ])  # fmt: skip
    aligned = [Column(name, RIGHT if name else LEFT) for name in heads]
    return Table("Probes", aligned, rows, style="padded")


def _interval_text(probe: ProbeResult) -> str:
    if not len(probe.good):
        return NONE
    text = percent(probe.share, gap=" ")
    if (interval := probe.interval) is None:
        return text
    low, high = (percent(end, 0, gap=" ") for end in interval)
    return f"{text} ({low} to {high})"


def charts(answer: Answer) -> list[Chart]:
    """The share of good requests against the load, with intervals; and throughput against the speed of one user."""
    return [chart for chart in (_shares_chart(answer), _speed_chart(answer)) if chart is not None]


def _shares_chart(answer: Answer) -> Chart | None:
    known = [(probe, interval) for probe in answer.curve if probe.counts and (interval := probe.interval) is not None]
    if len(known) < 2:
        return None
    plot = Figure(answer.settings.unit, "requests that met all objectives", zoom="both", height=300)
    points = source(
        x=[probe.level for probe, _ in known], y=[probe.share for probe, _ in known],
        low=[low for _, (low, _) in known], high=[high for _, (_, high) in known],
    )  # fmt: skip
    dots = plot.draw(points, "Scatter", x="x", y="y", size=8, fill_color=colour("blue"), line_color=colour("blue"))
    plot.add(annotation(points, "Whisker", base="x", upper="high", lower="low", line_color=colour("blue")))
    plot.add(span(answer.settings.goal.share, "width", line_color=colour("red"), line_dash=[6]))
    keys = [Key("blue", "probe with its 95 % interval"), Key("red", f"{answer.settings.goal.share:.0%} asked for")]
    if answer.capacity.value:
        plot.add(span(answer.capacity.value, "height", line_color=colour("green"), line_width=2))
        keys.append(Key("green", "capacity"))
    plot.hover([dots], [(answer.settings.unit, "@x{0.[00]}"), ("met all", "@y{0.0%}")])
    summary = "; ".join(f"{answer.number(probe.level)}: {probe.share:.0%}" for probe, _ in known)
    return Chart(plot, "Requests within the objectives", summary, keys)


def _speed_chart(answer: Answer) -> Chart | None:
    known = [
        (probe, speed, total)
        for probe in answer.curve
        if probe.counts and (speed := speed_of_user(probe)) and (total := probe.figures.get("output_throughput"))
    ]
    if len(known) < 2:
        return None
    plot = Figure("output tokens/s, one user", "output tokens/s, all users", zoom="both", height=300)
    names = [answer.number(probe.level) for probe, _, _ in known]
    points = source(x=[speed for _, speed, _ in known], y=[total for _, _, total in known], name=names)
    dots = plot.draw(points, "Scatter", x="x", y="y", size=8, fill_color=colour("blue"), line_color=colour("blue"))
    plot.hover([dots], [(answer.settings.unit, "@name"), ("one user", "@x{0,0.0}"), ("all users", "@y{0,0.0}")])
    keys = [Key("blue", "probe")]
    best = knee(answer)
    marked = [("orange", "knee: the most of both together (their product)", best)]
    within = [probe for probe, _, _ in known if probe.level <= (answer.capacity.value or 0)]
    marked.append(("green", "the highest probe within the objectives", within[-1] if within else None))
    for role, text, probe in marked:
        if probe is not None and (pairs := [(speed, total) for shown, speed, total in known if shown is probe]):
            ring = source(x=[pairs[0][0]], y=[pairs[0][1]])
            size = 19 if role == "orange" else 25
            plot.draw(ring, "Scatter", x="x", y="y", size=size, fill_color=None, line_color=colour(role), line_width=2.5)
            keys.append(Key(role, text))
    summary = "; ".join(
        f"{name}: {total:.0f} all, {speed:.0f} one user" for name, (_, speed, total) in zip(names, known, strict=True)
    )
    return Chart(plot, "Throughput against the speed of one user", summary, keys)


def as_json(answer: Answer) -> dict[str, Any]:
    """search.json: the capacity with its interval, the sentence, every probe."""
    capacity = answer.capacity
    best = knee(answer)
    return {
        "version": __version__,
        "sentence": sentence(answer),
        "unit": answer.settings.unit,
        "capacity": capacity.value,
        "low": capacity.low,
        "high": capacity.high,
        "confidence": 0.95,
        "share": answer.settings.goal.share,
        "objectives": answer.settings.goals,
        "binding": answer.binding,
        "ended_early": capacity.why or None,
        "knee": None if best is None else best.level,
        "requests": capacity.sent,
        "margins": margins(answer),
        "notes": [*capacity.notes, *answer.notes],
        "probes": [probe.as_json() for probe in capacity.probes],
    }
