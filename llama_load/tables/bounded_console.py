"""Rich's console on a terminal of any width."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

# Columns of a table, at least. In a narrower terminal lines are longer than it; else Rich would
# leave out what does not fit.
LEAST_WIDTH = 40
# What is drawn again and again must not be wider than the terminal.
LEAST_LIVE_WIDTH = 1
USUAL_WIDTH = 80  # where the environment says COLUMNS=0


def bounded_console(
    file: TextIO | None = None, *, stderr: bool = False, least_width: int = LEAST_WIDTH
) -> Console:
    """A console that is at least so wide, whatever the terminal or the environment says."""
    from rich.console import Console

    console = Console(file=file, stderr=stderr, highlight=False)
    width = console.width or USUAL_WIDTH
    if console.width < least_width:  # else it follows the terminal
        console.width = max(width, least_width)

    return console
