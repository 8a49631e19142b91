"""Gates of a comparison (--gate): `p99_ttft_ms:+5%` fails if the metric is worse than the base's by over 5 %, with confidence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.comparison.change_intervals import Ratio, RatioWithZeros, holm
from llama_load.comparison.compared_metrics import Metric, metric_of
from llama_load.comparison.order import against_order
from llama_load.comparison.reasons import Reason
from llama_load.comparison.side import Side, is_thin, ratio_between
from llama_load.errors import UsageError, did_you_mean
from llama_load.exit_codes import GOOD, INCOMPLETE, THRESHOLD_FAILED
from llama_load.metrics.definitions import EVERY, RATES, of_group
from llama_load.metrics.statistics import CONFIDENCE
from llama_load.tables.numbers import change, change_between

PASSED, FAILED, NOT_JUDGED = "passed", "failed", "cannot be judged"
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
    by Holm over all of them. It cannot be judged without two runs a side that took turns, or where the sides must not be ranked by
    this metric.
    """
    places = [(gate, index) for gate in gates for index in range(1, len(sides))]
    against = {(gate, index): _against(gate.metric, sides, index, reasons) for gate, index in places}
    ratios = {(gate, index): ratio_between(sides[0], sides[index], gate.metric.key) for gate, index in places}
    known = {place: ratio for place, ratio in ratios.items() if ratio is not None and against[place] is None}
    adjusted = dict(zip(known, holm([_p(gate, ratio) for (gate, _), ratio in known.items()]), strict=True))
    return [_result(place, sides, against[place], known.get(place), adjusted.get(place)) for place in places]


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


def _result(
    place: tuple[Gate, int], sides: Sequence[Side], against: str | None, ratio: Ratio | RatioWithZeros | None, p: float | None
) -> GateResult:
    gate, index = place
    side = sides[index].label
    if against is not None:
        return GateResult(gate, side, NOT_JUDGED, against)
    if ratio is None or p is None:
        return GateResult(gate, side, NOT_JUDGED, "it needs two runs a side or more; five find a difference of 10 %")
    change = _change(ratio)
    if p <= (1 - CONFIDENCE) / 2:
        return GateResult(gate, side, FAILED, f"worse with confidence: {change}")
    is_beyond = _p(gate, ratio) < 0.5
    return GateResult(
        gate, side, PASSED, f"beyond the limit, but not with confidence: {change}; repeat more" if is_beyond else change
    )


def _change(ratio: Ratio | RatioWithZeros) -> str:
    """`+7.8% (+2.1% to +13.9%)`; of a ratio with zeros both means."""
    if isinstance(ratio, RatioWithZeros):
        return f"{ratio.base:.4g} to {ratio.other:.4g}"
    return f"{change(ratio.ratio)} ({change_between(*ratio.interval)})"


def exit_code(results: Sequence[GateResult]) -> int:
    """1 if a gate failed; else 3 if one cannot be judged, because a gate without evidence must not pass; else 0."""
    outcomes = {result.outcome for result in results}
    return THRESHOLD_FAILED if FAILED in outcomes else INCOMPLETE if NOT_JUDGED in outcomes else GOOD
