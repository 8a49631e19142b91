"""The files that Locust itself writes (--html, --csv, --json-file) quote exceptions, failures and
names: without known secrets."""

from __future__ import annotations

import builtins
from typing import IO, Any

import locust.main
import locust.stats

from llama_load.outside.foreign_text import redacted


class _RedactedFile:
    """A text file that is written without known secrets. Locust's functions only write, flush,
    seek, truncate and close."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """See io.TextIOBase.write."""
        self._file.write(redacted(text))
        return len(text)

    def __enter__(self) -> _RedactedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def redact_locusts_files() -> None:
    """From now on `open` in Locust's modules that write reports gives such files."""
    modules: tuple[Any, ...] = (locust.main, locust.stats)
    for module in modules:
        module.open = _open


def _open(file: Any, mode: str = "r", **how: Any) -> Any:
    opened = builtins.open(file, mode, **how)  # noqa: SIM115, PTH123 - a file for its caller, who closes it
    is_written_text = "b" not in mode and any(sign in mode for sign in "wxa+")
    return _RedactedFile(opened) if is_written_text else opened
