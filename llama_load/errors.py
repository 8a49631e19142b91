"""The errors that users see.

    LlamaLoadError          one sentence: what was expected, what was found, what to do
    ├── UsageError          wrong flags, data or target: exit code 2
    └── RunError            the run broke or is incomplete: exit code 3

A failed request is not an exception but a `RequestRecord` with a failure class.
"""

from __future__ import annotations


class LlamaLoadError(Exception):
    """Base of every error that is shown to the user as one sentence."""

    exit_code = 3


class UsageError(LlamaLoadError):
    """Wrong flags, data or target; nothing was run."""

    exit_code = 2


class RunError(LlamaLoadError):
    """The run failed, or its records are incomplete."""

    exit_code = 3
