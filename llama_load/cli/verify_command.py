"""`llama-load verify`: whether every printed figure of a run is what its records give."""

from __future__ import annotations

import argparse
from pathlib import Path

from llama_load.cli.parser import Parser
from llama_load.exit_codes import GOOD, THRESHOLD_FAILED

# Signs in the names of figures below llama_load, which have no line of their own where they hold (but with --all).
NESTED = (".", "[")


def add_verify(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    verify = commands.add_parser(
        "verify",
        help="compute every printed figure of a run again from its records, and say which of them hold",
        description="Read the records of a run, compute its figures again, and compare them with summary.json, summary.txt and "
        "report.md. Also compared: the rows and the digest of requests.parquet that the run noted in run.json, and latencies with "
        "the timestamps that they come from. ✓ the figure holds, ✗ it is another one, ? it cannot be compared: an older version "
        "wrote no digest, or did not print this figure. Exit code 1 if a figure does not hold. A digest shows mistakes, not a "
        "forger, who can write another one. report.html is not compared: 'llama-load report' writes it again.",
        examples={
            "Does the report of a colleague hold?": "llama-load verify runs/20261121-203500-demo",
            "With every figure below llama_load": "llama-load verify runs/20261121-203500-demo --all",
            "Only the figures that do not hold": "llama-load verify runs/20261121-203500-demo | grep ✗",
        },
    )
    verify.add_argument("run_folder", type=Path, metavar="RUN", help="a run folder")
    verify.add_argument("--all", action="store_true", help="a line for every figure that holds, too, and not only those at the top")
    verify.set_defaults(run=_verify)


def _verify(arguments: argparse.Namespace) -> int:
    from llama_load.reports.verify import verify_run

    found = verify_run(arguments.run_folder)
    shown = [row for row in found.rows if arguments.all or row.holds is False or not any(sign in row.name for sign in NESTED)]
    widths = [
        max((len(text) for text in column), default=0)
        for column in zip(*((r.where, r.name, r.printed) for r in shown), strict=True)
    ]
    for row in shown:
        line = f"{row.mark} {row.where:<{widths[0]}}  {row.name:<{widths[1]}}  {row.printed:<{widths[2]}}"
        print(line.rstrip() if row.holds else f"{line}  {row.computed}")
    held = sum(row.holds is True for row in found.rows)
    unknown = sum(row.holds is None for row in found.rows)
    wrong = len(found.rows) - held - unknown
    print(f"{held} figures hold, {wrong} do not, {unknown} cannot be compared")
    return GOOD if found.holds else THRESHOLD_FAILED
