"""Print the results of a run: the first screen, and where it is wanted the block."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TextIO

from llama_load.analysis.reports.first_screen import DIM, Line
from llama_load.analysis.reports.write import RunReports
from llama_load.ground.units import quantity
from llama_load.outside.foreign_text import printable
from llama_load.tables.bounded_console import bounded_console


def show(reports: RunReports, out: TextIO, *, with_block: bool = False) -> None:
    """Print the results of a run: on a terminal the first screen, in colours.

    With the block, and wherever the output goes to a pipe or a file: the whole first screen, the
    block, and the run folder.
    """
    if not out.isatty():
        lines = [*reports.screen, Line("")]
        print(*(line.text for line in lines), sep="\n", file=out)
    elif with_block:
        _print_coloured([*reports.screen, Line("")], out)
    else:
        _print_coloured(_short_screen(reports), out)
        out.flush()
        return

    print(reports.text, end="", file=out)
    print(
        f"Run folder: {printable(str(reports.results.run.path), None)}",
        file=out,
        flush=True,
    )


def _short_screen(reports: RunReports) -> list[Line]:
    """The first screen with one cause; how many checks besides it failed, and how to see them."""
    lines = [line for line in reports.screen if not line.is_detail]
    if len(lines) == len(reports.screen):
        return lines

    checks = reports.results.verdict.checks
    others = sum(not check.ok for check in checks) - 1
    folder = shlex.quote(printable(str(reports.results.run.path), None))
    command = f"llama-load report --block {folder}"
    first_detail = [line.is_detail for line in reports.screen].index(True)
    lines.insert(
        first_detail, Line(f"  and {quantity(others, 'more check')}: {command}", DIM)
    )
    return lines


def _print_coloured(lines: Sequence[Line], out: TextIO) -> None:
    from rich.text import Text

    console = bounded_console(out)
    for line in lines:
        console.print(Text(line.text, line.style), soft_wrap=True)
