"""Writes what docs/comparison.md and docs/why.md have from the results: tables between two marks, and
the charts."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.referee.better import where_others_are_better
from benchmarks.referee.chart import chart
from benchmarks.referee.clients import CLIENTS
from benchmarks.referee.measure import Cell
from benchmarks.referee.results import Results
from benchmarks.referee.scenarios import CLOSED, SCENARIOS, Scenario
from benchmarks.referee.tables import (
    ARRIVALS,
    COSTS,
    ERRORS,
    LINE,
    REPORTED,
    error,
    measured,
    milliseconds,
    rows,
    table,
)

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "comparison.md"
WHY = REPOSITORY / "docs" / "why.md"
MORE = REPOSITORY / "benchmarks" / "referee" / "results.md"
# Scenarios of the page; the others have their tables in MORE.
ON_PAGE = ("400", "1600", "poisson")
CHARTS = {"ttft": "Error of TTFT", "itl": "Error of ITL"}
BEGIN, END = "<!-- from benchmarks/referee/page.py -->\n", "<!-- to here -->"
IN_SHORT = ("64", "400")
BUSY_CORES = 0.2  # other programs' use of the machine from which on docs/why.md says so


def between_marks(text: str, new: str) -> str:
    """`text` with `new` between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{new}{END}{after}"


def picture(metric: str) -> Path:
    return REPOSITORY / "docs" / "pictures" / f"referee-{metric}.svg"


def parts_of_pages(results: Results) -> Mapping[Path, str]:
    """What stands between the marks of each page."""
    return {
        PAGE: generated(results),
        MORE: other_tables(results),
        WHY: short_table(results),
    }


def write_page(results: Results) -> None:
    """docs/comparison.md, its charts, its other tables, and the table of docs/why.md."""
    for page, new in parts_of_pages(results).items():
        page.write_text(
            between_marks(page.read_text(encoding="utf-8"), new), encoding="utf-8"
        )
    for metric in CHARTS:
        picture(metric).write_text(drawn(results, metric), encoding="utf-8")


def drawn(results: Results, metric: str) -> str:
    closed = [scenario for scenario in SCENARIOS if scenario.arrival == CLOSED]
    return chart(results, closed, metric, f"{CHARTS[metric]}, {_where(results)}")


def short_table(results: Results) -> str:
    """Errors of TTFT of all clients at 64 and 400 streams."""
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in IN_SHORT]
    lines = [
        f"| | {' | '.join(scenario.title for scenario in scenarios)} |",
        "|---|" + "---:|" * len(scenarios),
    ]
    for client in CLIENTS:
        found = [results.cell(scenario, client) for scenario in scenarios]
        cells = [
            error("ttft")(cell)
            if cell and "errors" in cell
            else "failed"
            if cell
            else ""
            for cell in found
        ]
        if any(cells):
            lines.append(f"| {client.name} | {' | '.join(cells)} |")
    return "\n".join(["", *lines, "", *_busy_machine(results, scenarios), ""])


def _busy_machine(results: Results, scenarios: Sequence[Scenario]) -> list[str]:
    """A warning where other programs took part of the machine: their share is in no client's error
    alone."""
    others = _other_cores(
        [
            cell
            for scenario in scenarios
            for _, cell in rows(results, scenario)
            if "other_cores" in cell
        ]
    )
    if others < BUSY_CORES:
        return []
    text = (
        f"Other programs used {others:.1f} of the {results.machine['cores']} cores meanwhile, so these are the errors on a busy machine:"
        " on a quiet one they are smaller."
    )
    return [*textwrap.wrap(text, LINE), ""]


def _other_cores(cells: Sequence[Cell]) -> float:
    """How many cores other programs used, median of the runs."""
    return (
        max(0.0, float(np.median([cell["other_cores"] for cell in cells])))
        if cells
        else 0.0
    )


