"""Writes what docs/comparison.md, docs/why.md and results.md of this folder have from the kept
results: tables between two marks, and the charts. Also truth's own table and page of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from benchmarks.referee.better import where_others_are_better
from benchmarks.referee.chart import chart
from benchmarks.referee.clients import CLIENTS, REPOSITORY
from benchmarks.referee.kept import (
    FOLDER,
    Cell,
    cells_of,
    columns_of_truth,
    kept_columns,
)
from benchmarks.referee.tables import ARRIVALS, COSTS, ERRORS, error, table
from truth.cases import CLOSED, Case, read_cases
from truth.columns import Column
from truth.finding import number
from truth.page import page
from truth.table import matrix, wrapped
from truth.table import table as truth_table
from truth.units import percentile

PAGE = REPOSITORY / "docs" / "comparison.md"
WHY = REPOSITORY / "docs" / "why.md"
MORE = REPOSITORY / "benchmarks" / "referee" / "results.md"
# Cases of the page, and those that have their tables in MORE.
ON_PAGE = ("T3", "T4", "A1")
OTHERS = ("T1", "T8", "T2", "T5", "T6", "T7", "A2")
IN_SHORT = ("T2", "T3")
CHARTED = ("T1", "T2", "T3", "T4", "T5", "T6")
CHARTS = ("TTFT", "ITL")
BEGIN, END = "<!-- from benchmarks/referee/pages.py -->\n", "<!-- to here -->"
Columns = Mapping[str, Column]


def write_pages() -> None:
    """All of them, from the kept results."""
    columns = kept_columns()
    for path, new in parts_of_pages(columns).items():
        text = path.read_text(encoding="utf-8")
        path.write_text(between_marks(text, new), encoding="utf-8")
    for latency in CHARTS:
        picture(latency).write_text(drawn(columns, latency), encoding="utf-8")
    for name, text in pages_of_truth().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages_of_truth() -> Mapping[str, str]:
    """The files in truth/results that show all cases of all clients."""
    columns = columns_of_truth()
    return {"README.md": truth_table(columns), "page.html": page(columns)}


def between_marks(text: str, new: str) -> str:
    """`text` with `new` between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{new}{END}{after}"


def parts_of_pages(columns: Columns) -> Mapping[Path, str]:
    """What stands between the marks of each page."""
    return {
        PAGE: generated(columns),
        MORE: _text(_tables(columns, OTHERS)),
        WHY: short_table(columns),
    }


def picture(latency: str) -> Path:
    """The file of a chart."""
    return REPOSITORY / "docs" / "pictures" / f"referee-{latency.lower()}.svg"


def drawn(columns: Columns, latency: str) -> str:
    """The chart of a latency."""
    cases = _cases()
    blocks = [
        (_title(cases[number_of_case]), cells_of(columns, number_of_case))
        for number_of_case in CHARTED
    ]
    return chart(blocks, latency, f"Error of {latency}")


def short_table(columns: Columns) -> str:
    """Errors of TTFT of all clients at 64 and 400 streams."""
    cases = _cases()
    titles = [cases[number_of_case].title for number_of_case in IN_SHORT]
    lines = [f"| | {' | '.join(titles)} |", "|---|" + "---:|" * len(titles)]
    for client, column in columns.items():
        found = [cells_of({client: column}, each) for each in IN_SHORT]
        texts = ["".join(map(error("TTFT"), cells)) for cells in found]
        if any(texts):
            lines.append(f"| {client} | {' | '.join(texts)} |")
    return _text(lines)


def generated(columns: Columns) -> str:
    """The part of docs/comparison.md between the marks."""
    cases = _cases()
    titles = {each: _title(cases[each]) for each in sorted((*ON_PAGE, *OTHERS))}
    # with the flags that truth gives each client
    own = [columns[client.title] for client in CLIENTS if not client.env]
    lines = [*matrix(own), ""]
    lines += [*where_others_are_better(columns, titles), ""]
    for latency in CHARTS:
        name = picture(latency).name
        lines += [f"![Error of {latency} per client](pictures/{name})", ""]
    lines += [*_tables(columns, ON_PAGE), "Measured:", ""]
    for column in columns.values():
        lines += wrapped(f"- {column.title}: {'; '.join(column.runs_on)}")
    return _text(lines)


def _text(lines: Sequence[str]) -> str:
    return "\n".join(["", *lines, "", ""]).replace("\n\n\n", "\n\n")


def _tables(columns: Columns, numbers: Sequence[str]) -> list[str]:
    cases = _cases()
    lines: list[str] = []
    for number_of_case in numbers:
        case = cases[number_of_case]
        cells = cells_of(columns, number_of_case)
        lines += [f"## {_title(case)}", "", *_about(case, cells), ""]
        kinds = (ERRORS, COSTS) if case.load.arrival == CLOSED else (ARRIVALS,)
        for figures in kinds:
            lines += [*table(cells, figures), ""]
        lines += [*_not_run(columns, number_of_case), ""]
    return lines


@cache
def _cases() -> Mapping[str, Case]:
    return {case.id: case for case in read_cases()}


def _title(case: Case) -> str:
    return f"{case.title[0].upper()}{case.title[1:]} ({case.id})"


def _about(case: Case, cells: Sequence[Cell]) -> list[str]:
    """The server's own errors, the worst of all clients' runs; and how much of the machine other
    programs used."""
    late_ms = max((cell.case["late_p99_ms"] for cell in cells), default=0.0)
    bounds_ms = [cell.case["bound_ms"] for cell in cells if cell.case["bound_ms"]]
    text = f"The server was late by {number(late_ms)} ms (p99, worst case), which its log has"
    if bounds_ms:
        text += f"; the log's own bound is {max(bounds_ms):.3f} ms"
    others = [cores for cell in cells for cores in cell.cost("other_cores")]
    if others and not case.machine.busy:
        text += f". Other programs used {percentile(others, 50):.1f} cores"
    return wrapped(f"{text}.")


def _not_run(columns: Columns, number_of_case: str) -> list[str]:
    """Why a client is not in the tables of a case."""
    lines: list[str] = []
    for client, column in columns.items():
        case = column.cases.get(number_of_case)
        reason = case["void"] or case["not_asked"] if case else ""
        if reason:
            lines += wrapped(f"- {client}: {reason}")
    return lines
