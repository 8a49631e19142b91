"""Errors shown to the user.

    LlamaLoadError          one sentence: what was expected, what was given, what to try
    ├── UsageError          wrong flags, data or target
    └── RunError            the run broke or is incomplete

A failed request is not an exception: it is a `RequestRecord` with a failure class.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from llama_load.ground import exit_codes

MOST_LIKE = 3  # names that a message suggests


class LlamaLoadError(Exception):
    """Base of every error shown to the user as one sentence."""

    exit_code = exit_codes.INCOMPLETE


class UsageError(LlamaLoadError):
    """The request is impossible; nothing was run."""

    exit_code = exit_codes.WRONG_USE


class RunError(LlamaLoadError):
    """The run could not be completed or recorded."""

    exit_code = exit_codes.INCOMPLETE


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """`; did you mean p99_ttft_ms, median_ttft_ms or mean_ttft_ms?`: the names that contain the
    word as a part, else those spelled alike, in the order of `known`; empty without any."""
    part = f"_{word.lower()}_"
    inside = [name for name in known if part in f"_{name.lower()}_"]
    like = inside or difflib.get_close_matches(word.lower(), known, MOST_LIKE)
    *others, last = like[:MOST_LIKE] or [""]
    return (
        f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
        if last
        else ""
    )
