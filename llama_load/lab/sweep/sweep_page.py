"""sweep.html: the tables of a sweep and a bar chart per figure, in one file that opens without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llama_load.foreign_text import printable
from llama_load.languages import CHINESE, ENGLISH
from llama_load.reports.html.charts import Chart, ChartPage, Figure, colour
from llama_load.reports.html.page import rendered
from llama_load.reports.html.plot import Model, source
from llama_load.tables import Table

MOST_BARS, MOST_CHARTS = 40, 24
MOST_LABEL = 40


def page(
    title: str,
    over: str,
    tables: Sequence[Table],
    sections: Sequence[tuple[str, Sequence[str]]],
    *,
    memory: Mapping[str, str] = {},
    language: str = ENGLISH,
    drawn: Sequence[Chart] | None = None,
) -> str:
    """The whole page: a line `over` the rest, tables, charts (`drawn`, or bars of each column), sections of sentences, memory by
    server."""
    charts = ChartPage()
    numbered = [(charts.add(chart), chart) for chart in (_charts(tables)[:MOST_CHARTS] if drawn is None else drawn)]
    return rendered(
        "sweep.html.j2",
        charts,
        language=language,
        title=title,
        over=over,
        tables=tables,
        charts_title="图表" if language == CHINESE else "Charts",
        charts=numbered,
        sections=[(name, sentences) for name, sentences in sections if sentences],
        memory=list(memory.items()),
    )


def _charts(tables: Sequence[Table]) -> list[Chart]:
    """A chart for every column of figures of every table with two rows or more."""
    return [chart for table in tables for place in range(len(table.columns)) if (chart := _bars(table, place)) is not None]


def _bars(table: Table, place: int) -> Chart | None:
    cells = table.cells
    rows = [(row, row[place].number) for row in cells if row[place].number is not None][:MOST_BARS]
    if len(rows) < 2 or len({value for _, value in rows}) < 2:
        return None
    texts = [index for index in range(len(table.columns)) if all(row[index].number is None for row in cells)]
    # Columns that are the same in every row name no bar.
    naming = [index for index in texts if len({row[index].text for row in cells}) > 1]
    names: list[str] = []
    for number, (row, _) in enumerate(rows, 1):
        name = " ".join(row[index].text for index in naming)[:MOST_LABEL] or str(number)
        names.append(name if name not in names else f"{name} ({number})")
    names = [printable(name) for name in names]
    head = printable(table.columns[place].name)
    values = [value for _, value in rows if value is not None]
    plot = Figure(head, "", height=60 + 26 * len(rows), y_range=Model("FactorRange", factors=names[::-1]), zoom="both")
    plot.x_range.set(start=min(0.0, *values))
    data = source(name=names, value=values, colour=[colour("orange" if row[place].is_best else "blue") for row, _ in rows])
    bars = plot.draw(data, "HBar", y="name", right="value", height=0.7, fill_color="colour", line_color=None)
    plot.hover([bars], [("", "@name"), (head, "@value{0.00}")])
    summary = "; ".join(f"{name}: {row[place].text}" for name, (row, _) in zip(names, rows, strict=True))
    return Chart(plot, " - ".join(filter(None, (table.title, head))), summary)
