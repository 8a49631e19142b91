"""Probes as runs of Locust, with the machinery of sweeps: each is a cell with its run folder, noted when it has ended.

A probe begins on an idle server, since each is a separate process: in a closed loop its first requests, one a user, are not
judged; in an open loop the first tenth is not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from llama_load.errors import LlamaLoadError
from llama_load.experiments.search.objectives import Objective, judge
from llama_load.experiments.search.probe import REQUESTS_PER_S, USERS, BudgetSpentError, ProbeResult
from llama_load.experiments.sweep.cells import Cell, expand
from llama_load.experiments.sweep.folder import DONE, Ended, SweepFolder
from llama_load.experiments.sweep.locust_flags import merged
from llama_load.experiments.sweep.plan import FlagValues, Load, Plan
from llama_load.experiments.sweep.quality import QualityOf
from llama_load.experiments.sweep.runner import Watcher, run_one
from llama_load.experiments.sweep.running_server import RunningServer
from llama_load.foreign_text import printable
from llama_load.metrics.check import CLIENT_BOUND, FAILED, INCOMPLETE, NOT_COMPARABLE
from llama_load.runs import load_run
from llama_load.units import quantity

# A probe with one of these words says nothing of the server's limit.
USELESS = {
    INCOMPLETE: "the probe was cut short",
    FAILED: "requests failed",
    CLIENT_BOUND: "the client was too slow, so this is your client's limit and not the server's",
}
FIGURES = ("output_throughput", "request_throughput", "mean_e2el_ms", "mean_ttft_ms", "mean_tpot_ms", "duration")
OPEN_WARMUP = 0.1  # of the requests of an open loop
MOST_SUMMARY_BYTES = 64 << 20
# A probe is not begun if the budget of time leaves less than this.
LEAST_S = 5.0


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard limits of a search, server starts included; None: no limit."""

    time_s: float | None = None
    requests: int | None = None


class RealProbes:
    """Runs probes one after the other. Probes that ended before an interruption are read from their folders, in the same order."""

    def __init__(
        self, *, plan: Plan, folder: SweepFolder, objectives: tuple[Objective, ...], share: float, budget: Budget, watcher: Watcher
    ) -> None:
        self._plan, self._folder, self._objectives, self._share = plan, folder, objectives, share
        self._budget, self._watcher = budget, watcher
        self._server = RunningServer(folder.servers, plan.after_a_cell, empties_cache=False)
        self._quality = QualityOf(None, folder)
        self._number = self._sent = 0
        self._spent_s = 0.0
        self.slots: int | None = None
        self.notes: dict[str, None] = {}

    def users(self, level: float, requests: int) -> ProbeResult:
        """A closed loop of so many users."""
        users = round(level)
        return self._probe(level, {"u": [users], "num-prompts": [requests + users]}, users, USERS)

    def rate(self, level: float, requests: int) -> ProbeResult:
        """An open loop."""
        return self._probe(
            level, {"request-rate": [f"{level:.6g}"], "num-prompts": [requests]}, round(OPEN_WARMUP * requests), REQUESTS_PER_S
        )

    def close(self) -> None:
        """Stop the server, if the search started it."""
        self._server.stop()

    def _probe(self, level: float, load: FlagValues, first: int, unit: str) -> ProbeResult:
        sent = int(load["num-prompts"][0])
        cell = self._cell(load)
        self._number += 1
        entry = self._folder.ended.get(cell.key)
        if entry is None:
            entry = self._run(cell, sent)
        self._sent += sent
        self._spent_s += entry.took_s
        for note in entry.notes:
            self.notes[note] = None
        if entry.status != DONE:
            return ProbeResult(level, np.zeros(0, dtype=np.bool_), sent, fault=entry.reason, unit=unit)
        return replace(self._read(level, self._folder.run_of(cell), sent, first), unit=unit)

    def _cell(self, load: FlagValues) -> Cell:
        """The cell of this probe: prompts of its own, by the seed."""
        label = ", ".join(f"{name} {values[0]}" for name, values in load.items())
        plan = replace(self._plan, loads=(Load(f"probe {self._number + 1}: {label}", merged(self._plan.loads[0].flags, load)),))
        return expand(replace(plan, seed=self._plan.seed + self._number))[0]

    def _run(self, cell: Cell, sent: int) -> Ended:
        left_s = self._left_s(sent)
        self._folder.put_aside(cell)
        plan = self._plan if left_s is None else replace(self._plan, cell_time_limit_s=left_s)
        began = time.monotonic()
        entry = run_one(cell, plan, self._folder, server=self._server, quality=self._quality, watcher=self._watcher)
        self._watcher.ended(cell, entry)
        if left_s is not None and time.monotonic() - began >= left_s:
            raise BudgetSpentError(f"--max-time {self._budget.time_s:g} s was over in the middle of a probe")
        self._folder.note(entry)
        return entry

    def _left_s(self, sent: int) -> float | None:
        """Seconds left for the next probe. BudgetSpentError: too few, or too few requests."""
        most = self._budget.requests
        if most is not None and self._sent + sent > most:
            raise BudgetSpentError(f"--max-requests {most} leaves no room for a probe of {quantity(sent, 'request')}")
        if self._budget.time_s is None:
            return None
        left_s = self._budget.time_s - self._spent_s
        if left_s < LEAST_S:
            raise BudgetSpentError(f"--max-time {self._budget.time_s:g} s is over")
        return left_s

    def _read(self, level: float, folder: Path, sent: int, first: int) -> ProbeResult:
        """What a run measured."""
        try:
            run = load_run(folder)
            with (folder / "summary.json").open("rb") as file:
                summary: dict[str, Any] = msgspec.json.decode(file.read(MOST_SUMMARY_BYTES))
        except (LlamaLoadError, OSError, msgspec.DecodeError) as error:
            return ProbeResult(
                level, np.zeros(0, dtype=np.bool_), sent, fault=f"its run cannot be read: {printable(str(error), 200)}"
            )
        judged = judge(run.records.measured(), self._objectives, self._share)
        slots = [each for target in run.manifest.targets if isinstance(each := target.get("slots"), int)]
        self.slots = sum(slots) if slots and len(slots) == len(run.manifest.targets) else None
        figures = {name: float(summary[name]) for name in FIGURES if isinstance(summary.get(name), int | float)}
        figures |= {f"reached {name}": value for name, value in judged.reached_ms.items() if value is not None}
        verdict: Mapping[str, Any] = (summary.get("llama_load") or {}).get("verdict") or {}
        words = list(verdict.get("words") or [])
        good = judged.good[first:]
        headline = printable(str(verdict.get("headline") or ""), 200)
        useless = next((word for word in USELESS if word in words), None)
        if useless == CLIENT_BOUND and len(good) and good.mean() >= self._share:
            useless = None  # a slow client makes latencies longer: the server meets the objectives all the more
            self.notes["some probes were CLIENT-BOUND; those that met the objectives all the same count"] = None
        fault = "" if useless is None else f"{USELESS[useless]} ({headline})"
        if not fault and words[:1] == [NOT_COMPARABLE]:
            self.notes[f"at {level:g}: {headline}"] = None
        return ProbeResult(level, good, sent, fault, judged.shares, figures)
