"""The referee: load generators on a server with a known schedule, and the errors of what they
report.

    # installs the clients, measures for 20 minutes, writes docs/comparison.md
    make referee

    .venv/bin/python -m benchmarks.referee --scenarios 64 400 --clients llama-load aiperf

    # only the page and the charts, from the results that there are
    .venv/bin/python -m benchmarks.referee --render

A cell (a scenario with a client) takes 10 to 60 s. Those that are in the results are skipped, so
that the same command continues; --again measures them once more. No new cell is begun after
--minutes.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.referee.clients import CLIENTS, Client
from benchmarks.referee.measure import Cell, measure
from benchmarks.referee.page import write_page
from benchmarks.referee.process_group import quota_possible
from benchmarks.referee.results import RESULTS, Results
from benchmarks.referee.scenarios import SCENARIOS, Scenario


def main() -> int:
    """Measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scenarios",
        nargs="+",
        choices=[each.name for each in SCENARIOS],
        default=[each.name for each in SCENARIOS],
    )
    parser.add_argument(
        "--clients",
        nargs="+",
        choices=[each.name for each in CLIENTS],
        default=[each.name for each in CLIENTS],
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=20.0,
        help="no new cell after this time (default 20)",
    )
    parser.add_argument(
        "--again", action="store_true", help="measure cells that the results have"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        help="file of the results (default: the one in this folder)",
    )
    parser.add_argument(
        "--render",
        action="store_true",
        help="measure nothing: write docs/comparison.md and its charts",
    )
    arguments = parser.parse_args()
    results = Results(arguments.results)
    if arguments.render:
        write_page(results)
        return 0
    # so that clients, server and control groups are cleaned up
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    deadline = time.monotonic() + arguments.minutes * 60
    scenarios = [each for each in SCENARIOS if each.name in arguments.scenarios]
    clients = [each for each in CLIENTS if each.name in arguments.clients]
    left = [
        cell
        for cell in cells(scenarios, clients)
        if arguments.again or results.cell(*cell) is None
    ]
    for number, (scenario, client) in enumerate(left):
        if time.monotonic() > deadline:
            print(
                f"{len(left) - number} cells are left; the same command continues (without --again)"
            )
            break
        print(
            f"[{number + 1}/{len(left)}] {scenario.title}: {client.name} … ",
            end="",
            flush=True,
        )
        results.add(scenario, client, cell := measure(client, scenario))
        print(line(cell), flush=True)
    return 0


def cells(
    scenarios: list[Scenario], clients: list[Client]
) -> Iterator[tuple[Scenario, Client]]:
    """Those that can be measured here; the reasons of the others go to stderr."""
    missing = [client.name for client in clients if not client.installed()]
    if missing:
        print(
            f"not installed, so not tested: {', '.join(missing)} (make referee-clients installs them)",
            file=sys.stderr,
        )
    for scenario in scenarios:
        if scenario.quota is not None and not quota_possible():
            print(
                f"{scenario.title}: not tested, because control groups cannot be made here (run it as root)",
                file=sys.stderr,
            )
            continue
        for client in clients:
            if client.installed() and not client.unable(scenario):
                yield scenario, client


def line(cell: Cell) -> str:
    """A cell in a line, for the terminal."""
    if "failed" in cell:
        return f"FAILED: {cell['failed']}"
    parts = [
        f"{name} error {error['p50']:.2f} / {error['p99']:.2f} ms"
        for name, error in cell["errors"].items()
    ]
    parts += [
        f"lost {cell['requests']['lost']}",
        f"{cell.get('cpu_us_per_token', 0):.1f} us CPU/token",
    ]
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
