"""The results of `llama-load calibrate` on this machine, and whether they suffice for a run."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import msgspec

from llama_load.ground.cache_folder import cache_folder
from llama_load.run_folder import PreflightRow

TOK_PER_S = 50  # per stream: what one user of a fast server sees
LOOSE_MS = 5.0


@dataclass(frozen=True, slots=True)
class Step:
    """One load and its results: p99 of the absolute TTFT error in ms; the client's share of a core,
    0 to 1; the share of all cores that other programs used, None if unknown."""

    streams: int
    ttft_error_p99_ms: float
    core_busy: float | None
    others_busy: float | None = None


@dataclass(frozen=True, slots=True)
class Calibration:
    """The results, and the machine."""

    date: str
    machine: str
    cores: int | None
    tok_per_s_each: int
    steps: list[Step] = field(default_factory=list)

    def carried(self, limit_ms: float) -> int:
        """The largest number of streams up to which every step stayed within the limit; 0 if the
        first step exceeded it."""
        good = takewhile(lambda step: step.ttft_error_p99_ms <= limit_ms, self.steps)
        most = 0
        for step in good:
            most = max(most, step.streams)

        return most

    def workers_for(
        self, streams: int, tok_per_s_each: float, limit_ms: float = LOOSE_MS
    ) -> int | None:
        """Workers needed for a load: tokens per second / what one worker carries; None if one
        carries nothing.

        One worker carries 400 streams of 50 tok/s, 20 000 tok/s: 2000 streams of 50 tok/s need 5
        workers.
        """
        carried = self.carried(limit_ms) * self.tok_per_s_each
        if not carried:
            return None

        return math.ceil(streams * tok_per_s_each / carried)


def client_rows(
    calibration: Calibration | None, users: int | None, workers: int
) -> list[PreflightRow]:
    """Whether this machine's workers carry this many streams; no row before `llama-load calibrate`
    was run."""
    if calibration is None or users is None:
        return []
    needed = calibration.workers_for(users, calibration.tok_per_s_each)
    if needed is None:
        text = (
            "no load was carried in the last calibration: repeat llama-load calibrate while "
            "nothing else runs"
        )
        return [PreflightRow("client", text, "note")]
    carried = (
        f"{calibration.carried(LOOSE_MS)} streams of {calibration.tok_per_s_each} tok/s "
        "measured accurately per worker"
    )
    if needed <= workers:
        return [PreflightRow("client", carried)]
    return [
        PreflightRow(
            "client", f"{carried}; {users} users need --processes {needed}", "note"
        )
    ]


def save(calibration: Calibration) -> Path:
    """Write it to the file that the preflight reads."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=1))
    return path


def last_calibration() -> Calibration | None:
    """The last calibration of this machine; None without one."""
    try:
        calibration = msgspec.json.decode(_path().read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None

    is_of_this_machine = calibration.machine == platform.node()
    if not is_of_this_machine or calibration.cores != os.cpu_count():
        return None

    return calibration


def _path() -> Path:
    return cache_folder() / "calibration.json"
