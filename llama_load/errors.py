"""What can go wrong, as seen by the person at the keyboard.

    LlamaLoadError          one sentence: what was wanted, what came, what to try
    ├── UsageError          wrong flags, data or target: exit code 2
    └── RunError            the run broke or is incomplete: exit code 3

A request that fails is no exception: it is a `RequestRecord` with a failure class.
"""

from __future__ import annotations


class LlamaLoadError(Exception):
    """Base of every error that is shown to the user as one sentence."""

    exit_code = 3


class UsageError(LlamaLoadError):
    """The user asked for something that cannot be done; nothing was run."""

    exit_code = 2


class RunError(LlamaLoadError):
    """The run could not be carried out or recorded to its end."""

    exit_code = 3
