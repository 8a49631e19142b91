"""Print the results of a run: the first screen, then the block."""

from __future__ import annotations

import sys
from typing import TextIO

from llama_load.foreign_text import printable
from llama_load.reports.first_screen import Line
from llama_load.reports.write import RunReports
from llama_load.tables.bounded_console import bounded_console

# From so many requests on, their figures take several seconds (4 s per 100,000 requests of 200 tokens on one core).
MANY = 100_000


def announce(step: str, requests: int) -> None:
    """Print what is done next where it takes seconds."""
    if requests >= MANY:
        print(f"{requests:,} requests: {step}", file=sys.stderr, flush=True)


def show(reports: RunReports, out: TextIO) -> None:
    """Print the first screen, in colours on a terminal, then the block and the run folder."""
    lines = [*reports.screen, Line("")]
    if out.isatty():
        from rich.text import Text

        console = bounded_console(out)
        for line in lines:
            console.print(Text(line.text, line.style), soft_wrap=True)
    else:
        print(*(line.text for line in lines), sep="\n", file=out)
    print(reports.text, end="", file=out)
    print(f"Run folder: {printable(str(reports.results.run.path), None)}", file=out, flush=True)
