"""The process that samples: `python -m llama_load.telemetry.sampler`.

It reads its `SamplerConfig` as one line of JSON from stdin, writes `ready` to stdout once every
source has been sampled, and then obeys lines on stdin: `sample` samples all sources at once and
answers `sampled`. It ends when stdin does: when the run closes it, or has been killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from llama_load.outside.foreign_text import keep_secret
from llama_load.run_folder.observed.telemetry_names import UP
from llama_load.run_folder.sampler_config import SamplerConfig
from llama_load.telemetry.all_sources import all_sources
from llama_load.telemetry.sample_file import SampleFile
from llama_load.telemetry.source import Source, SourceError, Value

# How long a source may take for the answer to `sample`; a server that computes a long prompt
# answers after it.
SAMPLED_WITHIN_S = 1.0
NICE = 5


class SourceThread(threading.Thread):
    """Samples one source every interval, and when asked.

    A source that blocks delays no other one.
    """

    def __init__(self, source: Source, file: SampleFile, interval_s: float) -> None:
        super().__init__(daemon=True)
        self._source = source
        self._file = file
        self._interval_s = interval_s
        self._asked = threading.Event()
        self._done = threading.Event()
        self._is_up = True
        self._asked_s: float | None = None  # when the sample under way was begun

    def ask(self) -> None:
        """Sample as soon as possible."""
        self._done.clear()
        self._asked.set()

    def wait(self, until_s: float) -> None:
        """Wait until the sample that was asked for, or the first one, is written."""
        self._done.wait(max(0.0, until_s - time.monotonic()))

    def note_silence(self) -> None:
        """Note a source whose answer the run did not wait for.

        Without a note it would look as if there were nothing to sample.
        """
        asked_s = self._asked_s
        if asked_s is None:
            return
        waited_s = time.monotonic() - asked_s
        if waited_s > self._interval_s:
            name = self._source.name
            self._file.note(
                f"{name}: no answer for {waited_s:.0f} s when the run ended"
            )

    def run(self) -> None:
        """Sample for ever, at once for the first time."""
        while True:
            began_s = time.monotonic()
            self._asked.clear()
            self._asked_s = began_s
            with suppress(OSError):  # the disk refuses: later samples may fit
                self._sample()
            self._asked_s = None
            if not self._asked.is_set():
                self._done.set()

            took_s = time.monotonic() - began_s
            left_s = self._interval_s * self._file.slow_down - took_s
            # A source that takes long is asked less often: at most half of the time goes to it.
            self._asked.wait(max(left_s, took_s, 0.01))

    def _sample(self) -> None:
        name = self._source.name
        begun_ns = time.monotonic_ns()
        try:
            values = list(self._source.sample())
        except Exception as error:
            if self._is_up:
                self._file.complete(name)
            self._is_up = False
            why = str(error) if isinstance(error, SourceError) else repr(error)
            self._file.note(f"{name}: {why}")
            self._file.add(name, time.monotonic_ns(), [Value(UP, 0.0)])
            return

        self._is_up = True
        middle_ns = (begun_ns + time.monotonic_ns()) // 2
        self._file.add(name, middle_ns, [*values, Value(UP, 1.0)])


def run(config: SamplerConfig, commands: IO[bytes], answers: IO[bytes]) -> None:
    """Sample until `commands` ends. Raises OSError if the file cannot be created."""
    file = SampleFile(config.file)
    sources = all_sources(config, file.note)
    threads = [SourceThread(source, file, config.interval_s) for source in sources]
    for thread in threads:
        thread.start()
    _answer_line(threads, answers, b"ready\n")
    for command in commands:
        if command.strip() == b"sample":
            for thread in threads:
                thread.ask()
            _answer_line(threads, answers, b"sampled\n")

    for thread in threads:
        thread.note_silence()
    file.complete()
    for source in sources:
        source.close()


def _answer_line(
    threads: Sequence[SourceThread], answers: IO[bytes], line: bytes
) -> None:
    until_s = time.monotonic() + SAMPLED_WITHIN_S
    for thread in threads:
        thread.wait(until_s)
    answers.write(line)
    answers.flush()


def main() -> None:
    """The process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # the run ends it, after the last sample; a meter's command gets signals again
        signal.signal(number, lambda *_: None)
    os.nice(NICE)
    line = sys.stdin.buffer.readline()
    if not line:  # there was no run
        return
    config = SamplerConfig.of(json.loads(line))
    for endpoint in (*config.servers, *config.slots, *config.exporters):
        keep_secret(
            value for _, value in endpoint.headers.fields
        )  # a page may quote it
    try:
        run(config, sys.stdin.buffer, sys.stdout.buffer)
    except OSError as error:  # the run has gone, or the file cannot be written
        print(f"telemetry: {error.strerror or error}", file=sys.stderr)
    os._exit(0)  # a source may be blocked in a driver


if __name__ == "__main__":
    main()
