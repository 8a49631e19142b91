"""`llama-load verify`: whether every printed figure of a run is what its records give."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from llama_load.cli.parser import Parser
from llama_load.ground.exit_codes import GOOD, THRESHOLD_FAILED

# Signs in the names of figures below llama_load, which have no line of their own where they hold
# (but with --all).
NESTED = (".", "[")


def add_verify(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    verify = commands.add_parser(
        "verify",
        help="compute every printed figure of a run again from its records, and say which of "
        "them hold",
        description="Read the records of a run, compute its figures again, and compare them with "
        "summary.json, summary.txt, report.md and report.html. Also compared: the rows and the "
        "digest of requests.parquet and the digests of telemetry.parquet and probes.parquet that "
        "the run noted in run.json, latencies with the timestamps that they come from, and the "
        "form of run.json, summary.json and requests.parquet with their schemas. ✓ the "
        "figure holds, ✗ it is another one, ? it cannot be compared: an older version wrote no "
        "digest, or did not print this figure. Exit code 1 if a figure does not hold. A digest "
        "shows mistakes, not a forger, who can write another one.",
        examples={
            "Does the report of a colleague hold?": "llama-load verify runs/20261121-203500-demo",
            "With every figure below llama_load": "llama-load verify runs/20261121-203500-demo "
            "--all",
            "Only the figures that do not hold": "llama-load verify runs/20261121-203500-demo | "
            "grep ✗",
        },
    )
    verify.add_argument("run_folder", type=Path, metavar="RUN", help="a run folder")
    verify.add_argument(
        "--all",
        action="store_true",
        help="a line for every figure that holds, too, and not only those at the top",
    )
    verify.set_defaults(run=_verify)


def _verify(arguments: argparse.Namespace) -> int:
    from llama_load.analysis.reports.verify import verify_run

    found = verify_run(arguments.run_folder)
    shown = []
    for row in found.rows:
        if arguments.all or row.holds is False or not _is_nested(row.name):
            shown.append(row)

    where_width = _widest(row.where for row in shown)
    name_width = _widest(row.name for row in shown)
    printed_width = _widest(row.printed for row in shown)
    for row in shown:
        where = row.where.ljust(where_width)
        name = row.name.ljust(name_width)
        printed = row.printed.ljust(printed_width)
        line = f"{row.mark} {where}  {name}  {printed}"
        print(line.rstrip() if row.holds else f"{line}  {row.computed}")

    hold = Counter(row.holds for row in found.rows)
    print(
        f"{hold[True]} figures hold, {hold[False]} do not, {hold[None]} cannot be compared"
    )
    return GOOD if found.holds else THRESHOLD_FAILED


def _is_nested(name: str) -> bool:
    return any(sign in name for sign in NESTED)


def _widest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)
