"""Lines about the progress of a command."""

from __future__ import annotations

import sys

from llama_load.outside.foreign_text import printable


def say(sentence: str) -> None:
    """Print a line to stderr."""
    print(f"llama-load: {printable(sentence)}", file=sys.stderr, flush=True)
