"""The files of a search: search.json, search.md, search.html, and the lines for a terminal."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from llama_load.analysis.reports.html.charts import Chart, Figure, Key, colour
from llama_load.analysis.reports.html.plot import Model, annotation, source, span
from llama_load.ground.units import quantity
from llama_load.ground.version import __version__
from llama_load.lab.search.capacity_answer import (
    Answer,
    knee,
    margins,
    sentence,
    speed_of_user,
)
from llama_load.lab.search.search_probe import USERS, ProbeResult
from llama_load.lab.sweep.folder import RUNS, write_json, write_text
from llama_load.lab.sweep.measured_subject import subject_of
from llama_load.lab.sweep.sweep_page import page
from llama_load.run_folder import result_schemas
from llama_load.run_folder.result_schemas import VERSIONS
from llama_load.tables import (
    LEFT,
    RIGHT,
    Cell,
    Column,
    Row,
    Table,
    document_lines,
    figure,
    text_lines,
)
from llama_load.tables.numbers import NONE, percent
from llama_load.tables.text_width import wrapped

JSON = "search.json"
MARKDOWN = "search.md"
HTML = "search.html"
MOST_WIDTH = 100  # of sentences on a terminal
MOST_ROWS = 10  # of probes on a terminal of 24 lines, with notes and the answer
REQUESTS = "requests"
TOKENS_OF_ALL = "tok/s all"
# What a narrow terminal leaves out, the higher number first.
DROPPED = {REQUESTS: 1, TOKENS_OF_ALL: 2}


def write_search(answer: Answer, folder: Path, title: str) -> list[str]:
    """Write the three files; the lines for a terminal are returned, the sentence last."""
    text = sentence(answer)
    table = probe_table(answer)
    against = [f"not comparable: {text}" for text in answer.against]
    notes = [*margins(answer), *against, *answer.capacity.notes, *answer.notes]
    sections = [("Notes", notes)]
    probes = quantity(len(answer.capacity.probes), "probe")
    requests = quantity(answer.capacity.sent, "request")
    spent = f"{probes}, {requests}"

    write_json(folder / JSON, as_json(answer))

    lines = document_lines(title, [table], sections)
    lines[2:2] = [f"**{text}**", "", f"{spent}.", ""]
    write_text(folder / MARKDOWN, "\n".join(lines))

    html = page(
        title,
        f"{text} ({spent})",
        [table],
        sections,
        drawn=charts(answer),
        subject=subject_of(folder / RUNS),
        answer=_large_answer(answer),
    )
    write_text(folder / HTML, html)
    return terminal_lines(answer, notes)


def _large_answer(answer: Answer) -> tuple[str, str] | None:
    """The capacity and its unit with the interval; None where none was found."""
    capacity = answer.capacity
    if capacity.value is None:
        return None

    value = answer.number(capacity.value)
    unit: str = answer.settings.unit
    if unit == USERS and capacity.value == 1:
        unit = "user"
    if capacity.high is None or capacity.low is None:
        return f"≥ {value}" if capacity.value else value, unit
    low = answer.number(capacity.low)
    return value, f"{unit} ({low} to {answer.number(capacity.high)})"


def terminal_lines(answer: Answer, notes: Sequence[str]) -> list[str]:
    """The table and the notes, as wide as the terminal, and the sentence last; what the table says
    of a probe in its last column is a note, once for all probes of which it is true."""
    width = min(MOST_WIDTH, shutil.get_terminal_size().columns)
    table = _near_the_answer(probe_table(answer), answer)
    lines = text_lines(table.without(len(table.columns) - 1), width)
    for note in table.notes:
        lines += wrapped(note, width)

    lines.append("")
    said = sentence(answer)
    levels_of: dict[str, list[str]] = {}
    for probe in answer.curve:
        for mark in _marks(answer, probe):
            if mark.strip() not in said:
                levels_of.setdefault(mark, []).append(answer.number(probe.level))
    for mark, levels in levels_of.items():
        unit = "user" if levels == ["1"] else answer.settings.unit
        lines += wrapped(f"{', '.join(levels)} {unit}: {mark}", width)

    for note in notes:
        lines += wrapped(note, width)
    if lines[-1]:
        lines.append("")

    return [*lines, *wrapped(said, width)]


def _near_the_answer(table: Table, answer: Answer) -> Table:
    """The rows of the loads nearest to the capacity, as many as a screen has room for."""
    hidden = len(table.rows) - MOST_ROWS
    if hidden <= 0:
        return table

    capacity = answer.capacity.value or 0.0
    below = sum(probe.level <= capacity for probe in answer.curve)
    first = min(max(0, below - MOST_ROWS // 2), hidden)
    rows = table.rows[first : first + MOST_ROWS]
    note = f"and {quantity(hidden, 'probe')} further from the answer, in {MARKDOWN}"
    return replace(table, rows=rows, notes=[*table.notes, note])


def probe_table(answer: Answer) -> Table:
    """A row for each probe of the searched load, in order of the load."""
    goals = answer.settings.goals

    rows: list[Row] = []
    for probe in answer.curve:
        met_each = []
        for name in goals:
            met_each.append(percent(probe.by_objective.get(name), gap=" "))

        row: Row = [
            Cell(answer.number(probe.level), probe.level),
            str(probe.sent),
            _interval_text(probe),
            *met_each,
            figure(probe.figures.get("output_throughput"), 1),
            figure(speed_of_user(probe), 1),
            "; ".join(_marks(answer, probe)),
        ]
        rows.append(row)

    heads = [
        answer.settings.unit,
        REQUESTS,
        "met all",
        *goals,
        TOKENS_OF_ALL,
        "tok/s one user",
    ]
    aligned = []
    for name in heads:
        aligned.append(Column(name, RIGHT, drop=DROPPED.get(name, 0)))

    aligned.append(Column("", LEFT))
    return Table("Probes", aligned, rows, style="padded")


def _marks(answer: Answer, probe: ProbeResult) -> list[str]:
    """What is to be said of a probe besides its figures."""
    marks = []
    if probe is knee(answer):
        marks.append("knee")
    if probe.fault:
        marks.append(probe.fault)
    return marks


def _interval_text(probe: ProbeResult) -> str:
    if not len(probe.good):
        return NONE
    text = percent(probe.share, gap=" ")
    interval = probe.interval
    if interval is None:
        return text
    low, high = (percent(end, 0, gap=" ") for end in interval)
    return f"{text} ({low} to {high})"


def charts(answer: Answer) -> list[Chart]:
    """The share of good requests against the load, with intervals.

    And throughput against the speed of one user.
    """
    drawn = [_shares_chart(answer), _speed_chart(answer)]
    shown = []
    for chart in drawn:
        if chart is not None:
            shown.append(chart)

    return shown


def _shares_chart(answer: Answer) -> Chart | None:
    points: dict[str, list[float]] = {"x": [], "y": [], "low": [], "high": []}
    texts = []
    for probe in answer.curve:
        interval = probe.interval
        if not probe.counts or interval is None:
            continue
        points["x"].append(probe.level)
        points["y"].append(100 * probe.share)
        points["low"].append(100 * interval[0])
        points["high"].append(100 * interval[1])
        texts.append(f"{answer.number(probe.level)}: {probe.share:.0%}")
    if len(texts) < 2:
        return None

    unit = answer.settings.unit
    wanted = answer.settings.goal.share
    capacity = answer.capacity.value
    plot = Figure(unit, "requests that met all objectives (%)", zoom="both", height=300)
    if unit == USERS:
        # there are no parts of users
        plot.x_axis.set(
            ticker=Model("BasicTicker", mantissas=[1, 2, 5], min_interval=1)
        )
    probes = source(**points)
    dots = _dots(plot, probes)
    whiskers = annotation(
        probes,
        "Whisker",
        base="x",
        upper="high",
        lower="low",
        line_color=colour("blue"),
    )
    plot.add(whiskers)
    plot.add(span(100 * wanted, "width", line_color=colour("red"), line_dash=[6]))
    keys = [
        Key("blue", "probe with its 95 % interval"),
        Key("red", f"{wanted:.0%} asked for"),
    ]
    failed = [probe for probe in answer.curve if not probe.counts]
    if failed:
        _draw_failed(plot, failed, unit)
        keys.append(Key("grey", "probe that says nothing"))
    if capacity:
        plot.add(span(capacity, "height", line_color=colour("green"), line_width=2))
        keys.append(Key("green", "capacity"))
    plot.hover([dots], [(unit, "@x{0.[00]}"), ("met all", "@y{0.0} %")])
    return Chart(plot, "Requests within the objectives", "; ".join(texts), keys)


def _draw_failed(plot: Figure, probes: Sequence[ProbeResult], unit: str) -> None:
    """A cross for each probe that does not count, at the share of its requests; what was wrong with
    it is shown at the cross."""
    crosses = plot.draw(
        source(
            x=[probe.level for probe in probes],
            y=[100 * probe.share for probe in probes],
            why=[probe.fault or "no request was judged" for probe in probes],
        ),
        "Scatter",
        x="x",
        y="y",
        size=9,
        marker="cross",  # "x" is a column
        line_color=colour("grey"),
        line_width=2,
    )
    plot.hover([crosses], [(unit, "@x{0.[00]}"), ("", "@why")])


def _dots(plot: Figure, points: Model) -> Model:
    return plot.draw(
        points,
        "Scatter",
        x="x",
        y="y",
        size=8,
        fill_color=colour("blue"),
        line_color=colour("blue"),
    )


def _speed_chart(answer: Answer) -> Chart | None:
    known = []
    for probe in answer.curve:
        speed = speed_of_user(probe)
        total = probe.figures.get("output_throughput")
        if probe.counts and speed and total:
            known.append(_Speeds(probe, answer.number(probe.level), speed, total))
    if len(known) < 2:
        return None

    plot = Figure(
        "output tokens/s, one user",
        "output tokens/s, all users",
        zoom="both",
        height=300,
    )
    points = source(
        x=[point.one for point in known],
        y=[point.all for point in known],
        name=[point.name for point in known],
    )
    dots = _dots(plot, points)
    unit = answer.settings.unit
    plot.hover(
        [dots], [(unit, "@name"), ("one user", "@x{0,0.0}"), ("all users", "@y{0,0.0}")]
    )
    keys = [Key("blue", "probe")]

    best = knee(answer)
    capacity = answer.capacity.value or 0
    within = []
    for point in known:
        if point.probe.level <= capacity:
            within.append(point)

    for point in known:
        if point.probe is best:
            _ring(plot, point, "orange", 19)
            keys.append(
                Key("orange", "knee: the most of both together (their product)")
            )
    if within:
        _ring(plot, within[-1], "green", 25)
        keys.append(Key("green", "the highest probe within the objectives"))

    texts = []
    for point in known:
        speeds = f"{point.all:.0f} all, {point.one:.0f} one user"
        texts.append(f"{point.name}: {speeds}")
    return Chart(
        plot, "Throughput against the speed of one user", "; ".join(texts), keys
    )


class _Speeds(NamedTuple):
    """Output tokens/s of one user and of all at a probe, whose load is `name`."""

    probe: ProbeResult
    name: str
    one: float
    all: float


def _ring(plot: Figure, point: _Speeds, role: str, size: int) -> None:
    """Mark a point."""
    plot.draw(
        source(x=[point.one], y=[point.all]),
        "Scatter",
        x="x",
        y="y",
        size=size,
        fill_color=None,
        line_color=colour(role),
        line_width=2.5,
    )


def as_json(answer: Answer) -> dict[str, Any]:
    """search.json: the capacity with its interval, the sentence, every probe."""
    capacity = answer.capacity
    best = knee(answer)
    return {
        result_schemas.KEY: VERSIONS[result_schemas.SEARCH],
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
        "not_ranked": list(answer.against),
        "notes": [*capacity.notes, *answer.notes],
        "probes": [probe.as_json() for probe in capacity.probes],
    }
