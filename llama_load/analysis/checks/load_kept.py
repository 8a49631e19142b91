"""Checks of the load: was it the configured one, and did all of it end?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.rates import in_flight_imbalance, peak_in_flight
from llama_load.analysis.figures.spoiled import COMPARISON, E2EL, TPOT, TTFT
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.statistics.censoring import cut_shift
from llama_load.analysis.statistics.statistics import known
from llama_load.ground.failure_kind import FailureKind
from llama_load.ground.units import NS_PER_MS, quantity
from llama_load.run_folder.observed.record import ABORTED, OK
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_description import NO_ANSWER

# Prompts longer than this percentile of the answered ones are long.
LONG_PROMPT = 95.0
# A closed loop with a smaller share of its users in flight, on average, is another load.
LEAST_IN_FLIGHT = 0.8
# Where more than this share of the requests was cut at the end of the time, the run has hardly
# measured its load.
MOST_CUT = 0.5
# Columns whose values have tables of their own, and their names.
PARTS = {
    "workload": "workload",
    "model": "model",
    "adapter": "adapter",
    "host": "host",
    "turn": "turn",
}
# Statuses with which a proxy ends what takes too long.
OF_PROXIES = ("http_408", "http_504")
# The most parts that a sentence names.
MOST_PARTS = 5


def stages(figures: list[StageFigures]) -> Iterator[Check]:
    """Stages that did not end or did not reach their concurrency, and those of whose requests too
    many ended after them, else the one with the largest share of such."""
    if not figures:
        return
    missing = [stage.name for stage in figures if not stage.is_whole]
    if missing:
        yield limited(
            "missing_stages",
            len(missing),
            f"stages that did not end: {', '.join(missing)}",
        )
    for stage in figures:
        if not stage.is_reached:
            text = "its concurrency was not reached (think times, or lost users)"
            missed = limited("missed_levels", 1, text)
            yield replace(missed, stage=stage.name)
    crossing = [_crossing(stage) for stage in figures if stage.crossing_ratio]
    failed = [check for check in crossing if not check.ok]
    if crossing and not failed:
        failed = [max(crossing, key=lambda check: check.value or 0.0)]
    yield from failed


def _crossing(stage: StageFigures) -> Check:
    ratio = stage.crossing_ratio
    text = (
        f"{ratio:.0%} of its requests ended after it and are left out of its latencies"
    )
    return replace(limited("crossing_ratio", ratio, text), stage=stage.name)


def dropped(evidence: Evidence) -> Iterator[Check]:
    """Arrivals that were dropped at the limit of requests in flight (--on-limit drop)."""
    if count := evidence.dropped:
        total = count + len(evidence.records)
        text = f"{count} of {quantity(total, 'arrival')} were dropped at the limit of requests in flight"
        yield limited(
            "dropped_ratio",
            count / total,
            text + ": the server got less than the scheduled load",
        )


def unanswered(evidence: Evidence) -> Iterator[Check]:
    """Arrivals without an answer when the time cut an open loop."""
    if evidence.unsent is None:
        return
    missing = evidence.unsent + (
        evidence.figures.cancelled if evidence.stage is None else 0
    )
    scheduled = evidence.unsent + len(evidence.records)
    text = f"{missing} of {quantity(scheduled, 'arrival')} were not sent or not answered at the end of the time"
    yield limited("unanswered_ratio", missing / scheduled if scheduled else None, text)


def task_exceptions(evidence: Evidence) -> Iterator[Check]:
    """Exceptions in tasks / (exceptions + LLM requests that ended)."""
    exceptions = evidence.others.exceptions
    raised = evidence.others.raised
    if not exceptions:
        return
    most = max(exceptions, key=lambda exception: exception.count)
    also = (
        f" and {quantity(len(exceptions) - 1, 'other')}" if len(exceptions) > 1 else ""
    )
    text = f"{quantity(raised, 'exception')} in tasks of the locustfile: {most.count} × {most.text}{also}"
    ended = evidence.figures.completed + evidence.figures.failed
    yield limited("task_exception_ratio", raised / (raised + ended), text)


def excess_in_flight(evidence: Evidence) -> Iterator[Check]:
    """Requests in flight at one instant beyond the configured concurrency, by more than the
    workers' clocks explain."""
    # sub-agents run beside each other, as configured
    records = evidence.sent.where(~evidence.sent.has("agent"))
    clocks_ms = max(
        (worker.clock_uncertainty_ms or 0.0 for worker in evidence.health), default=0.0
    )
    most = peak_in_flight(records, within_ns=round(2 * clocks_ms * NS_PER_MS))
    users = evidence.users
    if users is not None and most > users:
        yield limited(
            "excess_in_flight",
            most - users,
            f"{most} requests were in flight at once, configured were {users}",
        )


