"""Compares sides, each with one run or several.

Which differences are real, which sides are best, and what must not be ranked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from llama_load.analysis.comparison.change_intervals import (
    POWERS,
    Ratio,
    RatioWithZeros,
    holm,
)
from llama_load.analysis.comparison.common_requests import on_common_requests
from llama_load.analysis.comparison.compared_metrics import (
    Metric,
    metric_of,
    metrics_in,
)
from llama_load.analysis.comparison.gates import Gate, GateResult, judge_gates
from llama_load.analysis.comparison.llama_bench import BenchTest
from llama_load.analysis.comparison.one_formula import by_one_formula
from llama_load.analysis.comparison.order import against_order
from llama_load.analysis.comparison.reasons import (
    RATES,
    Reason,
    is_against,
    reasons_against,
)
from llama_load.analysis.comparison.remedy import next_commands
from llama_load.analysis.comparison.setup import Difference, differences
from llama_load.analysis.comparison.side import (
    MeasuredRun,
    Side,
    is_thin,
    ratio_between,
    runs_of,
)
from llama_load.analysis.comparison.warnings import copies_in, warnings_about
from llama_load.analysis.statistics.statistics import CONFIDENCE

# What is known of a difference from the first side.
BETTER = "better"
WORSE = "worse"
NOT_PROVEN = "no difference proven"
ONE_RUN = "one run a side: not proven"
NO_TURNS = "not taken in turns: not proven"
NOT_RANKED = "not ranked"
MISSING = "not measured"
TOO_FEW = "too few values"  # for this percentile
# Figures of the table with a row per side, in its order.
HEADLINE = (
    "duration",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "mean_ttft_ms",
    "mean_tpot_ms",
)


@dataclass(frozen=True, slots=True)
class Change:
    """A metric of one side against the first side.

    `ratio`: theirs / first; `interval`: its 95 % confidence interval from the scatter between
    repeats; `p`: two-sided, adjusted for the number of metrics and sides judged; `found_from`: the
    least ratios that would have been found with 95 % and with 80 % (`Ratio.found_from`). None where
    not known.
    """

    outcome: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    found_from: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The sides, the first of which is the base, and what is known of them.

    The metrics that they have; and per metric `changes` (by key and side, without the base) and the
    sides that are `best`.
    """

    sides: Sequence[Side]
    metrics: Sequence[Metric]
    changes: Mapping[tuple[str, int], Change]
    best: Mapping[str, frozenset[int]]
    reasons: Sequence[Reason]
    warnings: Sequence[str]
    differences: Sequence[Difference]
    gates: Sequence[GateResult] = ()

    @property
    def has_repeats(self) -> bool:
        """Whether a difference can be proven: two sides have two runs or more."""
        repeated = 0
        for side in self.sides:
            if len(side.runs) > 1:
                repeated += 1

        return repeated > 1

    @property
    def next_commands(self) -> list[str]:
        """The lines of a shell command that would make the sides comparable or prove a difference.

        Empty where not needed.
        """
        base, *others = self.sides
        took_turns = not any(against_order(base, side) for side in others)
        is_proof = self.has_repeats and took_turns

        return next_commands(self.sides, self.reasons, is_proof=is_proof)

    def is_unreliable(self, side: int) -> bool:
        """Whether a side is not ranked in anything, by itself."""
        against = [reason for reason in self.reasons if reason.sides == (side,)]
        return any(not reason.latency for reason in against)


def compare(
    sides: Sequence[Side], gates: Sequence[Gate] = (), bench: Sequence[BenchTest] = ()
) -> Comparison:
    """Compare the sides; the first is the base of ratios and gates.

    A difference is real if its Welch p value (`change_intervals.ratio_of`), adjusted by Holm over
    all metrics and sides judged, is at most 5 %: among identical set-ups at most one comparison in
    twenty has a false alarm. With one run a side, or runs that did not take turns (`order`),
    nothing is proven. Copies of a run count once. `bench`: tests of llama-bench, to hold against
    the sides.
    """
    copies = copies_in(sides)
    distinct = list(map(Side.without_copies, sides))
    sides, about_tpot = by_one_formula(distinct)
    common = on_common_requests(runs_of(sides))
    notes = []
    gate_results = None
    if common is not None:
        notes = [common.note("runs")]
        if not common.is_same:
            # more failed requests must not pass a gate on latencies
            gate_results = judge_gates(gates, sides, reasons_against(sides))
        sides = _with_runs(sides, common.runs)

    metrics = metrics_in([run.values for run in runs_of(sides)])
    reasons = reasons_against(sides)
    if common is not None and not common.is_same:
        reasons += _against_rates(sides)
    if gate_results is None:
        gate_results = judge_gates(gates, sides, reasons)

    keys = [*HEADLINE]
    for metric in metrics:
        keys.append(metric.key)

    best = {}
    for key in dict.fromkeys(keys):
        shown = metric_of(key)
        if shown is not None:
            best[key] = _best(sides, shown, reasons)

    return Comparison(
        sides=sides,
        metrics=metrics,
        changes=_changes(sides, metrics, reasons),
        best=best,
        reasons=reasons,
        warnings=[*copies, *about_tpot, *notes, *warnings_about(sides, bench)],
        differences=differences(sides),
        gates=gate_results,
    )


