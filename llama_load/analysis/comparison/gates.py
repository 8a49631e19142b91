"""Gates of a comparison (--gate).

`p99_ttft_ms:+5%` fails if the metric is worse than the base's by over 5 %, with confidence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from llama_load.analysis.comparison.change_intervals import (
    POWERS,
    Ratio,
    RatioWithZeros,
    holm,
)
from llama_load.analysis.comparison.compared_metrics import Metric, metric_of
from llama_load.analysis.comparison.order import against_order
from llama_load.analysis.comparison.reasons import Reason, is_against
from llama_load.analysis.comparison.side import Side, is_thin, ratio_between
from llama_load.analysis.statistics.statistics import CONFIDENCE
from llama_load.ground.errors import UsageError, did_you_mean
from llama_load.ground.exit_codes import GOOD, INCOMPLETE, THRESHOLD_FAILED
from llama_load.run_folder.vocabulary.definitions import EVERY, RATES, of_group
from llama_load.tables.numbers import change as percent_change
from llama_load.tables.numbers import change_between

PASSED = "passed"
FAILED = "failed"
NOT_JUDGED = "cannot be judged"
# Of one side of the interval.
SIGNIFICANCE = (1 - CONFIDENCE) / 2
# Metrics that a message suggests for a misspelt one.
GATED: list[str] = []
for _latency in of_group(EVERY):
    for _word in ("p99", "median", "mean"):
        GATED.append(f"{_word}_{_latency.key}_ms")
GATED += RATES
_PATTERN = re.compile(
    r"\s*(?P<key>\w[\w.]*)\s*:\s*(?P<sign>[+-]?)(?P<percent>\d{1,6}(?:\.\d{1,6})?)\s*%\s*"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """A metric and the ratio to the base that it must not pass.

    1.05 for `p99_ttft_ms:+5%`, 0.95 for `output_throughput:-5%`.
    """

    text: str
    metric: Metric
    limit: float

    def p_beyond(self, ratio: Ratio | RatioWithZeros) -> float:
        """One-sided p of "not worse than the limit"."""
        if self.metric.sign() < 0:
            return ratio.p_above(self.limit)
        return ratio.p_below(self.limit)

    def p_within(self, ratio: Ratio | RatioWithZeros) -> float:
        """One-sided p of "worse than the limit"."""
        if self.metric.sign() < 0:
            return ratio.p_below(self.limit)
        return ratio.p_above(self.limit)


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate on one side: passed, failed or not judged, and a sentence."""

    gate: Gate
    side: str
    outcome: str
    text: str


def parse_gate(text: str) -> Gate:
    """Parse `KEY:+N%` (a metric of which lower is better) or `KEY:-N%` (higher).

    Raises UsageError.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(
            "--gate takes KEY:+N% or KEY:-N%, such as p99_ttft_ms:+5% or "
            f"output_throughput:-5%, got {text!r}"
        )
    metric = metric_of(match["key"])
    if metric is None or not metric.sign():
        examples = "p99_ttft_ms or output_throughput"
        advice = did_you_mean(match["key"], GATED)
        if not advice:
            advice = f"; use one of summary.json such as {examples}"

        raise UsageError(f"--gate: there is no metric {match['key']!r}{advice}")

    is_higher_better = metric.sign() > 0
    better = "lower"
    worse = "+"
    if is_higher_better:
        better = "higher"
        worse = "-"

    if match["sign"] not in ("", worse):
        raise UsageError(
            f"{better} is better for {metric.key}: "
            f"write --gate '{metric.key}:{worse}{match['percent']}%'"
        )

    share = float(match["percent"]) / 100
    if not is_higher_better:
        return Gate(text.strip(), metric, 1 + share)
    if share >= 1:
        raise UsageError(
            f"--gate: {metric.key} cannot fall by 100 % or more, got {text!r}"
        )
    return Gate(text.strip(), metric, 1 - share)


def judge_gates(
    gates: Sequence[Gate], sides: Sequence[Side], reasons: Sequence[Reason]
) -> list[GateResult]:
    """Each gate on each side but the first, which is the base.

    A gate fails if the ratio is beyond its limit with a one-sided p of at most 2.5 % (the 95 %
    interval lies beyond it), adjusted by Holm over all of them. It passes if the whole interval is
    within the limit; or if the ratio is, and the interval reaches no farther to each side than the
    limit is from 1: then a change of twice the limit passes in at most 2.5 % of comparisons. Else
    it cannot be judged, nor without two runs a side in a good order, nor where the sides must not
    be ranked by this metric.
    """
    ratios: dict[tuple[Gate, int], Ratio | RatioWithZeros] = {}
    against: dict[tuple[Gate, int], str] = {}
    places = list(product(gates, range(1, len(sides))))
    for gate, index in places:
        why = _against(gate.metric, sides, index, reasons)
        ratio = ratio_between(sides[0], sides[index], gate.metric.key)
        if why is not None or ratio is None:
            against[gate, index] = why or "it needs two runs a side or more"
        else:
            ratios[gate, index] = ratio

    p_values = []
    for (gate, _), ratio in ratios.items():
        p_values.append(gate.p_beyond(ratio))

    adjusted = dict(zip(ratios, holm(p_values), strict=True))

    results = []
    for gate, index in places:
        place = (gate, index)
        if place in against:
            outcome = NOT_JUDGED
            text = against[place]
        else:
            base_runs = _runs_with_values(sides[0], gate)
            other_runs = _runs_with_values(sides[index], gate)
            runs = (base_runs, other_runs)
            judged = _Judged(gate, ratios[place], adjusted[place], len(ratios), runs)
            outcome, text = judged.result()
        results.append(GateResult(gate, sides[index].label, outcome, text))
    return results


def _runs_with_values(side: Side, gate: Gate) -> int:
    """The runs that measured the gate's metric."""
    return len(side.values(gate.metric.key))


