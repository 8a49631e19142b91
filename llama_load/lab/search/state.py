"""state.json: how far a search is, for the web page and other programs.

It is rewritten whole when a probe begins or ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from llama_load.ground.units import quantity
from llama_load.ground.version import __version__
from llama_load.lab.search.search_probe import (
    REQUESTS_PER_S,
    USERS,
    Goal,
    ProbeResult,
    by_level,
    load_text,
)
from llama_load.lab.sweep.folder import write_json
from llama_load.lab.sweep.grammar import RATE
from llama_load.loadgen.options.objectives import Objective

STATE = "state.json"
RUNNING = "running"
ENDED = "ended"
INTERRUPTED = "interrupted"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard limits of a search, server starts included; None: no limit."""

    time_s: float | None = None
    requests: int | None = None


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What is searched.

    `vary`: concurrency or rate; `serve`: the server's command or URL; `locust`: arguments.
    """

    vary: str
    serve: str
    locust: Sequence[str]
    objectives: tuple[Objective, ...]
    goal: Goal = field(default_factory=Goal)
    seed: int = 0
    budget: Budget = field(default_factory=Budget)

    @property
    def unit(self) -> str:
        """Of the capacity."""
        return REQUESTS_PER_S if self.vary == RATE else USERS

    @property
    def goals(self) -> list[str]:
        """The objectives in words."""
        return [objective.text for objective in self.objectives]


@dataclass(frozen=True, slots=True)
class Present:
    """The probe that runs now. `run`: its run folder, below the search's; `began_s`: Unix time."""

    number: int  # from 1
    step: str
    level: float
    unit: str
    requests: int
    run: str
    began_s: float


class SearchState:
    """The state of one search, kept in its folder."""

    def __init__(
        self,
        folder: Path,
        settings: SearchSettings,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`say` gets a sentence for each probe that begins or ends now."""
        self._file = folder / STATE
        self._settings = settings
        self._say = say
        self._began_s = time.time()
        self._present: Present | None = None
        self._probes: list[ProbeResult] = []
        self._spent_s = 0.0
        self._write(RUNNING, "the first probe begins")

    def began(self, probe: Present) -> None:
        """A probe is sent."""
        self._present = probe
        load = load_text(probe.level, probe.unit)
        sentence = f"probe {probe.number}, {probe.step}: {load}"
        self._write(RUNNING, sentence)
        self._say(f"{sentence}, {self._how_long(probe)}")

    def _how_long(self, probe: Present) -> str:
        """How many requests a probe may send, and how long that takes at the rate of the last."""
        text = f"up to {quantity(probe.requests, 'request')}"
        last = self._probes[-1] if self._probes else None
        if last is None or last.unit != probe.unit:
            return text

        rate_rps = last.figures.get("request_throughput")
        return f"{text}, {probe.requests / rate_rps:.0f} s" if rate_rps else text

    def ended(self, probe: ProbeResult, spent_s: float) -> None:
        """A probe has ended, now or before an interruption.

        `spent_s`: the time that the search has taken so far.
        """
        sent_now = self._present
        self._present = None
        self._spent_s = spent_s
        self._probes.append(probe)

        outcome = probe.fault
        if probe.counts:
            outcome = f"{100 * probe.share:.1f} % of the requests met all objectives"
        sentence = f"{load_text(probe.level, probe.unit)}: {outcome}"
        self._write(RUNNING, sentence)
        if sent_now is not None:
            took_s = time.time() - sent_now.began_s
            title = f"probe {sent_now.number}, {sent_now.step}"
            self._say(f"{title}: {sentence} ({took_s:.0f} s)")

    def over(self, state: str, sentence: str) -> None:
        """The search has ended, with its answer or the reason."""
        self._present = None
        self._write(state, sentence)

    def bounds(self) -> tuple[float | None, float | None]:
        """The highest load that met the objectives, and the lowest above it that did not.

        By the probes so far; None: none yet.
        """
        probes = [probe for probe in self._probes if probe.unit == self._settings.unit]
        low = None
        high = None
        # In ascending order of the load.
        for level, requests, good in by_level(probes).tolist():
            if good / requests >= self._settings.goal.share:
                low = level
                high = None
            elif high is None:
                high = level
        return low, high

    def _write(self, state: str, sentence: str) -> None:
        low, high = self.bounds()
        spent = {
            "time_s": self._spent_s,
            "requests": sum(probe.sent for probe in self._probes),
        }
        value: dict[str, Any] = {
            "version": __version__,
            "state": state,
            "pid": os.getpid(),
            "sentence": sentence,
            "vary": self._settings.vary,
            "unit": self._settings.unit,
            "share": self._settings.goal.share,
            "objectives": self._settings.goals,
            "began_s": self._began_s,
            "updated_s": time.time(),
            "limits": asdict(self._settings.budget),
            "spent": spent,
            "low": low,
            "high": high,
            "present": None if self._present is None else asdict(self._present),
            "probes": [probe.as_json() for probe in self._probes],
        }
        write_json(self._file, value)
