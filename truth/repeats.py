"""Several runs of a case as one verdict: the lowest level, and medians with their intervals.

Of five runs the lowest and the highest value hold the median of all runs with a probability of
94 %, 1 - 2 / 2^5, whatever the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from truth.finding import Finding, Level, number
from truth.judge import Verdict
from truth.units import percentile


def merged(verdicts: Sequence[Verdict]) -> Verdict:
    """Of one case. Void runs do not count, unless all are; a run that failed fails the case."""
    judged = [verdict for verdict in verdicts if verdict.is_judged]
    failed = [verdict for verdict in judged if verdict.failed]
    void_runs = len(verdicts) - len(judged)
    if not judged:
        return replace(verdicts[0], runs=0, void_runs=void_runs)
    if failed:
        return replace(failed[0], runs=len(judged), void_runs=void_runs)

    told = [verdict for verdict in judged if verdict.level != Level.SILENT]
    lowest = min(told or judged, key=lambda verdict: verdict.level)
    bounds = [each.bound_ms for each in judged if each.bound_ms is not None]
    findings = [_merged_finding(each, judged) for each in lowest.findings]
    levels = [each.level for each in findings if each.level != Level.SILENT]
    return replace(
        lowest,
        findings=findings,
        level=min(levels, default=lowest.level),
        bound_ms=max(bounds, default=None),
        late_ms=max(verdict.late_ms for verdict in judged),
        runs=len(judged),
        void_runs=void_runs,
        costs=[cost for verdict in judged for cost in verdict.costs],
    )


def _merged_finding(finding: Finding, verdicts: Sequence[Verdict]) -> Finding:
    """With the lowest level of the figure in all runs, and the values of all runs."""
    same = [
        each
        for verdict in verdicts
        for each in verdict.findings
        if each.figure == finding.figure
    ]
    level = min(each.level for each in same)
    held = [each.holds for each in same if each.holds is not None]
    if len(held) > 1 and len(held) == len(same):
        level = Level.RIGHT if held.count(False) <= misses(len(held)) else Level.WRONG
    rows = [each.values for each in same if len(each.values) == len(finding.values)]
    if len(rows) < 2 or not finding.values:
        return replace(finding, level=level, repeats=tuple(rows))

    columns = list(zip(*rows, strict=True))
    seen = " / ".join(interval(column) for column in columns)
    seen += finding.unit
    if held:
        seen += f", held by {held.count(True)} of {len(held)} intervals"
    return replace(finding, level=level, seen=seen, repeats=tuple(rows))


def misses(runs: int) -> int:
    """How many of so many intervals of 95 % miss the truth at most, but for one time in a
    hundred."""
    probability = 0.0
    for count in range(runs + 1):
        probability += math.comb(runs, count) * 0.05**count * 0.95 ** (runs - count)
        if probability >= 0.99:
            return count
    return runs


def interval(values: Sequence[float]) -> str:
    """The median, and of several the lowest and highest: `2.0 (1.0 to 9.0)`."""
    middle = number(percentile(values, 50))
    if len(values) < 2:
        return middle
    return f"{middle} ({number(min(values))} to {number(max(values))})"
