"""A meter that is a command of the user: a line of JSON a sample."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from llama_load.ground.own_modules import child_environment
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.observed.telemetry_names import POWER
from llama_load.telemetry.source import Source, SourceError, Value

WITHIN_S = 10.0
MOST_LINE_BYTES = 64 << 10
MOST_OTHERS = 32
LARGEST = 1e300  # what is larger, or NaN, is no reading
# Keys with a meaning; others are kept under their own names.
KEYS = {"watts": "power_watts", "joules": "power_joules_total"}


class PowerCommand(Source):
    """A command that prints lines of JSON: {"watts": 312.5}, or a counter, {"joules": 81234.0}.

    One that has ended is started again for the next sample; of one that goes on each sample waits
    for its newest line.
    """

    name = POWER

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._has_answered = False  # the process that runs now

    def sample(self) -> Iterator[Value]:
        """Its newest line. Raises SourceError where it prints none, or not JSON."""
        line = self._line()
        try:
            reading = json.loads(line)
        except (ValueError, RecursionError):
            reading = None
        if not isinstance(reading, dict):
            printed = printable(line.decode("utf-8", "replace"), 60)
            raise SourceError(
                f"--power-command must print lines of JSON, it printed {printed!r}"
            )

        numbers = {}
        for key, value in reading.items():
            if _is_number(value):
                numbers[str(key)] = float(value)
        if not KEYS.keys() & numbers:
            raise SourceError(
                '--power-command must print {"watts": …} or {"joules": …}'
            )
        for key, number in list(numbers.items())[:MOST_OTHERS]:
            yield Value(KEYS.get(key, printable(key, 100)), number)

    def close(self) -> None:
        """End it."""
        process = self._process
        self._process = None
        if process is None:
            return

        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it has started
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _line(self) -> bytes:
        """The newest whole line that has been printed; waits for one."""
        deadline_s = time.monotonic() + WITHIN_S
        newest = b""
        while True:
            if self._process is None:
                self._start()
            within_s = 0.0 if newest else deadline_s - time.monotonic()
            is_over = self._receive(within_s)
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                if line.strip():
                    newest = line

            if is_over:
                newest = newest or self._rest
                code = self._reap()
                if newest.strip():
                    return newest
                if not self._has_answered:
                    raise SourceError(
                        f"--power-command ended with exit code {code} and printed nothing"
                    )
                continue  # that was the end after the line of the last sample

            if newest and not select.select([self._out], [], [], 0)[0]:
                self._has_answered = True
                return newest
            if time.monotonic() >= deadline_s or len(self._rest) > MOST_LINE_BYTES:
                self.close()
                if newest:
                    return newest
                raise SourceError(
                    f"--power-command printed no line within {WITHIN_S:g} s"
                )

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=child_environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise SourceError(f"--power-command cannot be started: {error}") from None
        self._rest = b""
        self._has_answered = False

    @property
    def _out(self) -> int:
        process = self._process
        if process is None or process.stdout is None:  # closed by another thread
            raise SourceError(
                "--power-command printed no line before the sampling ended"
            )
        return process.stdout.fileno()

    def _receive(self, within_s: float) -> bool:
        """Take what has been printed, waiting for it; whether it was the last."""
        if not select.select([self._out], [], [], max(0.0, within_s))[0]:
            return False
        piece = os.read(self._out, MOST_LINE_BYTES)
        self._rest += piece
        return not piece

    def _reap(self) -> int | None:
        process = self._process
        assert process is not None
        try:
            code = process.wait(1.0)
        except subprocess.TimeoutExpired:
            code = None
        self.close()
        return code


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < LARGEST
    )
