"""In which cells another client is better than ours: it stands before all tables."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.referee.clients import CLIENTS
from benchmarks.referee.measure import Cell
from benchmarks.referee.results import Results
from benchmarks.referee.scenarios import Scenario
from benchmarks.referee.tables import LINE, measured, milliseconds, rows


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of which less is better. `value`: None where a client has none."""

    title: str
    unit: str
    value: Callable[[Cell], float | None]
    text: Callable[[float], str]


def p99_of(metric: str) -> Callable[[Cell], float | None]:
    """Of the error, request by request; None where only distributions are compared."""

    def value(cell: Cell) -> float | None:
        found = cell["errors"].get(metric)
        if not found or not found["matched"]:
            return None
        return abs(float(found["p99"]))

    return value


FIGURES = (
    *(
        Compared(f"p99 of the {name} error", "ms", p99_of(name.lower()), milliseconds)
        for name in ("TTFT", "ITL", "TPOT", "E2EL")
    ),
    Compared(
        "CPU",
        "us/token",
        lambda cell: cell.get("cpu_us_per_token"),
        lambda value: f"{value:.1f}",
    ),
)
# In one line for all scenarios: a client of one process always has less than one of several.
MEMORY = Compared(
    "memory",
    "MiB",
    lambda cell: cell.get("memory_mib"),
    lambda value: f"{value:.0f}",
)


def where_others_are_better(results: Results) -> str:
    """A line of Markdown for each scenario in which a client beats the first of `CLIENTS`."""
    lines: list[str] = []
    thrifty: set[str] = set()
    for scenario in measured(results):
        parts = [_part(results, scenario, figure) for figure in FIGURES]
        known = [part for part in parts if part]
        if known:
            text = f"- {scenario.title}: {'; '.join(known)}"
            lines += textwrap.wrap(text, LINE, subsequent_indent="  ")
        thrifty |= set(_better(results, scenario, MEMORY))

    if thrifty:
        names = [client.name for client in CLIENTS if client.name in thrifty]
        lines.append(f"- memory, in at least one scenario: {', '.join(names)}")
    if not lines:
        return f"No other client is better than {CLIENTS[0].name} in any figure.\n"
    return "\n".join(["Where another client is better:", "", *lines, ""])


def _part(results: Results, scenario: Scenario, figure: Compared) -> str:
    """The clients that have less, beside ours; empty if there are none."""
    names = _better(results, scenario, figure)
    if not names:
        return ""
    others = [f"{name} {figure.text(value)}" for name, value in names.items()]
    ours = results.cell(scenario, CLIENTS[0]) or {}
    own = figure.text(figure.value(ours) or 0.0)
    return (
        f"{figure.title} ({figure.unit}): {', '.join(others)}, {CLIENTS[0].name} {own}"
    )


def _better(results: Results, scenario: Scenario, figure: Compared) -> dict[str, float]:
    """What the clients have that have less than ours, and do not round to the same."""
    ours = results.cell(scenario, CLIENTS[0])
    if ours is None or "failed" in ours:
        return {}
    own = figure.value(ours)
    if own is None:
        return {}

    found: dict[str, float] = {}
    for client, cell in rows(results, scenario):
        is_ours = client.name.startswith(CLIENTS[0].name)
        if is_ours or "failed" in cell:
            continue
        value = figure.value(cell)
        if value is None or value >= own:
            continue
        if figure.text(value) != figure.text(own):
            found[client.name] = value
    return found
