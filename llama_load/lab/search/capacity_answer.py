"""The answer of a search in words: one sentence with the reason, and what else a reader must know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.lab.search.search_probe import USERS, Capacity, ProbeResult
from llama_load.lab.search.state import SearchSettings
from llama_load.targets.servers import kind_named


@dataclass(frozen=True, slots=True)
class Answer:
    """A capacity and what was searched. `slots` and `backend` (its kind) are the server's, if it reports them."""

    settings: SearchSettings
    capacity: Capacity
    slots: int | None = None
    backend: str = ""
    notes: Sequence[str] = ()

    @property
    def curve(self) -> list[ProbeResult]:
        """The probes of the searched load in order of their level; a closed ladder before a search of rates is not among them."""
        probes = [probe for probe in self.capacity.probes if probe.unit == self.settings.unit]
        return sorted(probes, key=lambda probe: probe.level)

    def number(self, value: float) -> str:
        """20, or 7.31: three digits of a rate."""
        return f"{value:.0f}" if self.settings.unit == USERS else f"{value:.3g}"

    @property
    def binding(self) -> str | None:
        """The objective that the fewest requests met above the capacity; None if none was missed."""
        value = self.capacity.value or 0.0
        beyond = [probe for probe in self.curve if probe.counts and probe.level > value and probe.share < self.settings.goal.share]
        if not beyond:
            return None
        shares = beyond[0].by_objective
        return min(shares, key=lambda name: shares[name]) if shares else None


def sentence(answer: Answer) -> str:
    """`20 users (19 to 21) within TTFT 2 s and TPOT 100 ms; TTFT binds: …`, without a full stop."""
    capacity, settings, number = answer.capacity, answer.settings, answer.number
    goals = f"{' and '.join(settings.goals)} for {100 * settings.goal.share:g} % of requests"
    why = f": {capacity.why}" if capacity.why else ""
    if capacity.value is None:
        return f"no capacity found{why}"
    noun = "user" if settings.unit == USERS and capacity.value == 1 else settings.unit
    if capacity.value == 0:
        text = f"not even one user is served within {goals}{why}"
    elif capacity.high is None or capacity.low is None:
        text = f"at least {number(capacity.value)} {noun} within {goals}{why}"
    else:
        text = f"{number(capacity.value)} {noun} ({number(capacity.low)} to {number(capacity.high)}) within {goals}"
        text += f" (ended early{why})" if capacity.why else ""
    return text + _reason(answer)


def _reason(answer: Answer) -> str:
    """Which objective binds, and what to do about it."""
    binding = answer.binding
    if binding is None:
        return ""
    objective = next(objective for objective in answer.settings.objectives if objective.text == binding)
    reason, metric = f"; {objective.name} binds", objective.slo.metric
    slots = answer.slots
    if metric == "ttft" and slots is not None and answer.settings.unit == USERS and (answer.capacity.value or 0) >= slots:
        return f"{reason}: the server works on {slots} at once and the others wait; try -np {2 * slots}"
    why = {
        "ttft": "requests wait, or their prompts take too long to process",
        "tpot": "the server shares its speed among all users, so each gets tokens more slowly",
    }.get(metric)
    flags = kind_named(answer.backend).remedies.get(metric)
    return f"{reason}: {why}" + (f"; try {flags}" if flags else "") if why else reason


def margins(answer: Answer) -> list[str]:
    """For each objective how far it was reached at the highest load that met all of them."""
    met = [
        probe
        for probe in answer.curve
        if probe.counts and probe.share >= answer.settings.goal.share and probe.level <= (answer.capacity.value or 0)
    ]
    if not met:
        return []
    lines = []
    for objective in answer.settings.objectives:
        reached = met[-1].figures.get(f"reached {objective.text}")
        if reached is not None:
            used = f"{100 * reached / objective.slo.limit_ms:.0f} % of {objective.slo.limit_ms:g} ms"
            load = f"{answer.number(met[-1].level)} {answer.settings.unit}"
            lines.append(f"{objective.name}: p{100 * answer.settings.goal.share:g} is {reached:.4g} ms at {load}, {used}")
    return lines


def knee(answer: Answer) -> ProbeResult | None:
    """The probe with the most output tokens/s x tokens/s of one user (`metrics.knee.power`), if it is at no end of the curve."""
    known = [(power, probe) for probe in answer.curve if probe.counts and (power := _power(probe))]
    if len(known) < 3:
        return None
    best = max(known, key=lambda probe: probe[0])[1]
    levels = [probe.level for _, probe in known]
    return best if min(levels) < best.level < max(levels) else None


def speed_of_user(probe: ProbeResult) -> float | None:
    """Output tokens/s that one user sees: 1000 / mean TPOT in ms."""
    tpot_ms = probe.figures.get("mean_tpot_ms")
    return 1e3 / tpot_ms if tpot_ms else None


def _power(probe: ProbeResult) -> float | None:
    total, per_user = probe.figures.get("output_throughput"), speed_of_user(probe)
    return total * per_user if total and per_user else None
