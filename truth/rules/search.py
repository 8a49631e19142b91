"""The rule of capacities that a client searches by itself."""

from __future__ import annotations

from truth.cases import Case
from truth.closed_queue import capacity
from truth.finding import Finding, Level, judged, number, silent
from truth.log import Log
from truth.result import LOAD, Result

FIGURE = "capacity, users"


def known_capacity(case: Case, log: Log, result: Result) -> list[Finding]:
    """The interval that the client states holds the capacity of the server's law; a number alone is
    an interval of itself. An interval of 95 % may miss: one run is wrong if it misses by more than
    `users`, and of several runs a share may (`truth.repeats`). It is at most `width` times as high
    at its upper end as at its lower one. A lower bound alone admits that the rest is not known."""
    del log
    truth = capacity(case.load, case.server)
    value = result.reported.get("capacity_users")
    if value is None:
        return [silent(FIGURE, str(truth))]

    low = result.reported.get("capacity_low", value)
    high = result.reported.get("capacity_high")
    beyond = case.limits["users"]
    if high is None and "capacity_low" in result.reported:
        level = Level.ADMITTED if low <= truth + beyond else Level.WRONG
        seen = f"at least {low:g}"
        return [Finding(FIGURE, str(truth), seen, f"{beyond:g}", level)]

    high = value if high is None else high
    right = low - beyond <= truth <= high + beyond
    found = Finding(
        figure=FIGURE,
        truth=str(truth),
        seen=f"{value:g} ({low:g} to {high:g})",
        limit=f"{beyond:g}",
        level=judged(right, result.doubts_about(LOAD)),
        values=(value, low, high),
        holds=low <= truth <= high,
    )
    most = case.limits["width"]
    if high <= most * max(low, 1.0):
        return [found]
    level = judged(False, result.doubts_about(LOAD))
    width = number(high / max(low, 1.0))
    return [found, Finding("upper end / lower end", "", width, number(most), level)]
