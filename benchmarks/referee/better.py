"""In which cases another client is better than ours: it stands before all tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.referee.kept import LATENCIES, OURS, Cell, Runs, cells_of
from truth.columns import Column
from truth.finding import number
from truth.repeats import interval
from truth.table import wrapped
from truth.units import percentile


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of which less is better, of each run. `runs`: empty where a client has none."""

    title: str
    unit: str
    runs: Callable[[Cell], Runs]


def p99_of(latency: str) -> Callable[[Cell], Runs]:
    """Of the error, request by request; none where only distributions are compared."""

    def runs(cell: Cell) -> Runs:
        if not cell.is_matched(latency):
            return []
        _, p99s = cell.errors_of(latency)
        return [abs(p99) for p99 in p99s]

    return runs


def cost_of(name: str) -> Callable[[Cell], Runs]:
    """A field of truth's costs."""
    return lambda cell: cell.cost(name)


FIGURES = (
    *(Compared(f"p99 of the {name} error", "ms", p99_of(name)) for name in LATENCIES),
    Compared("CPU", "us/token", cost_of("cpu_us_per_token")),
)
# In one line for all cases: a client of one process always has less than one of several.
MEMORY = Compared("memory", "MiB", cost_of("memory_mib"))


def where_others_are_better(
    columns: Mapping[str, Column], titles: Mapping[str, str]
) -> list[str]:
    """Lines of Markdown: for each case (`titles` by their numbers) the clients whose median is below
    ours."""
    lines: list[str] = []
    thrifty: dict[str, None] = {}
    for case, title in titles.items():
        cells = cells_of(columns, case)
        known = [part for figure in FIGURES if (part := _part(cells, figure))]
        if known:
            text = f"- {title}: {'; '.join(known)}"
            lines += wrapped(text)
        thrifty |= dict.fromkeys(cell.client for cell in _better(cells, MEMORY))

    if thrifty:
        lines.append(f"- memory, in at least one case: {', '.join(thrifty)}")
    if not lines:
        return [f"No other client is better than {OURS} in any figure."]
    return ["Where another client is better:", "", *lines]


def _part(cells: Sequence[Cell], figure: Compared) -> str:
    """The clients that have less, beside ours; empty if there are none."""
    better = _better(cells, figure)
    if not better:
        return ""
    shown = [*better, _ours(cells)]
    texts = [f"{cell.client} {interval(figure.runs(cell))}" for cell in shown if cell]
    return f"{figure.title} ({figure.unit}): {', '.join(texts)}"


def _better(cells: Sequence[Cell], figure: Compared) -> list[Cell]:
    """Those whose median is less than ours, and does not round to the same."""
    ours = _ours(cells)
    if ours is None or not figure.runs(ours):
        return []

    own = percentile(figure.runs(ours), 50)
    found: list[Cell] = []
    for cell in cells:
        runs = figure.runs(cell)
        if cell.is_ours or not runs:
            continue
        middle = percentile(runs, 50)
        if middle < own and number(middle) != number(own):
            found.append(cell)
    return found


def _ours(cells: Sequence[Cell]) -> Cell | None:
    for cell in cells:
        if cell.client == OURS and not cell.case["failed"]:
            return cell
    return None
