"""Rules of percentiles."""

from __future__ import annotations

from collections.abc import Sequence

from truth.cases import Case
from truth.finding import Finding, Level, judged, number, silent
from truth.log import Log
from truth.matching import METRICS, client_values
from truth.result import PERCENTILES, Doubt, Result
from truth.units import percentile

FEW = 100  # below it the 99th percentile is the largest value, or lies between the two largest
OF_REQUESTS = ("ttft", "tpot", "e2el")


def percentiles(case: Case, log: Log, result: Result) -> list[Finding]:
    """The summary's p50 and p99 are percentiles of the client's own values: they lie between the
    neighbouring values of the rank, whatever the interpolation. Limit: `ms`, for rounding."""
    del log
    doubts = result.doubts_about(PERCENTILES)
    findings = of_summary(result, case.limits["ms"], doubts)
    if not findings:
        return [silent("percentiles of the summary", "")]
    return findings


def of_summary(
    result: Result, limit_ms: float, doubts: Sequence[Doubt]
) -> list[Finding]:
    """A finding for each percentile that the client reports beside its values."""
    findings: list[Finding] = []
    for metric in OF_REQUESTS:
        values: list[float] = []
        for seen in result.requests:
            values += client_values(seen, metric)
        for percent in (50, 99):
            name = f"p{percent}_{metric}_ms"
            if name in result.reported and values:
                reported = result.reported[name]
                findings.append(
                    _between(
                        name, percent, values, reported, limit=limit_ms, doubts=doubts
                    )
                )
    return findings


def _between(
    name: str,
    percent: int,
    values: list[float],
    reported: float,
    *,
    limit: float,
    doubts: Sequence[Doubt],
) -> Finding:
    """Ranks of all usual definitions lie within one place of each other."""
    ordered = sorted(values)
    place = percent / 100 * (len(ordered) - 1)
    low = ordered[max(0, int(place) - 1)]
    high = ordered[min(len(ordered) - 1, int(place) + 2)]
    right = low - limit <= reported <= high + limit
    truth = f"{number(percentile(ordered, percent))} ({number(low)} to {number(high)})"
    level = judged(right, doubts)
    return Finding(name, truth, number(reported), number(limit), level)


def few_values(case: Case, log: Log, result: Result) -> list[Finding]:
    """p99 of fewer than 100 values is not reported, or the client says that it cannot be used."""
    del case, log
    count = len(result.requests)
    if not count:
        return [silent("p99 of few requests", "withheld")]
    findings: list[Finding] = []
    for metric in METRICS:
        name = f"p99_{metric}_ms"
        if metric == "itl" or count >= FEW:
            continue  # gaps are many also in few requests
        if name not in result.reported:
            findings.append(Finding(name, "withheld", "withheld", "", Level.RIGHT))
            continue
        level = Level.ADMITTED if result.doubts_about(PERCENTILES) else Level.WRONG
        seen = f"{number(result.reported[name])} of {count}"
        findings.append(Finding(name, "withheld", seen, "", level))
    return findings
