"""Removes keys and control characters from Locust's log, which goes to the terminal, a file, the
master and the web page."""

from __future__ import annotations

import logging

from llama_load.outside.foreign_text import printable_lines


class CleanFormatter(logging.Formatter):
    """Another formatter, whose lines are made printable."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter.format."""
        return printable_lines(self._inner.format(record))


def clean_logs() -> None:
    """Wrap the formatters of Locust's and the root handlers. To be called after Locust has set them
    up."""
    for name in (None, "locust", "locust.stats_logger"):
        for handler in logging.getLogger(name).handlers:
            if not isinstance(handler.formatter, CleanFormatter):
                handler.setFormatter(
                    CleanFormatter(handler.formatter or logging.Formatter())
                )
