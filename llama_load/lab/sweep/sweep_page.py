"""sweep.html: the tables of a sweep and a bar chart per figure.

In one file that opens without a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_load.analysis.reports.html.charts import (
    SERIES,
    Chart,
    ChartPage,
    Figure,
    Key,
    colour,
)
from llama_load.analysis.reports.html.page import rendered
from llama_load.analysis.reports.html.plot import Model, source
from llama_load.analysis.reports.translations import translator
from llama_load.ground.languages import ENGLISH, Translate
from llama_load.lab.sweep.column_cells import NOT_RANKED
from llama_load.lab.sweep.sweep_words import sweep_words
from llama_load.outside.foreign_text import printable
from llama_load.tables import Cell, Table

MOST_BARS = 40
# The figure that is the answer of a sweep, by the beginning of its heading.
OUTPUT = ("output", "tok/s", "每秒生成")
MOST_CHARTS = 24
MOST_LABEL = 40  # characters
# Bars of figures that are not ranked are faint.
NOT_RANKED_OPACITY = 0.4
MARK_MEANS = "not ranked: the table says why"


def page(
    title: str,
    over: str,
    tables: Sequence[Table],
    sections: Sequence[tuple[str, Sequence[str]]],
    *,
    memory: Mapping[str, str] = {},
    language: str = ENGLISH,
    drawn: Sequence[Chart] | None = None,
    first: Chart | None = None,
    subject: Sequence[tuple[str, str]] = (),
    answer: tuple[str, str] | None = None,
) -> str:
    """The whole page.

    What was measured (`subject`), the `answer` as a number and its unit with the line `over`,
    charts (`drawn`, or bars of each column behind the `first`), tables, sections of sentences,
    memory by server.
    """
    if drawn is None:
        drawn = _charts(tables, translator(language))[:MOST_CHARTS]
    if first is not None:
        drawn = [first, *drawn]
    charts = ChartPage()
    numbered = []
    for chart in drawn:
        numbered.append((charts.add(chart), chart))

    return rendered(
        "sweep.html.j2",
        charts,
        language=language,
        title=title,
        subject=subject,
        answer=answer,
        over=over,
        tables=tables,
        charts_title=sweep_words(language)("Charts"),
        charts=numbered,
        sections=[(name, sentences) for name, sentences in sections if sentences],
        memory=list(memory.items()),
    )


def is_not_ranked(cell: Cell) -> bool:
    """Whether it has the mark for that."""
    return cell.text.endswith(NOT_RANKED)


def best_figure(tables: Sequence[Table]) -> tuple[str, str] | None:
    """The most output of the rows that are the best of theirs, and what it is of.

    None where no row is.
    """
    best: tuple[Cell, str] | None = None
    for table in tables:
        naming = _naming_columns(table)
        for place, column in enumerate(table.columns):
            if not column.name.lower().startswith(OUTPUT):
                continue
            for row in table.cells:
                cell = row[place]
                if not cell.is_best or cell.number is None:
                    continue
                if best is None or cell.number > (best[0].number or 0.0):
                    best = (cell, f"{column.name}: {_settings_of(table, row, naming)}")

    return None if best is None else (best[0].text, best[1])


def _settings_of(table: Table, row: Sequence[Cell], naming: Sequence[int]) -> str:
    """The row in words: threads 16, u=4."""
    texts = [_setting_text(table, place, row[place].text) for place in naming]
    return ", ".join(texts)


def _setting_text(table: Table, place: int, value: str) -> str:
    """A setting with the name of its column, unless it has one already."""
    name = table.columns[place].name
    return printable(value if "=" in value or not name else f"{name} {value}")


def _charts(tables: Sequence[Table], t: Translate) -> list[Chart]:
    """A chart for every column of figures of every table with two rows or more."""
    charts = []
    for table in tables:
        for place in range(len(table.columns)):
            chart = _bars(table, place, t)
            if chart is not None:
                charts.append(chart)
    return charts


def _bars(table: Table, place: int, t: Translate) -> Chart | None:
    """The figures of a column; None if there are none, or all are equal."""
    rows = []
    values = []
    for row in table.cells:
        value = row[place].number
        if value is not None:
            rows.append(row)
            values.append(value)
    rows = rows[:MOST_BARS]
    values = values[:MOST_BARS]
    if len(rows) < 2 or len(set(values)) < 2:
        return None

    head = printable(table.columns[place].name)
    naming = _naming_columns(table)
    names = _names_of(rows, naming, place)
    opacities = []
    for row in rows:
        is_faint = is_not_ranked(row[place])
        opacities.append(NOT_RANKED_OPACITY if is_faint else 1.0)
    plot = Figure(
        head,
        "",
        height=60 + 26 * len(rows),
        y_range=Model("FactorRange", factors=names[::-1]),
        zoom="both",
    )
    plot.x_range.set(start=min(0.0, *values))

    bars = []
    groups = _groups(table, naming)
    for role, _, chosen in _by_group(rows, groups):
        bars.append(
            plot.draw(
                source(
                    name=[names[index] for index in chosen],
                    value=[values[index] for index in chosen],
                    opacity=[opacities[index] for index in chosen],
                ),
                "HBar",
                y="name",
                right="value",
                height=0.7,
                fill_color=colour(role),
                fill_alpha="opacity",
                line_color=None,
            )
        )
    plot.hover(bars, [("", "@name"), (head, "@value{0.00}")])

    best = [index for index, row in enumerate(rows) if row[place].is_best]
    if best:
        _outline(plot, [names[i] for i in best], [values[i] for i in best])

    keys = []
    if groups is not None:
        for role, group, _ in _by_group(rows, groups):
            keys.append(Key(role, _setting_text(table, groups.place, group)))
    if best:
        keys.append(Key("ink", t("best")))

    texts = []
    for name, row in zip(names, rows, strict=True):
        texts.append(f"{name}: {row[place].text}")
    title = f"{table.title} - {head}" if table.title and head else table.title or head
    note = f"{NOT_RANKED} {t(MARK_MEANS)}" if min(opacities) < 1 else ""
    return Chart(plot, title, "; ".join(texts), keys, note)


@dataclass(frozen=True, slots=True)
class _Groups:
    """The column whose values have a colour each, and these in order."""

    place: int
    values: Sequence[str]


def _groups(table: Table, naming: Sequence[int]) -> _Groups | None:
    """The first setting with few enough values, the same for all charts of a table.

    None where there is none: all bars have one colour.
    """
    for place in naming:
        values = list(dict.fromkeys(row[place].text for row in table.cells))
        if len(values) <= len(SERIES):
            return _Groups(place, values)
    return None


def _by_group(
    rows: Sequence[Sequence[Cell]], groups: _Groups | None
) -> list[tuple[str, str, list[int]]]:
    """The colour of each group, its name, and the places of its rows."""
    if groups is None:
        return [(SERIES[0], "", list(range(len(rows))))]

    parts = []
    for role, value in zip(SERIES, groups.values, strict=False):
        own = [i for i, row in enumerate(rows) if row[groups.place].text == value]
        if own:
            parts.append((role, value, own))
    return parts


def _outline(plot: Figure, names: Sequence[str], values: Sequence[float]) -> None:
    """Mark the best."""
    plot.draw(
        source(name=names, value=values),
        "HBar",
        y="name",
        right="value",
        height=0.7,
        fill_color=None,
        line_color=colour("ink"),
        line_width=2,
    )


def _naming_columns(table: Table) -> list[int]:
    """The columns of texts that differ between rows: others name no bar."""
    naming = []
    for place in range(len(table.columns)):
        cells = [row[place] for row in table.cells]
        is_text = all(cell.number is None for cell in cells)
        if is_text and len({cell.text for cell in cells}) > 1:
            naming.append(place)
    return naming


def _names_of(
    rows: Sequence[Sequence[Cell]], naming: Sequence[int], figure: int
) -> list[str]:
    """A different name for each row, with the mark of its figure."""
    names: list[str] = []
    for number, row in enumerate(rows, 1):
        texts = " ".join(row[place].text for place in naming)
        name = texts[:MOST_LABEL] or str(number)
        if is_not_ranked(row[figure]):
            name += f" {NOT_RANKED}"
        if name in names:
            name = f"{name} ({number})"
        names.append(name)
    return [printable(name) for name in names]