def generated(results: Results) -> str:
    """The part of docs/comparison.md between the marks."""
    parts = ["", where_others_are_better(results)]
    parts += textwrap.wrap(f"Measured {_where(results)}.", LINE)
    parts += [
        "",
        "| client | version |",
        "|---|---|",
        *(f"| {name} | {version} |" for name, version in results.versions.items()),
        "",
    ]
    parts += [
        f"![{title} per client](pictures/{picture(metric).name})\n"
        for metric, title in CHARTS.items()
    ]
    parts += _tables(results, [each for each in measured(results) if _is_on_page(each)])
    return "\n".join(parts) + "\n"


def other_tables(results: Results) -> str:
    """The part of benchmarks/referee/results.md between the marks."""
    others = [each for each in measured(results) if not _is_on_page(each)]
    where = textwrap.wrap(f"Measured {_where(results)}.", LINE)
    return "\n".join(["", *where, "", *_tables(results, others)]) + "\n"


def _is_on_page(scenario: Scenario) -> bool:
    return scenario.name in ON_PAGE


def _tables(results: Results, scenarios: Sequence[Scenario]) -> list[str]:
    parts = []
    for scenario in scenarios:
        parts += [
            f"## {scenario.title[0].upper()}{scenario.title[1:]}",
            "",
            _server_line(results, scenario.name),
            "",
        ]
        if scenario.arrival == CLOSED:
            parts += [
                table(results, scenario, ERRORS),
                table(results, scenario, (*COSTS, *REPORTED)),
            ]
        else:
            parts += [table(results, scenario, ARRIVALS)]
        parts += _remarks(results, scenario.name)
    return parts


def _where(results: Results) -> str:
    machine = results.machine
    return f"{_when(results)}, {machine['system']}, {machine['cores']} cores, Python {machine['python']}, {machine['server']}"


def _when(results: Results) -> str:
    """The days on which clients were measured last. Of several days each has its clients; that of
    the most has the others."""
    clients: dict[str, list[str]] = {}
    for client in CLIENTS:
        dates = [
            cell["date"]
            for scenario in SCENARIOS
            if (cell := results.cell(scenario, client)) and "date" in cell
        ]
        if dates:
            same = clients.setdefault(max(dates), [])
            same.append(client.name)

    if len(clients) < 2:
        return str(results.machine["date"])
    most = max(clients, key=lambda date: len(clients[date]))
    clients[most] = ["the others"]
    days = [f"{date} ({', '.join(clients[date])})" for date in sorted(clients)]
    return ", ".join(days)


def _server_line(results: Results, name: str) -> str:
    """The referee's own errors in this scenario: the worst of its runs; and how much of the machine
    other programs used."""
    (scenario,) = (each for each in SCENARIOS if each.name == name)
    cells = [cell for _, cell in rows(results, scenario) if cell.get("server")]
    servers = [cell["server"] for cell in cells]
    if not servers:
        return "The server measured nothing of itself."
    late, stamp = (
        max(server[key] for server in servers)
        for key in ("late_p99_ms", "log_to_kernel_p99_ms")
    )
    cost = float(np.median([server["cpu_us_per_token"] for server in servers]))
    others = _other_cores(cells)
    return textwrap.fill(
        f"Server: {cost:.1f} us of CPU per token. In its worst run it was late by {milliseconds(late)} ms (p99), which the log"
        f" has, and its log by {stamp:.3f} ms (p99) against the kernel. Other programs used {others:.1f} cores.",
        LINE,
    )


def _remarks(results: Results, name: str) -> Sequence[str]:
    (scenario,) = (each for each in SCENARIOS if each.name == name)
    remarks = [
        f"- {client.name}: {reason}"
        for client in CLIENTS
        if (reason := client.unable(scenario)) and "differs" not in reason
    ]
    remarks += [
        f"- {client.name}: {cell['problem']}"
        for client, cell in rows(results, scenario)
        if cell.get("problem")
    ]
    return [*remarks, ""] if remarks else []
