"""Checks that the server was the same all the time: latencies, throughput, failures, and the
backlog of an open loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from llama_load.analysis.checks.answer_sources import ttft_quotients, turn_quotients
from llama_load.analysis.checks.client import late
from llama_load.analysis.figures.check import Check, limited
from llama_load.analysis.figures.check_limits import CHANGED, LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.summary import output_counts
from llama_load.analysis.figures.token_counts import came_whole
from llama_load.analysis.statistics.backlog import backlog
from llama_load.analysis.statistics.changes import Change
from llama_load.analysis.statistics.cold_requests import ColdStart
from llama_load.analysis.statistics.constancy import (
    EQUAL_TURN,
    EQUAL_WORK,
    THROUGHPUT,
    TPOT,
    Constancy,
    Named,
    constancy,
    moved_in_a_third,
    of_part,
)
from llama_load.analysis.statistics.constant_load import Flags, Observed
from llama_load.analysis.statistics.detection import least_detected
from llama_load.analysis.statistics.gap_changes import (
    LEAST_SIZE,
    gap_change,
    gap_slices,
    pieces_of,
)
from llama_load.analysis.statistics.slices import Values
from llama_load.ground.units import NS_PER_MS, ns_to_s, quantity
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records

# Of series that are no latencies.
_UNITS = {THROUGHPUT: "tok/s", EQUAL_WORK: "of the usual", EQUAL_TURN: "of the usual"}
# Parts of a run that are looked at alone: by these columns, the largest of each, from this number
# of requests on, for changes above this factor. (More looks find more by chance.) And the most
# requests whose gaps are looked at, where requests are too few.
PART_COLUMNS = ("workload", "model", "adapter", "host")
MOST_FEW_REQUESTS = 1000
MOST_PARTS = 4
LEAST_OF_A_PART = 32
LEAST_CHANGE_OF_A_PART = 1.25
# Work is compared of at most so many requests; of more, every latency shows small changes.
MOST_AT_EQUAL_WORK = 20_000


def changes(evidence: Evidence) -> Iterator[Check]:
    """Whether a latency or the throughput differed in a part of the time, in either direction;
    whether the first requests met a cold server; whether failures came together.

    Evidence: TPOT, TTFT, E2EL and output tokens/s by up to 24 slices of the run's time
    (`analysis.statistics.constancy`). False alarms: below 1 % of runs on queues with a constant server, closed
    and open, n = 100 to 1000 (2 % where the speed of single requests is lognormal); the table with
    the power is in benchmarks/verdict_rates.md, made by benchmarks/steadiness.py. Unknown below 8 slices of two
    request lengths and four requests each, and where only large changes would show
    (`analysis.statistics.detection`).
    """
    if not len(evidence.records):
        return
    if not evidence.is_steady:
        text = "the load was not constant (a ramp, a trace): whether the server was the same all the time is not known"
        yield limited(CHANGED, None, text)
        return
    seen = observed(evidence)
    result = constancy(seen)
    if not _exceeds(result, seen):
        result = _with_parts(result, seen, evidence)
    by_gaps = (
        None if result.changes or TPOT in result.judged else _by_gaps(evidence, seen)
    )
    yield _changed(result, seen) if by_gaps is None else by_gaps
    if (cold := result.cold_start) is not None:
        yield _cold_start(cold)
    if (burst := result.failures) is not None and (
        evidence.figures.failure_ratio or 0
    ) <= LIMITS["failure_ratio"].limit:
        text = f"{burst.inside:.0%} of the requests failed {_when(burst, seen)}, otherwise {burst.outside:.1%}"
        yield limited("failure_burst_ratio", burst.inside, text)


def _cold_start(cold: ColdStart) -> Check:
    """The first tokens at the start: a cold start, or from when on they would be one."""
    text = f"the first token came after {cold.first_ms:.0f} ms at the start, later after {cold.median_ms:.0f} ms (median) "
    text += f"and {cold.slowest_ms:.0f} ms at most"
    if cold.is_cold and cold.was_left_waiting:
        text += f", and {cold.overtook} of {quantity(cold.later, 'later request')} got theirs before it"
        advice = "raise --warmup; where that does not help, the server lets a prompt wait for those of "
        advice += "other slots: raise its -b and -ub"
        return limited("cold_start_ratio", cold.ratio, text, advice=advice)
    if cold.is_cold:
        return limited("cold_start_ratio", cold.ratio, text)
    text += f"; from {cold.least_ms:.0f} ms on it would be called a cold start"
    value = min(cold.ratio, LIMITS["cold_start_ratio"].limit)
    return limited("cold_start_ratio", value, text, detects=cold.detects)


def _exceeds(result: Constancy, seen: Observed) -> bool:
    """Whether a change is larger than its limit."""
    sizes = [
        moved_in_a_third(each.change, seen.begin_ns, seen.end_ns)
        for each in result.changes
    ]
    return max(sizes, default=1.0) > LIMITS[CHANGED].limit


def _by_gaps(evidence: Evidence, seen: Observed) -> Check | None:
    """Of few requests: large changes of their gaps, from when the first ones have their first
    tokens to the last start; None where these are too few, too. (Fewer in flight, before and after,
    have shorter gaps.)"""
    if seen.is_open or not 0 < len(evidence.records) <= MOST_FEW_REQUESTS:
        return None
    ok = evidence.records.ok()
    sizes, gaps_ms = ok.lists("itl_ms")
    pieces = pieces_of(
        ok.optional_instants("first_token_mono_ns"), sizes, gaps_ms.astype(np.float64)
    )
    at_start = seen.started_ns < seen.ended_ns.min()
    begin_ns = int(seen.first_ns[at_start].max(initial=seen.begin_ns))
    slices = gap_slices(pieces, begin_ns, seen.end_ns)
    if slices is None:
        return None
    change = gap_change(pieces, slices)
    if change is None:
        requests = quantity(len(seen.started_ns), "request")
        text = f"{requests} with {len(gaps_ms)} gaps show only changes of {TPOT} by {_factor(LEAST_SIZE)} or more"
        return limited(CHANGED, 1.0, text, detects=LEAST_SIZE)
    return _changed(Constancy([TPOT], [Named(TPOT, change)]), seen)


def _with_parts(whole: Constancy, seen: Observed, evidence: Evidence) -> Constancy:
    """With what changed for a part of the requests alone (a workload, a model, a server), which the
    others dilute."""
    records = _looked_at(evidence)
    changes: list[Named] = []
    for column in PART_COLUMNS:
        names = Counter(name for name in records.strings(column) if name is not None)
        if len(names) < 2:
            continue
        for name, count in names.most_common(MOST_PARTS):
            if count < LEAST_OF_A_PART:
                continue
            found = constancy(of_part(seen, records.equals(column, name))).changes
            changes += [
                Named(f"{each.name} of {name}", each.change)
                for each in found
                if each.change.size > LEAST_CHANGE_OF_A_PART
            ]
    changes.sort(key=lambda named: -named.change.size)
    return replace(whole, changes=changes) if changes else whole


def falling_behind(evidence: Evidence) -> Iterator[Check]:
    """Whether the requests of an open loop arrived faster than the server completed them.

    Evidence: arrivals and completions from when the first requests had been answered to the last
    arrival (`analysis.statistics.backlog`). What the client itself sends late arrives late, and what a late
    client never sent did not arrive. False alarms: below 0.5 % up to 90 % load, about 2 % at
    exactly 100 %. Power: benchmarks/verdict_rates.md.
    """
    if not evidence.is_steady or evidence.gap_ms is None:
        return
    records = evidence.records.where(evidence.records.has("scheduled_mono_ns"))
    late_ms = np.nan_to_num(records.numbers("late_ms"))
    late_ns = (late_ms * NS_PER_MS).astype(np.int64)
    arrived_ns = records.instants("scheduled_mono_ns") + late_ns
    ended_ns = records.instants("ended_mono_ns")
    client_is_late = any(not check.ok for check in late(evidence))
    unsent = 0 if client_is_late else evidence.unsent or 0
    grown = backlog(arrived_ns, ended_ns, unsent=unsent)
    if grown is None:
        yield limited(
            "backlog_ratio",
            None,
            "too few arrivals, or too short a run, to see whether the server keeps up with "
            "the rate",
        )
        return
    seconds = ns_to_s(grown.until_ns - grown.since_ns)
    text = f"{grown.arrivals} requests arrived in the last {seconds:.0f} s and {grown.completions} were completed"
    if grown.deficit > max(grown.limit, LIMITS["backlog_ratio"].limit):
        text = f"the rate exceeds the server's capacity: {text}; in the system were {grown.before}, at the end {grown.after}"
    else:
        text += f"; a server that is {grown.detects:.0%} behind would have been seen"
    yield limited(
        "backlog_ratio", grown.deficit, text, limit=grown.limit, detects=grown.detects
    )


def over_stages(checks: Sequence[Sequence[Check]]) -> Iterator[Check]:
    """Whether the server was the same within each stage, from the main checks of the stages (a
    stage that failed has a line of its own). Between stages the load differs, and so do
    latencies."""
    name = CHANGED
    judged = []
    for stage in checks:
        judged += [check for check in stage if check.name == name][:1]
    if not judged:
        return
    unknown = [check for check in judged if check.ok and not check.is_known]
    if unknown:
        stages = ", ".join(str(check.stage) for check in unknown)
        text = f"whether the server was the same all the time is not known of {len(unknown)} of {quantity(len(judged), 'stage')}"
        yield limited(name, None, f"{text} ({stages}): too few requests")
        return
    if all(check.ok for check in judged):
        detects = max(check.detects or 1.0 for check in judged)
        text = f"within each stage no change by {_factor(detects)} or more in a third of the time"
        yield limited(name, 1.0, text, detects=detects)


def _changed(result: Constancy, seen: Observed) -> Check:
    requests = quantity(len(seen.started_ns), "request")
    if not result.judged:
        return limited(
            CHANGED,
            None,
            f"{requests}: too few to see whether the server was the same all the time",
        )
    if not result.changes and result.explained and result.prompts is not None:
        text = f"the length of prompts changed from {_figure(result.prompts.outside)} to {_figure(result.prompts.inside)} tokens "
        text += f"{_when(result.prompts, seen)}: whether the server was the same all the time is unknown; shuffle the data set"
        return limited(CHANGED, None, text)
    if not result.changes:
        return _unchanged(result, requests)
    largest, *others = result.changes
    advice = _advice(largest, seen)
    change = largest.change
    unit = _UNITS.get(largest.name, "ms")
    size = change.size
    if size <= LIMITS[CHANGED].limit:
        size = moved_in_a_third(change, seen.begin_ns, seen.end_ns)
    if change.at_begin and change.at_end:
        how = "rose" if change.factor > 1 else "fell"
        text = f"{largest.name} {how} from {_figure(change.outside)} to "
        text += f"{_figure(change.inside)} {unit}, {_when(change, seen)}"
        return limited(CHANGED, size, text, advice=advice)
    how = "as high" if change.factor > 1 else "lower"
    when = _when(change, seen)
    text = f"{largest.name} was {change.size:.1f} x {how} {when}: "
    text += f"{_figure(change.inside)} {unit}, otherwise {_figure(change.outside)}"
    also = ", ".join(other.name for other in others)
    text = f"{text} (also: {also})" if also else text
    return limited(CHANGED, size, text, advice=advice)


def _unchanged(result: Constancy, requests: str) -> Check:
    """No change was seen: how large it would have had to be (see `analysis.statistics.detection`)."""
    detects = least_detected(result.detects)
    if detects is None:
        return limited(
            CHANGED,
            None,
            f"{requests}: too few to see whether the server was the same all the time",
        )
    by_name = [
        f"{name} {'n/a' if limit is None else _factor(limit)}"
        for name, limit in result.detects.items()
    ]
    text = f"no change by {_factor(detects)} or more in a third of the time"
    if detects > LIMITS[CHANGED].most_detects:
        text = f"{requests} show only changes by {_factor(detects)} or more in a third of the time"
    return limited(CHANGED, 1.0, f"{text} ({', '.join(by_name)})", detects=detects)


def _factor(value: float) -> str:
    return f"{value:.2f} x" if value < 10 else f"{value:.0f} x"


def _advice(named: Named, seen: Observed) -> str:
    """What to do about a change, by when and in which direction it was."""
    change = named.change
    is_slower = (change.factor > 1) != (named.name == THROUGHPUT)
    if change.at_begin and not change.at_end and is_slower:
        return f"raise --warmup, so that the first {ns_to_s(change.end_ns - seen.begin_ns):.0f} s are not measured"
    if change.at_end and not is_slower:
        return "the server became faster: raise --warmup, or run longer"
    if change.at_begin and not change.at_end:
        return "the server slowed down after a start with boosted clocks or an empty cache: run longer, or raise --warmup"
    if change.at_end:
        return "the server slowed down: look for throttling, full memory, other load; then run again"
    return (
        "look for what else used the server or the machine at that time; then run again"
    )


def _when(change: Change, seen: Observed) -> str:
    """The part of the time, in seconds of the run (or stage)."""
    since, until, whole = (
        ns_to_s(at - seen.begin_ns)
        for at in (change.begin_ns, change.end_ns, seen.end_ns)
    )
    if change.at_begin and change.at_end:
        return "evenly over the time"
    if change.at_begin:
        return f"in the first {until:.0f} s of {whole:.0f} s"
    return (
        f"from {since:.0f} s to the end at {whole:.0f} s"
        if change.at_end
        else f"from {since:.0f} s to {until:.0f} s"
    )


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def observed(evidence: Evidence) -> Observed:
    """The requests as columns. TPOT of later turns of conversations counts; of their TTFT and E2EL,
    whose prompts grow and are cached for an unknown part, nothing does."""
    is_open = _is_open(evidence)
    since = "scheduled_mono_ns" if is_open else "started_mono_ns"
    begin_ns = int(evidence.records.instants(since).min())
    last_ns = int(evidence.records.instants(since).max())
    records = _looked_at(evidence)
    started_ns = records.instants(since)
    ended_ns = records.instants("ended_mono_ns")
    is_ok = records.equals("status", OK)
    is_failed = records.is_failed()
    waited = np.nan_to_num(records.numbers("client_queue_ms")) if is_open else 0.0
    later = records.numbers("turn") > 1

    def latency(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.where(later | ~is_ok, np.nan, records.numbers(name))

    # Among others: the time to the first token of these is that of a whole answer.
    whole = came_whole(records)
    if whole[is_ok].all():
        whole = np.zeros(len(records), np.bool_)

    tokens = np.where(is_ok, output_counts(records), records.numbers("token_events"))
    if np.isnan(tokens[is_ok]).any() or not tokens[is_ok].any():
        tokens = np.ones(len(records))
    return Observed(
        started_ns=started_ns,
        first_ns=records.optional_instants("first_token_mono_ns"),
        ended_ns=ended_ns,
        is_ok=is_ok,
        is_failed=is_failed,
        ttft_ms=np.where(whole, np.nan, latency("ttft_ms") + waited),
        tpot_ms=np.where(
            is_ok,
            records.numbers("tpot_ms"),
            np.where(later, np.nan, _cut_tpot_ms(records)),
        ),
        e2el_ms=latency("e2el_ms") + waited,
        tokens=np.nan_to_num(tokens),
        prompt_tokens=records.numbers("prompt_tokens"),
        begin_ns=begin_ns,
        end_ns=max(
            begin_ns + 1, last_ns if evidence.cut_ns is None else evidence.cut_ns
        ),
        scheduled_ns=started_ns if is_open else None,
        is_even=not later.any(),
        ttft_quotients=_quotients(ttft_quotients, evidence, records, whole),
        turn_quotients=_quotients(turn_quotients, evidence, records, whole),
    )


def _quotients(
    of: Callable[[Evidence, Records], Values | None],
    evidence: Evidence,
    records: Records,
    left_out: Flags,
) -> Values | None:
    """TTFT / what slots, prompts and load explain, one per request; NaN where not judged."""
    if len(records) > MOST_AT_EQUAL_WORK:
        return None
    quotients = of(evidence, records)
    return None if quotients is None else np.where(left_out, np.nan, quotients)


def _looked_at(evidence: Evidence) -> Records:
    """The requests in flight while measured ones were sent."""
    if evidence.beside is None:
        return evidence.records
    since = "scheduled_mono_ns" if _is_open(evidence) else "started_mono_ns"
    measured_ns = evidence.records.instants(since)
    begun = evidence.sent.instants(since) <= int(measured_ns.max())
    ended = evidence.sent.instants("ended_mono_ns") < int(measured_ns.min())
    return evidence.sent.where(begun & ~ended)


def _is_open(evidence: Evidence) -> bool:
    return evidence.gap_ms is not None and bool(
        evidence.records.has("scheduled_mono_ns").all()
    )


def _cut_tpot_ms(records: Records) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The time per token event of requests that were cut, up to there: a server that slows down
    leaves many of them."""
    first = records.optional_instants("first_token_mono_ns")
    last = records.optional_instants("last_token_mono_ns")
    steps = records.numbers("token_events") - 1
    known = (
        records.equals("status", "cancelled")
        & (first >= 0)
        & (last > first)
        & (steps > 0)
    )
    return np.where(
        known, (last - first) / NS_PER_MS / np.where(known, steps, 1.0), np.nan
    )
