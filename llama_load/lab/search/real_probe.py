"""Probes as runs of Locust, with the machinery of sweeps.

Each is a cell with its run folder, noted when it has ended. A probe begins on an idle server, since
each is a separate process. In a closed loop a warm-up hands its slots over to the judged requests,
and others keep up the load until these have ended (--hand-over); in an open loop the first tenth is
not judged.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.comparison.compared_metrics import Metric
from llama_load.analysis.comparison.reasons import reasons_against
from llama_load.analysis.comparison.run_folder import folder_run
from llama_load.analysis.comparison.side import Side
from llama_load.analysis.results.run_summary import RunSummary, read_summary
from llama_load.ground.errors import LlamaLoadError
from llama_load.ground.units import quantity
from llama_load.lab.search.prompt_lengths import note_of_lengths
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
from llama_load.loadgen.options.objectives import judge
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import load_run
from llama_load.run_folder.manifest import Manifest
from llama_load.run_folder.vocabulary.verdict_words import (
    CLIENT_BOUND,
    FAILED,
    INCOMPLETE,
)

# A probe with one of these words says nothing of the server's limit.
USELESS = {
    INCOMPLETE: "the probe was cut short",
    FAILED: "requests failed",
    CLIENT_BOUND: "the client was too slow, so this is your client's limit and not the server's",
}
FIGURES = (
    "output_throughput",
    "request_throughput",
    "mean_e2el_ms",
    "mean_ttft_ms",
    "mean_tpot_ms",
    "duration",
)
OPEN_WARMUP = 0.1  # of the requests of an open loop
MOST_SUMMARY_BYTES = 64 << 20
MOST_CAUSE = 300  # characters
# A probe is not begun if the budget of time leaves less than this.
LEAST_S = 5.0


class RealProbes:
    """Runs probes one after the other.

    Probes that ended before an interruption are read from their folders, in the same order.
    """

    def __init__(
        self,
        settings: SearchSettings,
        plan: Plan,
        folder: SweepFolder,
        cells: CellRunner,
        state: SearchState,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._cells = cells
        self._state = state
        self._objectives = settings.objectives
        self._share = settings.goal.share
        self._budget = settings.budget
        self._number = 0
        self._sent = 0
        self._spent_s = 0.0
        self.slots: int | None = None
        self.backend = ""
        self.notes: dict[str, None] = {}  # in order, each once
        self.against: dict[
            str, None
        ] = {}  # why the answer must not be ranked, each once
        self._is_noted = False  # that the lengths of prompts differ

    def users(self, probe: ProbePlan) -> ProbeResult:
        """A closed loop."""
        users = round(probe.level)
        requests = max(probe.requests, 2 * users)
        most = requests + BESIDE_PER_USER * users
        load: FlagValues = {
            "u": [users],
            "num-prompts": [requests],
            "hand-over": [True],
        }
        return self._probe(probe, load, most=most, first=0, unit=USERS)

    def rate(self, probe: ProbePlan) -> ProbeResult:
        """An open loop."""
        most = probe.requests
        first = round(OPEN_WARMUP * most)
        load: FlagValues = {
            "request-rate": [f"{probe.level:.6g}"],
            "num-prompts": [most],
        }
        return self._probe(probe, load, most=most, first=first, unit=REQUESTS_PER_S)

    def _probe(
        self, probe: ProbePlan, load: FlagValues, *, most: int, first: int, unit: str
    ) -> ProbeResult:
        """`most`: requests that it may send; `first`: measured ones that are not judged."""
        if probe.needed is not None and self._can_end_early():
            load = load | {"end-below": [probe.needed]}
        cell = self._cell(load)
        self._number += 1

        folder = self._folder.run_of(cell)
        name = folder.relative_to(self._folder.path).as_posix()
        entry = self._folder.ended.get(cell.key)
        # a probe that failed before an interruption gets a second chance
        if entry is None or entry.status != DONE:
            present = Present(
                self._number, probe.step, probe.level, unit, most, name, time.time()
            )
            self._state.began(present)
            entry = self._run(cell, most)
        self._spent_s += entry.took_s
        for note in entry.notes:
            self._note(note)

        if entry.status == DONE:
            result = self._read(probe.level, unit, folder, most=most, first=first)
        else:
            result = _useless(probe.level, most, entry.reason)
        result = replace(result, unit=unit, step=probe.step, run=name)
        self._sent += result.sent
        self._state.ended(result, self._spent_s)
        return result

    def _can_end_early(self) -> bool:
        """A run judges its requests while it goes on only by objectives of all workloads."""
        return not any(objective.workload for objective in self._objectives)

    def _note(self, text: str) -> None:
        self.notes[text] = None

    def _cell(self, load: FlagValues) -> Cell:
        """The cell of this probe: prompts of its own, by the seed."""
        shown = []
        for name in ("u", "request-rate", "num-prompts"):
            if name in load:
                shown.append(f"{name} {load[name][0]}")

        title = f"probe {self._number + 1}: {', '.join(shown)}"
        flags = merged(self._plan.loads[0].flags, load)
        seed = self._plan.seed + self._number
        plan = replace(self._plan, loads=(Load(title, flags),), seed=seed)
        return expand(plan)[0]

    def _run(self, cell: Cell, most: int) -> Ended:
        left_s = self._left_s(most)
        entry = self._cells.run(cell, limit_s=left_s)
        if left_s is not None and entry.took_s >= left_s:
            raise BudgetSpentError(
                f"--max-time {self._budget.time_s:g} s was over in the middle of a probe"
            )
        return entry

    def _left_s(self, most: int) -> float | None:
        """Seconds left for the next probe. BudgetSpentError: too few, or too few requests."""
        limit = self._budget.requests
        if limit is not None and self._sent + most > limit:
            raise BudgetSpentError(
                f"--max-requests {limit} leaves no room for a probe of {quantity(most, 'request')}"
            )
        if self._budget.time_s is None:
            return None

        left_s = self._budget.time_s - self._spent_s
        if left_s < LEAST_S:
            raise BudgetSpentError(f"--max-time {self._budget.time_s:g} s is over")
        return left_s

    def _read(
        self, level: float, unit: str, folder: Path, *, most: int, first: int
    ) -> ProbeResult:
        """What a run measured."""
        try:
            run = load_run(folder)
            summary = read_summary(folder, MOST_SUMMARY_BYTES)
        except (LlamaLoadError, OSError, ValueError) as error:
            reason = printable(str(error), 200)
            return _useless(level, most, f"its run cannot be read: {reason}")

        self.slots = _slots_of(run.manifest)
        self.backend = run.manifest.backend
        if run.manifest.shared_machine:
            self._note(
                "measured on a shared machine: other programs on it belong to the answer "
                "(--shared-machine)"
            )

        measured = run.records.measured()
        note = note_of_lengths(measured)
        if note is not None and not self._is_noted:
            self._is_noted = True
            self._note(note)

        judged = judge(measured, self._objectives, self._share)
        good = judged.good[first:]
        figures = summary.numbers(*FIGURES)
        for name, reached_ms in judged.reached_ms.items():
            if reached_ms is not None:
                figures[f"reached {name}"] = reached_ms

        fault = self._fault(summary, good)
        is_whole = run.manifest.ended_below is None
        if not fault and is_whole:
            self._add_reasons(folder, load_text(level, unit))
        return ProbeResult(
            level,
            good,
            len(run.records),
            fault,
            judged.shares,
            figures,
            unit,
            is_whole=is_whole,
        )

    def _add_reasons(self, folder: Path, load: str) -> None:
        """Note why `compare` would not rank this probe by the latencies of the objectives."""
        measured = folder_run(folder)
        # its probes that count are a lower bound, and right as such
        words = tuple(word for word in measured.words if word != CLIENT_BOUND)
        side = Side(load, [replace(measured, words=words)])
        reasons = reasons_against([side])

        for objective in self._objectives:
            name = objective.slo.metric
            metric = Metric(name, name, "ms", "", latency=name)
            for reason in reasons:
                if reason.concerns(metric):
                    self.against[printable(reason.text, MOST_CAUSE)] = None

    def _fault(self, summary: RunSummary, good: NDArray[np.bool_]) -> str:
        """Why a run says nothing of the server's limit; empty if it does."""
        word = next((word for word in USELESS if word in summary.words), None)
        is_met = bool(len(good)) and good.mean() >= self._share
        if word is None and summary.disturbed and not is_met:
            return f"the server was slowed down: {summary.disturbed}"
        if word is None:
            return ""
        if word == CLIENT_BOUND and is_met:
            # a slow client makes latencies longer: the server meets the objectives all the more
            self._note(
                "some probes were CLIENT-BOUND; those that met the objectives all the same count"
            )
            return ""
        return f"{USELESS[word]} ({cause_of(summary, word)})"


def _useless(level: float, sent: int, fault: str) -> ProbeResult:
    """A probe without judged requests."""
    return ProbeResult(level, np.zeros(0, dtype=np.bool_), sent, fault=fault)


def _slots_of(manifest: Manifest) -> int | None:
    """The slots of all servers; None if one does not report them."""
    total = 0
    for target in manifest.targets:
        slots = target.get("slots")
        if not isinstance(slots, int):
            return None
        total += slots
    return total if manifest.targets else None


def cause_of(summary: RunSummary, word: str) -> str:
    """The text of the first check that gave the run this word.

    It need not be the gravest. Without such a check the headline.
    """
    if summary.verdict is not None:
        for check in summary.verdict.checks:
            if check.word == word and not check.ok:
                return printable(check.text, MOST_CAUSE)
    return printable(summary.headline, MOST_CAUSE)
