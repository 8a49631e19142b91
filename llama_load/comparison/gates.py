"""Gates of a comparison (--gate): `p99_ttft_ms:+5%` fails if the metric is worse than the base's by over 5 %, with confidence."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.comparison.change_intervals import POWERS, Ratio, RatioWithZeros, holm
from llama_load.comparison.compared_metrics import Metric, metric_of
from llama_load.comparison.order import against_order
from llama_load.comparison.reasons import Reason
from llama_load.comparison.side import Side, is_thin, ratio_between
from llama_load.errors import UsageError, did_you_mean
from llama_load.exit_codes import GOOD, INCOMPLETE, THRESHOLD_FAILED
from llama_load.metrics.definitions import EVERY, RATES, of_group
from llama_load.metrics.statistics import CONFIDENCE
from llama_load.tables.numbers import change as percent_change
from llama_load.tables.numbers import change_between

PASSED, FAILED, NOT_JUDGED = "passed", "failed", "cannot be judged"
# Of one side of the interval.
SIGNIFICANCE = (1 - CONFIDENCE) / 2
# Metrics that a message suggests for a misspelt one.
GATED = (*(f"{word}_{latency.key}_ms" for latency in of_group(EVERY) for word in ("p99", "median", "mean")), *RATES)
_PATTERN = re.compile(r"\s*(?P<key>\w[\w.]*)\s*:\s*(?P<sign>[+-]?)(?P<percent>\d{1,6}(?:\.\d{1,6})?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Gate:
    """A metric and the ratio to the base that it must not pass: 1.05 for `p99_ttft_ms:+5%`, 0.95 for `output_throughput:-5%`."""

    text: str
    metric: Metric
    limit: float


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate on one side: passed, failed or not judged, and a sentence."""

    gate: Gate
    side: str
    outcome: str
    text: str


