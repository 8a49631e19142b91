"""Checks of runs whose users hang up: how far that moves the figures of the others, and whether
servers stop working for them."""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.analysis.checks.load_kept import cut_check
from llama_load.analysis.figures.check import Check, limited
from llama_load.analysis.figures.evidence import Evidence
from llama_load.ground.units import quantity
from llama_load.run_folder.arithmetic.freeing_times import LATE_MS
from llama_load.run_folder.observed.hang_up_check import HangUpCheck

# Who hangs up after a time hangs up on slow requests: where more than this share did, the answered
# ones are not like them.
MOST_ABORTED = 0.05


def censored(evidence: Evidence) -> Iterator[Check]:
    """How far requests given up would move the latencies of the others, if it were known how long
    they would have taken (see `analysis.statistics.censoring`). Who hangs up after a time hangs up on slow
    requests."""
    ok = evidence.records.ok()
    aborted = evidence.records.aborted()
    if len(aborted):
        text = f"{quantity(len(aborted), 'request')} of {len(aborted) + len(ok)} were given up by their users and are in no latency"
        if evidence.aborts_by_tokens and aborted.has("first_token_mono_ns").all():
            yield limited(
                "aborted_shift",
                0.0,
                f"{text}, after a number of tokens: the slow ones are not chosen",
            )
            return
        until_ns = aborted.instants("ended_mono_ns")
        yield cut_check(
            "aborted_shift",
            text,
            ok,
            aborted,
            until_ns,
            percentiles=evidence.percentiles,
            most_cut=MOST_ABORTED,
        )


def slots_freed(evidence: Evidence) -> Iterator[Check]:
    """Requests that servers worked on when nobody waited for an answer any more."""
    for check in evidence.hang_ups:
        if check.healthy is False:
            yield limited(
                "slots_not_freed",
                1,
                f"{check.host} did not answer at /health after users had hung up",
            )
        elif check.busy is None:
            yield limited(
                "slots_not_freed",
                None,
                f"{check.host} does not report what it works on: slots may not have been freed",
            )
        elif check.busy:
            yield limited(
                "slots_not_freed", check.busy, _still_at_work(check, check.busy)
            )
        elif check.freeing is not None and check.freeing.late:
            late = quantity(check.freeing.late, "request")
            text = f"{check.host} worked on {late} for more than {LATE_MS / 1e3:g} s after their users had hung up"
            yield limited("slots_not_freed", check.freeing.late, text)
        else:
            yield limited(
                "slots_not_freed",
                0,
                f"{check.host} was idle {check.idle_after_ms or 0:.0f} ms after the last request",
            )


def _still_at_work(check: HangUpCheck, busy: int) -> str:
    waited_s = check.waited_ms / 1e3
    text = f"{check.host} still works on {quantity(busy, 'request')} "
    text += f"{waited_s:.0f} s after the last request ended"
    if check.freeing is None or check.freeing.stuck_ms is None:
        return text
    return f"{text}, and {check.freeing.stuck_ms / 1e3:.0f} s after the first of their users hung up"
