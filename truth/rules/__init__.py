"""The rules: functions of a case, the server's log and the client's result.

A new rule is a function here and its name in `RULES`. It returns a finding per figure.
"""

from __future__ import annotations

from collections.abc import Callable

from truth.cases import Case
from truth.finding import Finding
from truth.log import Log
from truth.result import Result
from truth.rules.counts import counts
from truth.rules.load import arrival_process, concurrency, lateness, order, workload
from truth.rules.outcomes import ended_by_time, failures, left_out
from truth.rules.percentiles import few_values, percentiles
from truth.rules.search import known_capacity
from truth.rules.times import rate_reached, times

Rule = Callable[[Case, Log, Result], list[Finding]]

RULES: dict[str, Rule] = {
    "times": times,
    "arrivals": arrival_process,
    "lateness": lateness,
    "concurrency": concurrency,
    "workload": workload,
    "order": order,
    "counts": counts,
    "failures": failures,
    "left_out": left_out,
    "ended_by_time": ended_by_time,
    "percentiles": percentiles,
    "few_values": few_values,
    "rate_reached": rate_reached,
    "known_capacity": known_capacity,
}

# Whose figures are all of the clock: a client that waits for a core may have them wrong.
OF_CLOCK = (
    "times",
    "arrivals",
    "lateness",
    "concurrency",
    "rate_reached",
    "known_capacity",
)

__all__ = ["OF_CLOCK", "RULES", "Rule"]
