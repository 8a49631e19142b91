"""The exit codes of every command and of runs. A shell, CI and the commands that start runs read
them."""

from __future__ import annotations

GOOD = 0
THRESHOLD_FAILED = 1  # a threshold of the run or a gate of a comparison failed
WRONG_USE = 2  # flags, data or server do not fit: nothing was run
# the run or its files are not whole, or what was to be decided is not known
INCOMPLETE = 3
INTERRUPTED = 130  # Ctrl-C, as shells number it: 128 + SIGINT