def parse_gate(text: str) -> Gate:
    """Parse `KEY:+N%` (a metric of which lower is better) or `KEY:-N%` (higher). Raises UsageError."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(f"--gate takes KEY:+N% or KEY:-N%, such as p99_ttft_ms:+5% or output_throughput:-5%, got {text!r}")
    metric = metric_of(match["key"])
    if metric is None or not metric.sign():
        near = did_you_mean(match["key"], GATED) or "; use one of summary.json such as p99_ttft_ms or output_throughput"
        raise UsageError(f"--gate: there is no metric {match['key']!r}{near}")
    worse = "-" if metric.sign() > 0 else "+"
    share = float(match["percent"]) / 100
    if (match["sign"] or worse) != worse:
        better = "higher" if metric.sign() > 0 else "lower"
        raise UsageError(f"{better} is better for {metric.key}: write --gate '{metric.key}:{worse}{match['percent']}%'")
    if metric.sign() > 0 and share >= 1:
        raise UsageError(f"--gate: {metric.key} cannot fall by 100 % or more, got {text!r}")
    return Gate(text.strip(), metric, 1 - share if metric.sign() > 0 else 1 + share)


def judge_gates(gates: Sequence[Gate], sides: Sequence[Side], reasons: Sequence[Reason]) -> list[GateResult]:
    """Each gate on each side but the first, which is the base.

    A gate fails if the ratio is beyond its limit with a one-sided p of at most 2.5 % (the 95 % interval lies beyond it), adjusted
    by Holm over all of them. It passes if the whole interval is within the limit; or if the ratio is, and the interval reaches no
    farther to each side than the limit is from 1: then a change of twice the limit passes in at most 2.5 % of comparisons. Else
    it cannot be judged, nor without two runs a side in a good order, nor where the sides must not be ranked by this metric.
    """
    places = [(gate, index) for gate in gates for index in range(1, len(sides))]
    against: dict[tuple[Gate, int], str] = {}
    ratios: dict[tuple[Gate, int], Ratio | RatioWithZeros] = {}
    for gate, index in places:
        why = _against(gate.metric, sides, index, reasons)
        ratio = ratio_between(sides[0], sides[index], gate.metric.key)
        if why is not None or ratio is None:
            against[gate, index] = why or "it needs two runs a side or more"
        else:
            ratios[gate, index] = ratio
    adjusted = iter(holm([_p(gate, ratio) for (gate, _), ratio in ratios.items()]))
    p_values = {place: next(adjusted) for place in ratios}

    results = []
    for gate, index in places:
        if (gate, index) in against:
            outcome, text = NOT_JUDGED, against[gate, index]
        else:
            numbers = [len(side.values(gate.metric.key)) for side in (sides[0], sides[index])]
            judged = _Judged(gate, ratios[gate, index], p_values[gate, index], len(ratios), (numbers[0], numbers[1]))
            outcome, text = judged.result()
        results.append(GateResult(gate, sides[index].label, outcome, text))
    return results


@dataclass(frozen=True, slots=True)
class _Judged:
    """A gate with what is known of its metric. `p`: adjusted, of "not worse than the limit"; `together`: how many gates are judged
    together; `runs`: of the base and of the other side."""

    gate: Gate
    ratio: Ratio | RatioWithZeros
    p: float
    together: int
    runs: tuple[int, int]

    def result(self) -> tuple[str, str]:
        """The outcome and a sentence."""
        change = _change(self.ratio)
        if self.p <= SIGNIFICANCE:
            return FAILED, f"worse with confidence: {change}"
        if isinstance(self.ratio, RatioWithZeros):
            within = _p_within(self.gate, self.ratio) <= SIGNIFICANCE
            return (PASSED, change) if within else (NOT_JUDGED, f"some values are 0, and the others scatter too much: {change}")

        change += f"; {self._failing(self.ratio)} would have failed (95 %)"
        if _p_within(self.gate, self.ratio) <= SIGNIFICANCE:
            return PASSED, change
        if self.ratio.reach > abs(math.log(self.gate.limit)):
            return NOT_JUDGED, f"the interval is wider than the gate ({self._needed(self.ratio)}): {change}"
        if _p(self.gate, self.ratio) < 0.5:
            return NOT_JUDGED, f"beyond the limit, but not with confidence; repeat more: {change}"
        return PASSED, change

    def _failing(self, ratio: Ratio) -> str:
        """`+12.3% or worse`: the changes that would have failed in 95 of 100 comparisons."""
        found = ratio.found_from(POWERS[0], self.together, self.gate.limit)
        return f"{percent_change(found if self.gate.metric.sign() < 0 else 1 / found)} or worse"

    def _needed(self, ratio: Ratio) -> str:
        """What would narrow the interval to the gate."""
        needed = ratio.runs_for(self.gate.limit, self.runs)
        return "widen it: no number of runs would do" if needed is None else f"about {needed} runs a side would do"


def _against(metric: Metric, sides: Sequence[Side], index: int, reasons: Sequence[Reason]) -> str | None:
    """Why this side must not be compared with the first by this metric."""
    if any(reason.concerns(metric) and set(reason.sides) <= {0, index} for reason in reasons):
        return "not comparable"
    if missing := [side.label for side in (sides[0], sides[index]) if not side.values(metric.key)]:
        return f"{missing[0]} has no {metric.key}"
    if is_thin(metric, sides[0], sides[index]):
        return f"a run has fewer than the {metric.least_count} values that it needs"
    return against_order(sides[0], sides[index])


def _p(gate: Gate, ratio: Ratio | RatioWithZeros) -> float:
    """One-sided p of "not worse than the limit"."""
    return ratio.p_above(gate.limit) if gate.metric.sign() < 0 else ratio.p_below(gate.limit)


def _p_within(gate: Gate, ratio: Ratio | RatioWithZeros) -> float:
    """One-sided p of "worse than the limit"."""
    return ratio.p_below(gate.limit) if gate.metric.sign() < 0 else ratio.p_above(gate.limit)


def _change(ratio: Ratio | RatioWithZeros) -> str:
    """`+7.8% (+2.1% to +13.9%)`; of a ratio with zeros both means."""
    if isinstance(ratio, RatioWithZeros):
        return f"{ratio.base:.4g} to {ratio.other:.4g}"
    return f"{percent_change(ratio.ratio)} ({change_between(*ratio.interval)})"


def exit_code(results: Sequence[GateResult]) -> int:
    """1 if a gate failed; else 3 if one cannot be judged, because a gate without evidence must not pass; else 0."""
    outcomes = {result.outcome for result in results}
    return THRESHOLD_FAILED if FAILED in outcomes else INCOMPLETE if NOT_JUDGED in outcomes else GOOD
