"""What `llama-load calibrate` found of this machine, and what it means for a run."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from llama_load.runs import PreflightRow
from llama_load.serving.model_maker import cache_folder

TOK_PER_S = 50  # of each stream: what one user of a good server sees


LOOSE_MS = 5.0


@dataclass(frozen=True, slots=True)
class Step:
    """One load and what came of it: p99 of the absolute TTFT error, ms; the client's core, 0 to 1; the share of all cores that
    other programs used, None where it is not known."""

    streams: int
    ttft_error_p99_ms: float
    core_busy: float | None
    others_busy: float | None = None


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found, and where."""

    date: str
    machine: str
    cores: int | None
    tok_per_s_each: int
    steps: list[Step] = field(default_factory=list)

    def carried(self, limit_ms: float) -> int:
        """The most streams up to which every step stayed within the limit; 0 if not even the first did."""
        good = 0
        for step in self.steps:
            if step.ttft_error_p99_ms > limit_ms:
                break
            good = step.streams
        return good

    def workers_for(self, streams: int, tok_per_s_each: float, limit_ms: float = LOOSE_MS) -> int | None:
        """How many workers a load needs: tokens per second / what one worker carries; None if one carries nothing.

        400 streams of 50 tok/s carried are 20 000 tok/s; 2000 streams of 50 tok/s need 5 workers.
        """
        carried = self.carried(limit_ms) * self.tok_per_s_each
        return math.ceil(streams * tok_per_s_each / carried) if carried else None


def client_rows(calibration: Calibration | None, users: int | None, workers: int) -> list[PreflightRow]:
    """Whether this machine's workers carry so many streams, if that was ever measured (`llama-load calibrate`)."""
    if calibration is None or users is None:
        return []
    needed = calibration.workers_for(users, calibration.tok_per_s_each)
    if needed is None:
        text = (
            "the last calibration found no load that this machine carries: repeat it while nothing else runs (llama-load calibrate)"
        )
        return [PreflightRow("client", text, "note")]
    carried = f"a worker here carries {calibration.carried(LOOSE_MS)} streams of {calibration.tok_per_s_each} tok/s truthfully"
    if needed <= workers:
        return [PreflightRow("client", carried)]
    return [PreflightRow("client", f"{carried}: {workers} may be too few for {users}, use {needed} (--processes)", "note")]


def save(calibration: Calibration) -> Path:
    """Write it where the preflight looks for it."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=1))
    return path


def last_calibration() -> Calibration | None:
    """The last calibration of this machine, if there is one."""
    try:
        found = msgspec.json.decode(_path().read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.machine == platform.node() and found.cores == os.cpu_count() else None


def _path() -> Path:
    return cache_folder() / "calibration.json"
