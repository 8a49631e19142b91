"""Errors shown to the user.

    LlamaLoadError          one sentence: what was expected, what was given, what to try
    ├── UsageError          wrong flags, data or target: exit code 2
    └── RunError            the run broke or is incomplete: exit code 3

A failed request is not an exception: it is a `RequestRecord` with a failure class.
"""

from __future__ import annotations


class LlamaLoadError(Exception):
    """Base of every error shown to the user as one sentence."""

    exit_code = 3


class UsageError(LlamaLoadError):
    """The request is impossible; nothing was run."""

    exit_code = 2


class RunError(LlamaLoadError):
    """The run could not be completed or recorded."""

    exit_code = 3
