"""Markdown tables of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.referee.clients import CLIENTS, Client
from benchmarks.referee.measure import Cell
from benchmarks.referee.results import Results
from benchmarks.referee.scenarios import CLOSED, SCENARIOS, Scenario

Column = tuple[str, Callable[[Cell], str]]
NOTHING = ""
LINE = 118  # characters of a line of Markdown


def milliseconds(value: float) -> str:
    """With the digits that matter: 0.03, 1.2, 144."""
    size = abs(value)
    return (
        f"{value:.2f}"
        if size < 1
        else f"{value:.1f}"
        if size < 1000
        else f"{value:,.0f}"
    )


def signed_percent(ratio: float) -> str:
    """+1.2%, and 0.0% without a sign."""
    return f"{ratio:+.1%}" if round(ratio, 3) else "0.0%"


def pair(values: Sequence[float]) -> str:
    return " / ".join(map(milliseconds, values))


def error(name: str) -> Callable[[Cell], str]:
    """`p50 / p99`; with a star if only distributions could be compared."""

    def text(cell: Cell) -> str:
        value = cell["errors"].get(name)
        return (
            pair((value["p50"], value["p99"])) + ("" if value["matched"] else "*")
            if value
            else NOTHING
        )

    return text


def seen(name: str, by: str) -> Callable[[Cell], str]:
    def text(cell: Cell) -> str:
        if by == "client":
            keys = [f"p{p}_{name}_ms" for p in (50, 99)]
            return (
                pair([cell["reported"][key] for key in keys])
                if all(key in cell["reported"] for key in keys)
                else NOTHING
            )
        value = cell["errors"].get(name)
        return pair(value["server"]) if value else NOTHING

    return text


def share(name: str) -> Callable[[Cell], str]:
    def text(cell: Cell) -> str:
        return signed_percent(cell["rates"][name]) if name in cell["rates"] else NOTHING

    return text


def number(name: str, digits: int) -> Callable[[Cell], str]:
    return lambda cell: f"{cell[name]:.{digits}f}" if name in cell else NOTHING


def lost(cell: Cell) -> str:
    counts = cell["requests"]
    return f"{counts['lost']} of {counts['asked']}" if counts["lost"] else "0"


ERRORS: tuple[Column, ...] = (
    ("TTFT", error("ttft")),
    ("ITL", error("itl")),
    ("TPOT", error("tpot")),
    ("E2EL", error("e2el")),
    ("requests/s", share("request_rps")),
    ("tokens/s", share("output_tok_per_s")),
    ("lost", lost),
)
COSTS: tuple[Column, ...] = (
    ("CPU us/token in load", number("cpu_us_per_token", 1)),
    ("CPU s in all", number("cpu_s", 1)),
    ("memory (MiB)", number("memory_mib", 0)),
)
REPORTED: tuple[Column, ...] = (
    ("TTFT reported", seen("ttft", "client")),
    ("TTFT by the log", seen("ttft", "server")),
    ("ITL reported", seen("itl", "client")),
    ("ITL by the log", seen("itl", "server")),
    ("verdict", lambda cell: cell["note"]),
)
ARRIVALS: tuple[Column, ...] = (
    ("TTFT error", error("ttft")),
    ("requests/s", lambda cell: signed_percent(cell["arrivals"]["rate_error"])),
    ("CV of gaps", lambda cell: f"{cell['arrivals']['gap_cv']:.2f}"),
    (
        "autocorrelation of gaps",
        lambda cell: f"{cell['arrivals']['gap_autocorrelation']:+.2f}",
    ),
    (
        "variance/mean of counts",
        lambda cell: f"{cell['arrivals']['count_dispersion']:.2f}",
    ),
)


def table(results: Results, scenario: Scenario, columns: Sequence[Column]) -> str:
    """A row per client; a client that failed, or cannot do this, has its reason instead."""
    lines = [
        f"| client | {' | '.join(title for title, _ in columns)} |",
        "|---|" + "---:|" * len(columns),
    ]
    for client, cell in rows(results, scenario):
        if "failed" in cell:
            cells = [
                f"FAILED: {cell['failed']}".replace("|", "/").replace("\n", " ")[:160],
                *[NOTHING] * (len(columns) - 1),
            ]
        else:
            cells = [text(cell) for _, text in columns]
        lines.append(f"| {client.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rows(results: Results, scenario: Scenario) -> Iterator[tuple[Client, Cell]]:
    """The clients that were measured."""
    for client in CLIENTS:
        cell = results.cell(scenario, client)
        if cell is not None and (
            scenario.arrival == CLOSED or cell.get("arrivals") or "failed" in cell
        ):
            yield client, cell


def measured(results: Results) -> list[Scenario]:
    """The scenarios that have results."""
    return [scenario for scenario in SCENARIOS if any(rows(results, scenario))]
