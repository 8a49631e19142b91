"""Probes as runs of Locust, with the machinery of sweeps: each is a cell with its run folder, noted when it has ended.

A probe begins on an idle server, since each is a separate process. In a closed loop a warm-up hands its slots over to the judged
requests, and others keep up the load until these have ended (--hand-over); in an open loop the first tenth is not judged.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from llama_load.analysis.run_summary import RunSummary, read_summary
from llama_load.errors import LlamaLoadError
from llama_load.foreign_text import printable
from llama_load.lab.search.search_probe import (
    BESIDE_PER_USER,
    REQUESTS_PER_S,
    USERS,
    BudgetSpentError,
    ProbePlan,
    ProbeResult,
    load_text,
)
from llama_load.lab.search.state import Present, SearchSettings, SearchState
from llama_load.lab.sweep.cells import Cell, expand
from llama_load.lab.sweep.folder import DONE, Ended, SweepFolder
from llama_load.lab.sweep.locustfile_flags import merged
from llama_load.lab.sweep.plan import FlagValues, Load, Plan
from llama_load.lab.sweep.runner import CellRunner
from llama_load.metrics.verdict_words import CLIENT_BOUND, FAILED, INCOMPLETE, NOT_COMPARABLE
from llama_load.options.objectives import judge
from llama_load.run_folder import load_run
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
MOST_CAUSE = 300  # characters
# A probe is not begun if the budget of time leaves less than this.
LEAST_S = 5.0


class RealProbes:
    """Runs probes one after the other. Probes that ended before an interruption are read from their folders, in the same order."""

    def __init__(self, settings: SearchSettings, plan: Plan, folder: SweepFolder, cells: CellRunner, state: SearchState) -> None:
        self._plan, self._folder, self._cells, self._state = plan, folder, cells, state
        self._objectives, self._share, self._budget = settings.objectives, settings.goal.share, settings.budget
        self._number = self._sent = 0
        self._spent_s = 0.0
        self.slots: int | None = None
        self.backend = ""
        self.notes: dict[str, None] = {}

    def users(self, probe: ProbePlan) -> ProbeResult:
        """A closed loop."""
        users = round(probe.level)
        requests = max(probe.requests, 2 * users)
        load: FlagValues = {"u": [users], "num-prompts": [requests], "hand-over": [True]}
        return self._probe(probe, load, most=requests + BESIDE_PER_USER * users, first=0, unit=USERS)

    def rate(self, probe: ProbePlan) -> ProbeResult:
        """An open loop."""
        load: FlagValues = {"request-rate": [f"{probe.level:.6g}"], "num-prompts": [probe.requests]}
        return self._probe(probe, load, most=probe.requests, first=round(OPEN_WARMUP * probe.requests), unit=REQUESTS_PER_S)

    def _probe(self, probe: ProbePlan, load: FlagValues, *, most: int, first: int, unit: str) -> ProbeResult:
        """`most`: requests that it may send; `first`: measured ones that are not judged."""
        if probe.needed is not None and not any(objective.workload for objective in self._objectives):
            load = load | {"end-below": [probe.needed]}
        cell = self._cell(load)
        self._number += 1
        run = self._folder.run_of(cell)
        entry = self._folder.ended.get(cell.key)
        if entry is None or entry.status != DONE:  # a probe that failed before an interruption gets a second chance
            run_name = run.relative_to(self._folder.path).as_posix()
            self._state.began(Present(self._number, probe.step, probe.level, unit, most, run_name, time.time()))
            entry = self._run(cell, most)
        self._spent_s += entry.took_s
        for note in entry.notes:
            self.notes[note] = None
        if entry.status != DONE:
            probe_result = ProbeResult(probe.level, np.zeros(0, dtype=np.bool_), most, fault=entry.reason)
        else:
            probe_result = self._read(probe.level, unit, run, most=most, first=first)
        probe_result = replace(probe_result, unit=unit, step=probe.step)
        self._sent += probe_result.sent
        self._state.ended(probe_result, self._spent_s)
        return probe_result

    def _cell(self, load: FlagValues) -> Cell:
        """The cell of this probe: prompts of its own, by the seed."""
        shown = [(name, load[name][0]) for name in ("u", "request-rate", "num-prompts") if name in load]
        label = ", ".join(f"{name} {value}" for name, value in shown)
        plan = replace(self._plan, loads=(Load(f"probe {self._number + 1}: {label}", merged(self._plan.loads[0].flags, load)),))
        return expand(replace(plan, seed=self._plan.seed + self._number))[0]

    def _run(self, cell: Cell, most: int) -> Ended:
        left_s = self._left_s(most)
        entry = self._cells.run(cell, limit_s=left_s)
        if left_s is not None and entry.took_s >= left_s:
            raise BudgetSpentError(f"--max-time {self._budget.time_s:g} s was over in the middle of a probe")
        return entry

    def _left_s(self, most: int) -> float | None:
        """Seconds left for the next probe. BudgetSpentError: too few, or too few requests."""
        limit = self._budget.requests
        if limit is not None and self._sent + most > limit:
            raise BudgetSpentError(f"--max-requests {limit} leaves no room for a probe of {quantity(most, 'request')}")
        if self._budget.time_s is None:
            return None
        left_s = self._budget.time_s - self._spent_s
        if left_s < LEAST_S:
            raise BudgetSpentError(f"--max-time {self._budget.time_s:g} s is over")
        return left_s

    def _read(self, level: float, unit: str, folder: Path, *, most: int, first: int) -> ProbeResult:
        """What a run measured."""
        try:
            run = load_run(folder)
            summary = read_summary(folder, MOST_SUMMARY_BYTES)
        except (LlamaLoadError, OSError, ValueError) as error:
            return ProbeResult(
                level, np.zeros(0, dtype=np.bool_), most, fault=f"its run cannot be read: {printable(str(error), 200)}"
            )
        judged = judge(run.records.measured(), self._objectives, self._share)
        slots = [count for target in run.manifest.targets if isinstance(count := target.get("slots"), int)]
        self.slots = sum(slots) if slots and len(slots) == len(run.manifest.targets) else None
        self.backend = run.manifest.backend
        figures = summary.numbers(*FIGURES)
        figures |= {f"reached {name}": value for name, value in judged.reached_ms.items() if value is not None}
        words = summary.words
        good = judged.good[first:]
        headline = printable(summary.headline, MOST_CAUSE)
        useless = next((word for word in USELESS if word in words), None)
        if useless == CLIENT_BOUND and len(good) and good.mean() >= self._share:
            useless = None  # a slow client makes latencies longer: the server meets the objectives all the more
            self.notes["some probes were CLIENT-BOUND; those that met the objectives all the same count"] = None
        if run.manifest.shared_machine:
            self.notes["measured on a shared machine: other programs on it belong to the answer (--shared-machine)"] = None
        fault = "" if useless is None else f"{USELESS[useless]} ({cause_of(summary, useless)})"
        if not fault and words[:1] == [NOT_COMPARABLE] and run.manifest.ended_below is None:
            self.notes[f"at {load_text(level, unit)}: {headline}"] = None
        is_whole = run.manifest.ended_below is None
        return ProbeResult(level, good, len(run.records), fault, judged.shares, figures, unit, is_whole=is_whole)


def cause_of(summary: RunSummary, word: str) -> str:
    """The text of the first check that gave the run this word, which need not be the gravest; without one the headline."""
    for check in [] if summary.verdict is None else summary.verdict.checks:
        if check.word == word and not check.ok:
            return printable(check.text, MOST_CAUSE)
    return printable(summary.headline, MOST_CAUSE)
