"""Questions to the person at the terminal."""

from __future__ import annotations

import sys

from llama_load.outside.foreign_text import printable

# Environment variable: commands that would ask about a plan start it.
YES = "LLAMA_LOAD_YES"
_YES = ("y", "yes")


def is_there() -> bool:
    """Whether somebody can be asked: input and questions are those of a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agrees(question: str) -> bool:
    """The person's answer to a question; no answer is no. Only where somebody `is_there`."""
    print(f"{printable(question, None)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in _YES
