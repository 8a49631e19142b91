"""A probe: a load that was tried, and which of its requests met the objectives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.carried_share import CARRIED_SHARE
from llama_load.analysis.statistics.statistics import share_interval
from llama_load.ground.errors import RunError
from llama_load.lab.search.isotonic import error_of
from llama_load.loadgen.schedule.segments import FILLING
from llama_load.run_folder.vocabulary.until import t_of_batches

# Requests that follow each other resemble each other: a probe is resampled in this many batches.
BATCHES = 10
# Requests of --hand-over that are not judged: a warm-up of one per user, and those that keep up the
# load.
BESIDE_PER_USER = 1 + FILLING
# Two probes at one load that differ by less than this share, or by fewer standard errors (of ten
# batches each), are alike: in about 1 % of searches on queues that stay the same two differ by
# more.
LEAST_CHANGE = 0.1
CHANGE_ERRORS = 4.5
USERS = "users"
REQUESTS_PER_S = "requests/s"


@dataclass(frozen=True, slots=True)
class Goal:
    """What is searched for, and with how much.

    The share of requests that must meet all objectives, the most users to try, and the requests of
    a probe of a rate.
    """

    share: float = CARRIED_SHARE
    most_users: int = 4096
    requests_of_rate: int = 1500  # for which the interval was tested


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """A probe to send: `requests` that are judged, at `level` (users, or requests/s).

    `step`: what it is for, in a word or two. `needed`: it may end as soon as this share of its
    requests can no longer meet the objectives; None: it is sent whole.
    """

    level: float
    requests: int
    step: str = ""
    needed: float | None = None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe at `level` (users, or requests/s) measured.

    `good`: whether each judged request met every objective, in order of start; a failed request did
    not. `by_objective`: the share that met each. `fault`: why the probe says nothing of the
    server's limit; empty if it does. `figures`: keys of summary.json, for the curve. `sent`: all
    requests of the probe. `step`: what it was for. `run`: its run folder, below the search's.
    """

    level: float
    good: NDArray[np.bool_]
    sent: int
    fault: str = ""
    by_objective: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    unit: str = USERS
    step: str = ""
    run: str = ""
    is_whole: bool = True  # it was not ended early because its share was out of reach

    @property
    def share(self) -> float:
        """The share of requests that met every objective."""
        return float(self.good.mean()) if len(self.good) else 0.0

    @property
    def counts(self) -> bool:
        """Whether it may bound the capacity."""
        return not self.fault and len(self.good) > 0

    def batches(self) -> NDArray[np.int64]:
        """Requests and good requests of each of ten batches, in order: shape (10, 2)."""
        parts = np.array_split(self.good, min(BATCHES, len(self.good)))
        sums = []
        for part in parts:
            sums.append((len(part), int(part.sum())))

        return np.array(sums, dtype=np.int64)

    @property
    def error(self) -> float:
        """The standard error of the share, from the scatter of the batches.

        Infinite below two requests.
        """
        if len(self.good) < 2:
            return math.inf
        return error_of(self.batches())

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the share; None for less than two requests.

        From the scatter of the batches, because neighbours are alike; but at least as wide as that
        of independent requests: where all are good, batches do not scatter.
        """
        if len(self.good) < 2:
            return None
        reach = t_of_batches() * self.error
        low, high = share_interval(int(self.good.sum()), len(self.good))
        return max(0.0, min(low, self.share - reach)), min(
            1.0, max(high, self.share + reach)
        )

    def as_json(self) -> dict[str, Any]:
        """For search.json and state.json."""
        figures = {}
        for name, value in self.figures.items():
            if np.isfinite(value):
                figures[name] = value

        return {
            "level": self.level,
            "unit": self.unit,
            "step": self.step,
            "run": self.run or None,
            "requests": self.sent,
            "judged": len(self.good),
            "share": self.share if len(self.good) else None,
            "interval": self.interval,
            "by_objective": dict(self.by_objective),
            "fault": self.fault or None,
            "figures": figures,
        }


Probe = Callable[[ProbePlan], ProbeResult]


class BudgetSpentError(RunError):
    """The next probe would exceed --max-time or --max-requests; the text says which."""


def load_text(level: float, unit: str) -> str:
    """For people: 1 user, 1024 users, 7.31 requests/s."""
    if unit != USERS:
        return f"{level:.3g} {unit}"
    if level == 1:
        return "1 user"
    return f"{level:.0f} {unit}"


def try_twice(probe: Probe, plan: ProbePlan, results: list[ProbeResult]) -> ProbeResult:
    """Send a probe, and a second one if the first cannot be used.

    A machine that was busy for a moment must not end a search. Each is appended to `results`; the
    last one is returned.
    """
    results.append(probe(plan))
    if not results[-1].counts:
        results.append(probe(plan))
    return results[-1]


def batches_by_level(probes: Sequence[ProbeResult]) -> dict[float, NDArray[np.int64]]:
    """The batches of the probes that count, by level in ascending order."""
    of_level: dict[float, list[NDArray[np.int64]]] = {}
    for probe in probes:
        if probe.counts:
            of_level.setdefault(probe.level, []).append(probe.batches())
    by_level = {}
    for level in sorted(of_level):
        by_level[level] = np.concatenate(of_level[level])

    return by_level


def by_level(probes: Sequence[ProbeResult]) -> NDArray[np.float64]:
    """Level, requests and good requests of each level, ascending: shape (levels, 3)."""
    rows = []
    for level, batches in batches_by_level(probes).items():
        requests, good = batches.sum(axis=0)
        rows.append((level, requests, good))
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


def changes(probes: Sequence[ProbeResult], unit: str) -> list[str]:
    """Sentences for loads whose first and last whole probe differ.

    By over 10 % of the requests and 4.5 standard errors.
    """
    of_level: dict[float, list[ProbeResult]] = {}
    for probe in probes:
        if probe.counts and probe.is_whole and probe.unit == unit:
            of_level.setdefault(probe.level, []).append(probe)

    sentences = []
    for level in sorted(of_level):
        first = of_level[level][0]
        last = of_level[level][-1]
        chance = CHANGE_ERRORS * math.hypot(first.error, last.error)
        if abs(last.share - first.share) <= max(LEAST_CHANGE, chance):
            continue
        sentences.append(
            f"the server changed during the search: at {load_text(level, unit)} "
            f"{100 * first.share:.0f} % of the requests met the objectives at first "
            f"and {100 * last.share:.0f} % later"
        )
    return sentences


def within_budget(send_probes: Callable[[], None]) -> str:
    """Send the probes of a search. Why they ended before their time; empty if they did not."""
    try:
        send_probes()
    except BudgetSpentError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer of a search.

    `value` 0: no load met the objectives; None: nothing is known. `low` and `high` enclose it with
    95 % confidence; an end is None where nothing bounds it. `why`: what ended the search before its
    time, or keeps an end open; `notes`: further sentences.
    """

    value: float | None
    low: float | None
    high: float | None
    probes: Sequence[ProbeResult]
    why: str = ""
    notes: Sequence[str] = ()

    @property
    def sent(self) -> int:
        """All requests of all probes."""
        return sum(probe.sent for probe in self.probes)