@dataclass(frozen=True, slots=True)
class _Judged:
    """A gate with what is known of its metric.

    `p`: adjusted, of "not worse than the limit"; `together`: how many gates are judged together;
    `runs`: of the base and of the other side.
    """

    gate: Gate
    ratio: Ratio | RatioWithZeros
    p: float
    together: int
    runs: tuple[int, int]

    def result(self) -> tuple[str, str]:
        """The outcome and a sentence."""
        change = _change_text(self.ratio)
        is_within = self.gate.p_within(self.ratio) <= SIGNIFICANCE
        if self.p <= SIGNIFICANCE:
            return FAILED, f"worse with confidence: {change}"
        if isinstance(self.ratio, RatioWithZeros):
            if is_within:
                return PASSED, change
            return (
                NOT_JUDGED,
                f"some values are 0, and the others scatter too much: {change}",
            )

        change += f"; {self._failing(self.ratio)} would have failed (95 %)"
        if is_within:
            return PASSED, change
        if self.ratio.reach > abs(math.log(self.gate.limit)):
            needed = self._needed(self.ratio)
            return (
                NOT_JUDGED,
                f"the interval is wider than the gate ({needed}): {change}",
            )
        if self.gate.p_beyond(self.ratio) < 0.5:
            return (
                NOT_JUDGED,
                f"beyond the limit, but not with confidence; repeat more: {change}",
            )
        return PASSED, change

    def _failing(self, ratio: Ratio) -> str:
        """`+12.3% or worse`: the changes that would have failed in 95 of 100 comparisons."""
        found = ratio.found_from(POWERS[0], self.together, self.gate.limit)
        if self.gate.metric.sign() > 0:
            found = 1 / found
        return f"{percent_change(found)} or worse"

    def _needed(self, ratio: Ratio) -> str:
        """What would narrow the interval to the gate."""
        needed = ratio.runs_for(self.gate.limit, self.runs)
        if needed is None:
            return "widen it: no number of runs would do"
        return f"about {needed} runs a side would do"


def _against(
    metric: Metric, sides: Sequence[Side], index: int, reasons: Sequence[Reason]
) -> str | None:
    """Why this side must not be compared with the first by this metric."""
    base = sides[0]
    other = sides[index]
    if is_against(metric, index, reasons):
        return "not comparable"
    for side in (base, other):
        if not side.values(metric.key):
            return f"{side.label} has no {metric.key}"
    if is_thin(metric, base, other):
        return f"a run has fewer than the {metric.least_count} values that it needs"
    return against_order(base, other)


def _change_text(ratio: Ratio | RatioWithZeros) -> str:
    """`+7.8% (+2.1% to +13.9%)`; of a ratio with zeros both means."""
    if isinstance(ratio, RatioWithZeros):
        return f"{ratio.base:.4g} to {ratio.other:.4g}"
    return f"{percent_change(ratio.ratio)} ({change_between(*ratio.interval)})"


def exit_code(results: Sequence[GateResult]) -> int:
    """1 if a gate failed; else 3 if one cannot be judged; else 0.

    A gate without evidence must not pass.
    """
    outcomes = {result.outcome for result in results}
    if FAILED in outcomes:
        return THRESHOLD_FAILED
    if NOT_JUDGED in outcomes:
        return INCOMPLETE
    return GOOD