def users(evidence: Evidence) -> Iterator[Check]:
    """A ramp of users within the measurement, and changes of the number of users."""
    seconds = evidence.figures.duration_s
    if evidence.ramp_s is not None and seconds:
        text = (
            f"a ramp of {evidence.ramp_s:.0f} s is part of the {seconds:.0f} s measured"
        )
        yield limited("ramp_ratio", evidence.ramp_s / seconds, text)
    if len(evidence.users_asked) > 1:
        numbers = ", ".join(map(str, evidence.users_asked))
        yield limited(
            "users_changed",
            len(evidence.users_asked) - 1,
            f"the number of users changed during the run: {numbers}",
        )
    records = evidence.records
    # between turns, as configured
    has_waits = evidence.beside is not None or (records.numbers("turn") > 1).any()
    if (
        evidence.users is not None
        and evidence.gap_ms is None
        and seconds
        and not has_waits
    ):
        in_flight_ns = (
            records.instants("ended_mono_ns") - records.instants("started_mono_ns")
        ).sum()
        mean = float(in_flight_ns) / NS_PER_MS / 1e3 / seconds
        most = evidence.figures.peak_in_flight
        if most < evidence.users or mean < LEAST_IN_FLIGHT * evidence.users:
            text = f"of {evidence.users} configured requests {mean:.1f} were in flight on average, {most} at most: "
            text += "the figures are those of a lower load (few requests for so many users, or waits of users)"
            yield information("mean_in_flight", mean, text)


def cut(evidence: Evidence) -> Iterator[Check]:
    """How far requests cut at the end would move the latencies (see `analysis.statistics.censoring`); where the
    run waited for them, how far the falling load moved TPOT. In a stage, requests that ended after
    it count as cut."""
    if evidence.cut_ns is None:
        return
    records = evidence.records.where(
        ~(evidence.records.is_failed() | evidence.records.equals("status", ABORTED))
    )
    ended_ns = records.instants("ended_mono_ns")
    is_late = ended_ns > evidence.cut_ns
    is_cut = ~records.equals("status", OK) | (is_late & (evidence.stage is not None))
    if is_cut.any():
        text = f"{int(is_cut.sum())} of {quantity(len(records), 'request')} were cut at the end of the time"
        until_ns = np.minimum(ended_ns[is_cut], evidence.cut_ns)
        yield cut_check(
            "cut_shift",
            text,
            records.where(~is_cut),
            records.where(is_cut),
            until_ns,
            percentiles=evidence.percentiles,
        )
    elif is_late.any():
        tpot_ms = records.numbers("tpot_ms")
        shift = cut_shift(
            tpot_ms[~is_late],
            known(tpot_ms[is_late]),
            np.zeros(0),
            evidence.percentiles,
        )
        text = f"{int(is_late.sum())} of {quantity(len(records), 'request')} ended after the run's time, under falling load"
        yield limited(
            "cut_shift", shift, f"{text}; they move TPOT by {shift:.1%}", spoils=(TPOT,)
        )


def failed_late(evidence: Evidence) -> Iterator[Check]:
    """How far requests that failed would move the latencies of the others, if it were known how
    long they would have taken. One that failed after a long wait was slow, and one with a long
    prompt would have been; another one that was refused at once says nothing. Above the limit of
    failures the verdict is FAILED anyway."""
    failed = evidence.records.failed()
    ok = evidence.records.ok()
    if (
        len(failed)
        and len(ok)
        and (evidence.figures.failure_ratio or 0) <= LIMITS["failure_ratio"].limit
    ):
        text = f"{len(failed)} of {quantity(len(failed) + len(ok), 'request')} failed and are in no latency"
        until_ns = np.maximum(
            failed.instants("ended_mono_ns"), _would_have_waited_ns(failed, ok)
        )
        check = cut_check(
            "failed_shift", text, ok, failed, until_ns, percentiles=evidence.percentiles
        )
        if not any(map(_may_be_of_a_limit, failed.values_of("status"))):
            check = replace(check, advice="see the hint of their failure class")
        yield check


def _may_be_of_a_limit(status: str) -> bool:
    """Whether a time limit, of this client or of a proxy, may have ended such requests."""
    for kind in FailureKind:
        if kind == status:
            return bool(kind.trait)
    return status in OF_PROXIES


def _would_have_waited_ns(failed: Records, ok: Records) -> NDArray[np.int64]:
    """The instant until which each failed request would have waited at least, if its prompt is
    longer than 95 % of the answered ones: as long as half of the longest 5 % waited for their first
    token (or answer). Its start for the others."""
    started = failed.instants("started_mono_ns")
    chars = ok.numbers("prompt_chars")
    long = (
        np.nanpercentile(chars, LONG_PROMPT) if not np.isnan(chars).all() else math.inf
    )
    waits_ms = ok.numbers(
        "ttft_ms" if not np.isnan(ok.numbers("ttft_ms")).all() else "e2el_ms"
    )
    least_ms = np.nanmedian(waits_ms[chars >= long]) if (chars >= long).any() else 0.0
    waited_ms = np.where(
        failed.numbers("prompt_chars") > long, np.nan_to_num(least_ms), 0.0
    )
    return np.asarray(started + np.round(waited_ms * NS_PER_MS).astype(np.int64))


