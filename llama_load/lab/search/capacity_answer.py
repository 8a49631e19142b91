"""The answer of a search in words.

One sentence with the reason, and what else a reader must know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.lab.search.search_probe import USERS, Capacity, ProbeResult
from llama_load.lab.search.state import SearchSettings
from llama_load.run_folder.vocabulary.verdict_words import NOT_COMPARABLE
from llama_load.servers.kinds import kind_named

# Why an objective limits the load, by its metric.
WHY_IT_BINDS = {
    "ttft": "requests wait, or their prompts take too long to process",
    "tpot": "the server shares its speed among all users, so each gets tokens more slowly",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A capacity and what was searched.

    `slots` and `backend` (its kind) are the server's, if it reports them. `against`: why it must
    not be ranked against others.
    """

    settings: SearchSettings
    capacity: Capacity
    slots: int | None = None
    backend: str = ""
    notes: Sequence[str] = ()
    against: Sequence[str] = ()

    @property
    def curve(self) -> list[ProbeResult]:
        """The probes of the searched load in order of their level.

        A closed ladder before a search of rates is not among them.
        """
        probes = []
        for probe in self.capacity.probes:
            if probe.unit == self.settings.unit:
                probes.append(probe)

        return sorted(probes, key=lambda probe: probe.level)

    def number(self, value: float) -> str:
        """20, or 7.31: three digits of a rate."""
        if self.settings.unit == USERS:
            return f"{value:.0f}"
        return f"{value:.3g}"

    @property
    def binding(self) -> str | None:
        """The objective that the fewest requests met above the capacity.

        None if none was missed.
        """
        capacity = self.capacity.value or 0.0
        for probe in self.curve:
            missed = probe.share < self.settings.goal.share
            if probe.counts and missed and probe.level > capacity:
                shares = probe.by_objective
                return min(shares, key=lambda name: shares[name], default=None)
        return None


def sentence(answer: Answer) -> str:
    """`20 users (19 to 21) within TTFT 2 s and TPOT 100 ms; TTFT binds: …`, without a full stop."""
    capacity = answer.capacity
    settings = answer.settings
    number = answer.number

    why = f": {capacity.why}" if capacity.why else ""
    if capacity.value is None:
        return f"no capacity found{why}"

    goals = f"{' and '.join(settings.goals)} for {100 * settings.goal.share:g} % of requests"
    unit: str = settings.unit
    if unit == USERS and capacity.value == 1:
        unit = "user"
    found = f"{number(capacity.value)} {unit}"

    if capacity.value == 0:
        text = f"not even one user is served within {goals}{why}"
    elif capacity.high is None or capacity.low is None:
        text = f"at least {found} within {goals}{why}"
    else:
        interval = f"{number(capacity.low)} to {number(capacity.high)}"
        text = f"{found} ({interval}) within {goals}"
        if capacity.why:
            text += f" (ended early{why})"
    text += _binding_reason(answer)
    if answer.against:
        text += f"; {NOT_COMPARABLE}, see the notes"
    return text


def _binding_reason(answer: Answer) -> str:
    """Which objective binds, and what to do about it."""
    binding = answer.binding
    if binding is None:
        return ""

    objectives = answer.settings.objectives
    objective = next(objective for objective in objectives if objective.text == binding)
    metric = objective.slo.metric
    reason = f"; {objective.name} binds"

    slots = answer.slots
    is_users = answer.settings.unit == USERS
    if metric == "ttft" and is_users and slots is not None:
        capacity = answer.capacity.value or 0
        if capacity >= slots:
            return (
                f"{reason}: the server works on {slots} at once and the others wait; "
                f"try -np {2 * slots}"
            )

    why = WHY_IT_BINDS.get(metric)
    if why is None:
        return reason
    reason += f": {why}"
    flags = kind_named(answer.backend).remedies.get(metric)
    if flags:
        reason += f"; try {flags}"
    return reason


def margins(answer: Answer) -> list[str]:
    """For each objective how far it was reached at the highest load that met all of them."""
    share = answer.settings.goal.share
    highest = _highest_met(answer)
    if highest is None:
        return []

    load = f"{answer.number(highest.level)} {answer.settings.unit}"
    lines = []
    for objective in answer.settings.objectives:
        reached_ms = highest.figures.get(f"reached {objective.text}")
        if reached_ms is None:
            continue
        limit_ms = objective.slo.limit_ms
        used = f"{100 * reached_ms / limit_ms:.0f} % of {limit_ms:g} ms"
        reached = f"p{100 * share:g} is {reached_ms:.4g} ms"
        lines.append(f"{objective.name}: {reached} at {load}, {used}")
    return lines


def _highest_met(answer: Answer) -> ProbeResult | None:
    """The probe of the highest load, up to the capacity, that met all objectives."""
    capacity = answer.capacity.value or 0
    highest = None
    for probe in answer.curve:
        met = probe.share >= answer.settings.goal.share
        if probe.counts and met and probe.level <= capacity:
            highest = probe
    return highest


def knee(answer: Answer) -> ProbeResult | None:
    """The probe with the most output tokens/s x tokens/s of one user
    (`analysis.figures.knee.power`).

    None if it is at an end of the curve.
    """
    powers = []
    probes = []
    for probe in answer.curve:
        power = _power(probe)
        if probe.counts and power:
            powers.append(power)
            probes.append(probe)
    if len(probes) < 3:
        return None

    best = probes[powers.index(max(powers))]
    # The curve is in order of the load.
    if probes[0].level < best.level < probes[-1].level:
        return best
    return None


def speed_of_user(probe: ProbeResult) -> float | None:
    """Output tokens/s that one user sees: 1000 / mean TPOT in ms."""
    tpot_ms = probe.figures.get("mean_tpot_ms")
    return 1e3 / tpot_ms if tpot_ms else None


def _power(probe: ProbeResult) -> float | None:
    total = probe.figures.get("output_throughput")
    per_user = speed_of_user(probe)
    if not total or not per_user:
        return None
    return total * per_user
