"""The file of samples, appended to during a run, bounded in size.

Its format is in `llama_load.run_folder.telemetry_file`.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from llama_load.ground.open_flags import BINARY, NO_FOLLOW, NOT_INHERITED
from llama_load.outside.foreign_text import printable
from llama_load.telemetry.source import Value

MOST_BYTES = 64 << 20
MOST_SERIES = 5000  # of all sources
# vLLM has about 700 an engine, a node exporter 1000 to 2000
MOST_SERIES_OF_SOURCE = 2500
MOST_NOTES = 100
MOST_CHARS = 200


# A metric and its labels.
SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _State:
    number: int
    value: float
    written_ns: int  # the instant of the last sample in the file
    seen_ns: int  # the instant of the last sample


class SampleFile:
    """Writes samples of several threads.

    A value that stays the same is written twice: when that begins, and when it ends.
    """

    def __init__(self, path: str, most_bytes: int = MOST_BYTES) -> None:
        """Raises OSError if the file cannot be created or exists."""
        how = (
            os.O_CREAT
            | os.O_EXCL
            | NO_FOLLOW
            | NOT_INHERITED
            | BINARY
            | os.O_WRONLY
            | os.O_APPEND
        )
        self._fd = os.open(path, how, 0o640)
        self._lock = threading.Lock()
        self._most_bytes = most_bytes
        self._bytes = 0
        self._torn = b""  # a newline after a line that the disk took a part of
        self._sources: dict[str, dict[SeriesKey, _State]] = {}
        self._series = 0
        self._notes: set[str] = set()
        # Each time that half of the rest is used the rate is halved: a file never gets full,
        # however long the run.
        self._slow_down_at = most_bytes // 2
        self.slow_down = 1

    def add(self, source: str, t_ns: int, values: Iterable[Value]) -> None:
        """The values of a source at an instant. Raises OSError if the disk refuses."""
        with self._lock:
            series = self._sources.setdefault(source, {})
            changed: list[tuple[_State, float]] = []
            left_out = 0
            for metric, value, labels in values:
                if not math.isfinite(value):
                    continue
                state = series.get((metric, labels))
                if state is None:
                    if (
                        len(series) >= MOST_SERIES_OF_SOURCE
                        or self._series >= MOST_SERIES
                    ):
                        left_out += 1
                        continue
                    state = _State(self._series, value, t_ns, t_ns)
                    series[metric, labels] = state
                    self._series += 1
                    self._write(["series", state.number, source, metric, dict(labels)])
                    changed.append((state, value))
                elif value != state.value:
                    changed.append((state, value))
                else:
                    state.seen_ns = t_ns

            self._write_last(state for state, _ in changed)
            pairs: list[float] = []
            for state, value in changed:
                state.value = value
                state.written_ns = t_ns
                state.seen_ns = t_ns
                pairs += (state.number, value)
            if changed:
                self._write(["values", t_ns, pairs])
            if left_out:
                self._note(
                    f"{source} has more series than are kept: {left_out} were left out"
                )

    def complete(self, source: str | None = None) -> None:
        """Write the last sample of values that have not changed since.

        Of a source that does not answer any more, or of all.
        """
        with self._lock:
            for name, series in self._sources.items():
                if source in (None, name):
                    self._write_last(series.values())

    def _write_last(self, states: Iterable[_State]) -> None:
        """Write the last samples of values that stayed the same since they were written."""
        last: dict[int, list[float]] = {}
        for state in states:
            if state.seen_ns != state.written_ns:
                pairs = last.setdefault(state.seen_ns, [])
                pairs += (state.number, state.value)
                state.written_ns = state.seen_ns
        for instant, pairs in sorted(last.items()):
            self._write(["values", instant, pairs])

    def note(self, sentence: str) -> None:
        """A sentence for the report, once."""
        with self._lock:
            self._note(sentence)

    def _note(self, sentence: str) -> None:
        sentence = printable(sentence, MOST_CHARS)
        if sentence not in self._notes and len(self._notes) < MOST_NOTES:
            self._notes.add(sentence)
            self._write(["note", sentence])

    def _write(self, line: list[object]) -> None:
        data = self._torn + json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if self._bytes + len(data) > self._most_bytes:
            return

        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            self._torn = b"\n"
            raise

        self._torn = b""
        self._bytes += len(data)
        if self._bytes > self._slow_down_at:
            self._slow_down_at += (self._most_bytes - self._slow_down_at) // 2
            self.slow_down *= 2
