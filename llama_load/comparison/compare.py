"""Compares sides, each with one run or several: which differences are real, which sides are best, and what must not be ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_load.comparison.change_intervals import POWERS, Ratio, RatioWithZeros, holm
from llama_load.comparison.compared_metrics import Metric, metric_of, metrics_in
from llama_load.comparison.gates import Gate, GateResult, judge_gates
from llama_load.comparison.llama_bench import BenchTest
from llama_load.comparison.order import against_order
from llama_load.comparison.reasons import Reason, reasons_against
from llama_load.comparison.remedy import next_commands
from llama_load.comparison.setup import Difference, differences
from llama_load.comparison.side import Side, is_thin, ratio_between
from llama_load.comparison.warnings import copies_in, warnings_about
from llama_load.metrics.statistics import CONFIDENCE

# What is known of a difference from the first side.
BETTER, WORSE, NOT_PROVEN, ONE_RUN, NO_TURNS, NOT_RANKED, MISSING = (
    "better",
    "worse",
    "no difference proven",
    "one run a side: not proven",
    "not taken in turns: not proven",
    "not ranked",
    "not measured",
)
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
    """A metric of one side against the first side. `ratio`: theirs / first; `interval`: its 95 % confidence interval from the
    scatter between repeats; `p`: two-sided, adjusted for the number of metrics and sides judged; `found_from`: the least ratios
    that would have been found with 95 % and with 80 % (`Ratio.found_from`). None where not known."""

    outcome: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    found_from: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The sides, the first of which is the base; the metrics that they have; and per metric `changes` (by key and side, without the
    base) and the sides that are `best`."""

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
        return sum(len(side.runs) > 1 for side in self.sides) > 1

    @property
    def next_commands(self) -> list[str]:
        """The lines of a shell command that would make the sides comparable or prove a difference; empty where not needed."""
        took_turns = not any(against_order(self.sides[0], side) for side in self.sides[1:])
        return next_commands(self.sides, self.reasons, is_proof=self.has_repeats and took_turns)

    def is_unreliable(self, side: int) -> bool:
        """Whether a side is not ranked in anything, by itself."""
        return any(reason.sides == (side,) and not reason.latency for reason in self.reasons)


def compare(sides: Sequence[Side], gates: Sequence[Gate] = (), bench: Sequence[BenchTest] = ()) -> Comparison:
    """Compare the sides; the first is the base of ratios and gates. `bench`: tests of llama-bench, to hold against them.

    A difference is real if its Welch p value (`intervals.ratio_of`), adjusted by Holm over all metrics and sides judged, is at most
    5 %: among identical set-ups at most one comparison in twenty has a false alarm. With one run a side, or runs that did not take
    turns (`order`), nothing is proven. Copies of a run count once.
    """
    copies = copies_in(sides)
    sides = [side.without_copies() for side in sides]
    metrics = metrics_in([run.values for side in sides for run in side.runs])
    reasons = reasons_against(sides)
    keys = dict.fromkeys([*HEADLINE, *(metric.key for metric in metrics)])
    return Comparison(
        sides=sides,
        metrics=metrics,
        changes=_changes(sides, metrics, reasons),
        best={key: _best(sides, metric, reasons) for key in keys if (metric := metric_of(key)) is not None},
        reasons=reasons,
        warnings=[*copies, *warnings_about(sides, bench)],
        differences=differences(sides),
        gates=judge_gates(gates, sides, reasons),
    )


def _changes(sides: Sequence[Side], metrics: Sequence[Metric], reasons: Sequence[Reason]) -> dict[tuple[str, int], Change]:
    ratios: dict[tuple[Metric, int], Ratio | RatioWithZeros] = {}
    changes: dict[tuple[str, int], Change] = {}
    for index in range(1, len(sides)):
        took_turns = against_order(sides[0], sides[index]) is None
        for metric in metrics:
            place = metric.key, index
            base, other = sides[0].mean(metric.key), sides[index].mean(metric.key)
            if base is None or other is None:
                changes[place] = Change(MISSING)
                continue
            ratio = ratio_between(sides[0], sides[index], metric.key)
            if any(reason.concerns(metric) and set(reason.sides) <= {0, index} for reason in reasons):
                changes[place] = _unjudged(NOT_RANKED, ratio, base, other)
            elif is_thin(metric, sides[0], sides[index]):
                changes[place] = _unjudged(TOO_FEW, ratio, base, other)
            elif ratio is None:
                changes[place] = _unjudged(ONE_RUN, ratio, base, other)
            elif not took_turns:
                changes[place] = _unjudged(NO_TURNS, ratio, base, other)
            else:
                ratios[metric, index] = ratio
    adjusted = holm([ratio.p_value() for ratio in ratios.values()])
    for ((metric, index), ratio), p in zip(ratios.items(), adjusted, strict=True):
        found_from = None
        if isinstance(ratio, Ratio):
            found_from = tuple(ratio.found_from(power, len(ratios)) for power in POWERS)
        changes[metric.key, index] = Change(_outcome(metric, ratio, p), ratio.ratio, ratio.interval, p, found_from)
    return changes


def _outcome(metric: Metric, ratio: Ratio | RatioWithZeros, p: float) -> str:
    if p > 1 - CONFIDENCE:
        return NOT_PROVEN
    is_higher = ratio.p_above(1.0) < ratio.p_below(1.0)
    return BETTER if is_higher is (metric.sign() > 0) else WORSE


def _unjudged(outcome: str, ratio: Ratio | RatioWithZeros | None, base: float, other: float) -> Change:
    """A change that is shown with what is known of it."""
    if ratio is None:
        return Change(outcome, other / base if base > 0 else None)
    return Change(outcome, ratio.ratio, ratio.interval)


def _best(sides: Sequence[Side], metric: Metric, reasons: Sequence[Reason]) -> frozenset[int]:
    """The best of the sides that may be ranked by this metric, with those that look equal. None where there are fewer than two,
    where two of them must not be ranked against each other, or for durations of different numbers of requests."""
    against = [reason for reason in reasons if reason.concerns(metric)]
    spoilt = {reason.sides[0] for reason in against if len(reason.sides) == 1}
    known = {index: mean for index, side in enumerate(sides) if (mean := side.mean(metric.key)) is not None}
    decimals = metric.decimals_for(known.values())
    means = {
        index: round(mean, decimals) for index, mean in known.items() if index not in spoilt and not is_thin(metric, sides[index])
    }
    if len(means) < 2 or any(len(reason.sides) == 2 and set(reason.sides) <= set(means) for reason in against):
        return frozenset()
    if metric.key == "duration" and len({run.count("completed") for index in means for run in sides[index].runs}) > 1:
        return frozenset()
    top = max(means.values()) if metric.sign() > 0 else min(means.values())
    return frozenset(index for index, mean in means.items() if mean == top)
