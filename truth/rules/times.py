"""Rules of latencies and rates."""

from __future__ import annotations

from truth.arrivals import arrivals
from truth.cases import Case
from truth.finding import Finding, judged, number, silent
from truth.log import Log
from truth.matching import METRICS, Error, errors, rate_errors
from truth.result import LOAD, RATES, TIMES, Result

# Stands behind errors that are not those of each request.
DISTRIBUTIONS = "(distributions)"


def times(case: Case, log: Log, result: Result) -> list[Finding]:
    """Errors of TTFT, ITL, TPOT and E2EL, request by request. Limits: `p50_ms`, `p99_ms`, or those
    of one figure, such as `itl_p99_ms`. The log's own bound is added to each. A figure that fewer
    than half of the requests have is not that of the run."""
    found = errors(result.requests, log.entries)
    return [_figure(case, log, result, metric, found.get(metric)) for metric in METRICS]


def error_of(metric: str) -> str:
    """The name of the figure."""
    return f"error of {metric.upper()}, p50 / p99, ms"


def _figure(
    case: Case, log: Log, result: Result, metric: str, error: Error | None
) -> Finding:
    if error is None:
        return silent(metric.upper(), "")

    bound = log.bound_ms or 0.0
    p50_limit = case.limits.get(f"{metric}_p50_ms", case.limits["p50_ms"]) + bound
    p99_limit = case.limits.get(f"{metric}_p99_ms", case.limits["p99_ms"]) + bound
    right = abs(error.p50) <= p50_limit and abs(error.p99) <= p99_limit

    star = "" if error.matched else f" {DISTRIBUTIONS}"
    if error.compared < len(result.requests) / 2:
        right = False
        star = f" ({error.compared} of {len(result.requests)} requests)"
    return Finding(
        figure=error_of(metric),
        truth=f"{number(error.server[0])} / {number(error.server[1])}",
        seen=f"{number(error.p50)} / {number(error.p99)}{star}",
        limit=f"{number(p50_limit)} / {number(p99_limit)}",
        level=judged(right, result.doubts_about(TIMES)),
        values=(error.p50, error.p99),
        unit=star,
    )


def rate_reached(case: Case, log: Log, result: Result) -> list[Finding]:
    """A rate that the client may not reach: what it reports as its rate is the log's, and where the
    arrivals fall behind the rate asked for, the client says so. Limit: `rate`."""
    limit = case.limits["rate"]
    findings: list[Finding] = []

    process = arrivals(result.requests, log.entries, case.load.rate_rps, 0.25)
    if process:
        error = process["rate_error"]
        level = judged(abs(error) <= limit, result.doubts_about(LOAD))
        asked = f"{number(case.load.rate_rps)}/s"
        findings.append(
            Finding(
                "rate of arrivals",
                asked,
                f"{error:+.1%}",
                f"{limit:.0%}",
                level,
                values=(100 * error,),
                unit="%",
            )
        )

    reported = rate_errors(result, log.entries).get("request_rps")
    if reported is None:
        findings.append(silent("requests/s", ""))
    else:
        level = judged(abs(reported) <= limit, result.doubts_about(RATES))
        findings.append(
            Finding(
                "requests/s reported",
                "the log's",
                f"{reported:+.1%}",
                f"{limit:.0%}",
                level,
                values=(100 * reported,),
                unit="%",
            )
        )
    return findings