def censored_parts(evidence: Evidence) -> Iterator[Check]:
    """Workloads, models, adapters, hosts and turns whose own figures lack requests that were cut,
    given up, or failed, by how far these would move their latencies, or by their share of failures.
    They may be too few to move the figures of the run."""
    moved = []
    for column, name in PARTS.items():
        values = evidence.records.values_of(column)
        for value in values if len(values) > 1 else ():
            part = evidence.records.where(evidence.records.equals(column, value))
            ok = part.ok()
            missing = part.where(~part.equals("status", OK))
            if not len(missing) or not len(ok):
                continue
            latency, shift = _largest(
                _shifts(
                    ok, missing, missing.instants("ended_mono_ns"), evidence.percentiles
                )
            )
            failed = len(part.failed()) / len(part)
            if (
                shift > LIMITS["cut_shift"].limit
                or failed > LIMITS["failure_ratio"].limit
            ):
                how = (
                    f"{latency} {shift:+.0%}"
                    if math.isfinite(shift)
                    else f"percentiles of {latency} are unknown"
                )
                moved.append(
                    (
                        max(shift, failed),
                        f"{name} {value} ({len(missing)} of {len(part)}: {how})",
                    )
                )
    if moved:
        moved.sort(key=lambda part: -part[0])
        more = (
            f", and {len(moved) - MOST_PARTS} others" if len(moved) > MOST_PARTS else ""
        )
        text = "figures of some parts lack requests that were cut, given up or failed, and move with them: "
        yield information(
            "censored_parts",
            len(moved),
            text + ", ".join(text for _, text in moved[:MOST_PARTS]) + more,
        )


def cut_check(
    check: str,
    text: str,
    answered: Records,
    cut: Records,
    until_ns: NDArray[np.int64],
    *,
    percentiles: Sequence[float],
    most_cut: float = MOST_CUT,
) -> Check:
    """How far the requests in `cut`, which ended at `until_ns` before their answer did, would move
    the latencies of `answered`.

    It spoils the latencies that move; where more than `most_cut` of all requests were cut, the
    run."""
    shifts = _shifts(answered, cut, until_ns, percentiles)
    latency, shift = _largest(shifts)
    moved = tuple(name for name, value in shifts.items() if value > LIMITS[check].limit)
    share = len(cut) / (len(cut) + len(answered))
    spoils = (*moved, COMPARISON) if share > most_cut else moved
    if math.isinf(shift):
        return limited(
            check, shift, f"{text}: percentiles of {latency} are unknown", spoils=spoils
        )
    return limited(
        check,
        shift,
        f"{text}; counting them moves {latency} by {shift:.1%}",
        spoils=spoils,
    )


def _shifts(
    answered: Records,
    cut: Records,
    until_ns: NDArray[np.int64],
    percentiles: Sequence[float],
) -> dict[str, float]:
    """How far the requests in `cut` move each latency."""
    started = cut.instants("started_mono_ns")
    first = cut.optional_instants("first_token_mono_ns")
    waited_ms = (until_ns - started) / NS_PER_MS
    has_first = (first >= 0) & (first <= until_ns)
    shifts = {
        E2EL: cut_shift(
            answered.numbers("e2el_ms"), np.zeros(0), waited_ms, percentiles
        )
    }
    if not np.isnan(ttft_ms := answered.numbers("ttft_ms")).all():
        first_ms = (first - started)[has_first] / NS_PER_MS
        shifts[TTFT] = cut_shift(ttft_ms, first_ms, waited_ms[~has_first], percentiles)
    return shifts


def _largest(shifts: dict[str, float]) -> tuple[str, float]:
    """The latency that moves most, and by how much."""
    latency = max(shifts, key=shifts.__getitem__)
    return latency, shifts[latency]


def imbalance(evidence: Evidence) -> Iterator[Check]:
    """How unevenly requests in flight were spread over the replicas."""
    value = in_flight_imbalance(evidence.records, evidence.hosts)
    if value is not None:
        text = f"requests in flight were spread over {len(evidence.hosts)} replicas: {value:.2f} (0 even, 1 all on one)"
        yield limited("in_flight_imbalance", value, text)


def unused_rpc_workers(evidence: Evidence) -> Iterator[Check]:
    """RPC workers that a server was to use, and that hold no part of the model."""
    if unused := list(evidence.unused_rpc_workers):
        text = f"{quantity(len(unused), 'RPC worker')} unused by the server: {', '.join(unused)}"
        yield limited("unused_rpc_workers", len(unused), text)


def server_changes(evidence: Evidence) -> Iterator[Check]:
    """Changes of the server between the start and the end of the run. A missing answer at the end
    is information."""
    silent = [text for text in evidence.server_changes if NO_ANSWER in text]
    changes = [text for text in evidence.server_changes if NO_ANSWER not in text]
    if changes:
        yield limited(
            "server_changes",
            len(changes),
            f"the server changed during the run: {'; '.join(changes)}",
        )
    if silent:
        yield information(
            "server_silent",
            len(silent),
            f"check of the server after the run: {'; '.join(silent)}",
        )
