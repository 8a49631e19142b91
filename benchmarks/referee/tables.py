"""Markdown tables of the kept results: a row per client, medians of its runs with the lowest and
highest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.referee.kept import LATENCIES, Cell
from truth.finding import number
from truth.repeats import interval
from truth.report import one_line
from truth.units import percentile

NOTHING = ""
Figure = tuple[str, Callable[[Cell], str]]


def error(latency: str) -> Callable[[Cell], str]:
    """`p50 / p99`, and of p99 the lowest and highest; with a star if only distributions could be
    compared."""

    def text(cell: Cell) -> str:
        p50s, p99s = cell.errors_of(latency)
        if not p50s:
            return NOTHING
        star = "" if cell.is_matched(latency) else "\\*"
        return f"{number(percentile(p50s, 50))} / {interval(p99s)}{star}"

    return text


def cost(name: str) -> Callable[[Cell], str]:
    """What a run cost."""

    def text(cell: Cell) -> str:
        values = cell.cost(name)
        return interval(values) if values else NOTHING

    return text


def signed(name: str, unit: str = "", scale: float = 1.0) -> Callable[[Cell], str]:
    """A figure of the arrivals, with its sign."""

    def text(cell: Cell) -> str:
        values = cell.figure(name)
        if not values:
            return NOTHING
        return f"{percentile(values, 50) * scale:+.2f}{unit}"

    return text


def verdict(cell: Cell) -> str:
    """In truth's words."""
    return cell.verdict


ERRORS: Sequence[Figure] = [(f"{name} error (ms)", error(name)) for name in LATENCIES]
COSTS: Sequence[Figure] = (
    ("CPU us/token in load", cost("cpu_us_per_token")),
    ("CPU s in all", cost("cpu_s")),
    ("memory (MiB)", cost("memory_mib")),
    ("verdict", verdict),
)
ARRIVALS: Sequence[Figure] = (
    ("rate error", signed("rate error", "%", 100.0)),
    ("CV of gaps", signed("gap cv")),
    ("autocorrelation of gaps", signed("gap autocorrelation")),
    ("variance/mean of counts", signed("count dispersion")),
    ("verdict", verdict),
)


def table(cells: Sequence[Cell], figures: Sequence[Figure]) -> list[str]:
    """Lines of Markdown. A client that failed has its reason instead."""
    titles = [title for title, _ in figures]
    lines = [f"| client | {' | '.join(titles)} |", "|---|" + "---:|" * len(figures)]
    for cell in cells:
        texts = [text(cell) for _, text in figures]
        if cell.case["failed"]:
            reason = one_line(cell.case["failed"]).replace("|", "/")
            texts = [f"FAILED: {reason}", *[NOTHING] * (len(figures) - 1)]
        lines.append(f"| {cell.client} | {' | '.join(texts)} |")
    return lines