def _with_runs(sides: Sequence[Side], runs: Sequence[MeasuredRun]) -> list[Side]:
    """These sides with these runs in place of theirs, in order."""
    changed = []
    place = 0
    for side in sides:
        end = place + len(side.runs)
        changed.append(replace(side, runs=runs[place:end]))
        place = end

    return changed


def _against_rates(sides: Sequence[Side]) -> list[Reason]:
    """Of sides that lost a few other requests than each other."""
    reasons = []
    for places in combinations(range(len(sides)), 2):
        names = " and ".join(sides[place].label for place in places)
        text = (
            f"{names} did not lose the same requests, which rates and durations count"
        )
        reasons.append(Reason(text, places, RATES, kind="failed requests"))
    return reasons


def _changes(
    sides: Sequence[Side], metrics: Sequence[Metric], reasons: Sequence[Reason]
) -> dict[tuple[str, int], Change]:
    ratios: dict[tuple[Metric, int], Ratio | RatioWithZeros] = {}
    changes: dict[tuple[str, int], Change] = {}
    base_side = sides[0]
    for index in range(1, len(sides)):
        other_side = sides[index]
        took_turns = against_order(base_side, other_side) is None
        for metric in metrics:
            place = (metric.key, index)
            base = base_side.mean(metric.key)
            other = other_side.mean(metric.key)
            if base is None or other is None:
                changes[place] = Change(MISSING)
                continue

            ratio = ratio_between(base_side, other_side, metric.key)
            if is_against(metric, index, reasons):
                changes[place] = _unjudged(NOT_RANKED, ratio, base, other)
            elif is_thin(metric, base_side, other_side):
                changes[place] = _unjudged(TOO_FEW, ratio, base, other)
            elif ratio is None:
                changes[place] = _unjudged(ONE_RUN, ratio, base, other)
            elif not took_turns:
                changes[place] = _unjudged(NO_TURNS, ratio, base, other)
            else:
                ratios[metric, index] = ratio

    p_values = [ratio.p_value() for ratio in ratios.values()]
    adjusted = holm(p_values)
    for (judged, ratio), p in zip(ratios.items(), adjusted, strict=True):
        metric, index = judged
        changes[metric.key, index] = _judged(metric, ratio, p, len(ratios))

    return changes


def _judged(
    metric: Metric, ratio: Ratio | RatioWithZeros, p: float, together: int
) -> Change:
    """A change that was judged with so many `together`; `p`: adjusted for them."""
    found_from = None
    if isinstance(ratio, Ratio):
        found_from = tuple(ratio.found_from(power, together) for power in POWERS)

    outcome = _outcome(metric, ratio, p)

    return Change(outcome, ratio.ratio, ratio.interval, p, found_from)


def _outcome(metric: Metric, ratio: Ratio | RatioWithZeros, p: float) -> str:
    if p > 1 - CONFIDENCE:
        return NOT_PROVEN

    is_higher = ratio.p_above(1.0) < ratio.p_below(1.0)
    is_higher_better = metric.sign() > 0
    if is_higher is is_higher_better:
        return BETTER

    return WORSE


def _unjudged(
    outcome: str, ratio: Ratio | RatioWithZeros | None, base: float, other: float
) -> Change:
    """A change that is shown with what is known of it."""
    if ratio is not None:
        return Change(outcome, ratio.ratio, ratio.interval)
    if base <= 0:
        return Change(outcome, None)

    return Change(outcome, other / base)


def _best(
    sides: Sequence[Side], metric: Metric, reasons: Sequence[Reason]
) -> frozenset[int]:
    """The best of the sides that may be ranked by this metric, with those that look equal.

    None where there are fewer than two, where two of them must not be ranked against each other, or
    for durations of different numbers of requests.
    """
    spoilt = set()
    pairs_apart = []
    for reason in reasons:
        if not reason.concerns(metric):
            continue
        if len(reason.sides) == 1:
            spoilt.add(reason.sides[0])
        elif len(reason.sides) == 2:
            pairs_apart.append(set(reason.sides))

    known = {}
    for index, side in enumerate(sides):
        mean = side.mean(metric.key)
        if mean is not None:
            known[index] = mean

    decimals = metric.decimals_for(known.values())
    shown = {}
    for index, mean in known.items():
        if index not in spoilt and not is_thin(metric, sides[index]):
            shown[index] = round(mean, decimals)

    if len(shown) < 2:
        return frozenset()

    for pair in pairs_apart:
        if pair <= set(shown):
            return frozenset()

    ranked = [sides[index] for index in shown]
    if metric.key == "duration" and not _have_one_count(ranked):
        return frozenset()

    top = min(shown.values())
    if metric.sign() > 0:
        top = max(shown.values())

    best = []
    for index, mean in shown.items():
        if mean == top:
            best.append(index)

    return frozenset(best)


def _have_one_count(sides: Sequence[Side]) -> bool:
    """Whether all runs completed the same number of requests."""
    counts = {run.count("completed") for run in runs_of(sides)}
    return len(counts) == 1
