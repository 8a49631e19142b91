"""Whether a server was the same all the time: latencies, throughput and failures by slices of the
run's time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from llama_load.analysis.statistics.changes import (
    Change,
    find_change,
    find_trend,
    is_confirmed,
    slices_of,
)
from llama_load.analysis.statistics.cold_requests import ColdStart, cold_start
from llama_load.analysis.statistics.constant_load import Flags, Observed
from llama_load.analysis.statistics.detection import least_change
from llama_load.analysis.statistics.equal_load import at_equal_load, mean_in_flight
from llama_load.analysis.statistics.failure_change import failure_change
from llama_load.analysis.statistics.slices import Instants, Slices, Values
from llama_load.analysis.statistics.statistics import log_chosen
from llama_load.run_folder.arithmetic.in_flight import in_flight_at

TTFT = "TTFT"
TPOT = "TPOT"
E2EL = "E2EL"
THROUGHPUT = "throughput"
# Of the latencies of an open loop (see `analysis.statistics.equal_load`).
EQUAL = "at equal load"
# TTFT without its wait for a slot, by what prompts and load explain (see `analysis.statistics.equal_work`).
EQUAL_WORK = f"{TTFT} at equal work"
# The same of all turns of conversations, whose cached part is not known. It may grow and fall with
# what the server keeps, so that only changes of twice and more are believed.
EQUAL_TURN = f"{TTFT} at equal turn"
LEAST_SIZE_OF_TURNS = 2.0

# A part of the time with another throughput has at least this many requests.
FEWEST_REQUESTS = 4
# Longer answers explain a longer E2EL up to this many times their change, which scatters.
LENGTH_MARGIN = 1.1
# Medians of few requests, each of which waited for others, scatter more.
LENGTH_MARGIN_OF_FEW = 1.3
# Few requests show a step of TTFT where all before it are below all after it, or above, by this
# factor, at least so many on each side, and chance would part them so in less than one of a million.
LEAST_STEP = 2.0
LEAST_OF_A_SIDE = 6
LEAST_LOG_WAYS = 14.0
# A time that counts as an instant.
INSTANT_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Named:
    """A series and the part of the time in which it changed."""

    name: str
    change: Change


@dataclass(frozen=True, slots=True)
class Constancy:
    """What was looked at, and what changed."""

    judged: Sequence[str]  # names of series with enough slices
    changes: Sequence[Named]  # the largest first
    prompts: Change | None = None  # the part of the time with longer or shorter prompts
    explained: Sequence[Named] = ()  # changes that this may explain, up to its square
    failures: Change | None = None  # the part in which failures came together
    cold_start: ColdStart | None = None
    # By name: the least change of it that would have been named (see `analysis.statistics.detection`); None
    # where no change would.
    detects: Mapping[str, float | None] = field(default_factory=dict)


def constancy(seen: Observed) -> Constancy:
    """Look at each series for a part of the time that differs."""
    judged: list[str] = []
    changes: list[Named] = []
    detects: dict[str, float | None] = {}
    for series in _series(seen):
        judged.append(series.name)
        detects[series.name] = _detected(series)
        candidates = (
            find(series.slices, series.levels, has_waits=series.has_waits)
            for find in (find_change, find_trend)
        )
        change = next(
            (candidate for candidate in candidates if candidate is not None), None
        )
        if (
            change is not None
            and change.size >= series.least_size
            and _is_confirmed(series, change)
        ):
            changes.append(Named(series.name, change))
    are_few = TTFT not in judged
    if not changes and are_few and (step := _step_of_few(seen)):
        changes.append(Named(TTFT, step))
    named_by_work = {named.name for named in changes} & {EQUAL_WORK, TPOT}
    has_queue_apart = EQUAL_WORK in judged and not named_by_work
    changes = [
        named
        for named in changes
        if not _is_of_longer_answers(
            seen, named, has_queue_apart=has_queue_apart, are_few=are_few
        )
    ]
    changes.sort(key=lambda change: -change.change.size)
    prompts = _prompt_change(seen)
    explained = []
    for named in changes:
        own = prompt_change_of(seen, named.change)
        if _is_explained(named, prompts):
            explained.append(named)
        elif _is_explained(named, own):
            explained.append(named)
            prompts = own
    return Constancy(
        judged,
        [named for named in changes if named not in explained],
        prompts,
        explained,
        failure_change(seen),
        cold_start(seen),
        detects,
    )


def _step_of_few(seen: Observed) -> Change | None:
    """The time from which on TTFT was another in all requests, where these are too few for slices.
    Not in an open loop, whose queue may grow."""
    if seen.is_open or seen.is_part:
        return None
    known = np.flatnonzero(~np.isnan(seen.ttft_ms) & seen.is_ok & ~_at_start(seen))
    known = known[np.argsort(seen.started_ns[known], kind="stable")]
    values = seen.ttft_ms[known]
    most_before = np.maximum.accumulate(values)[:-1]
    least_before = np.minimum.accumulate(values)[:-1]
    most_after = np.maximum.accumulate(values[::-1])[::-1][1:]
    least_after = np.minimum.accumulate(values[::-1])[::-1][1:]
    rises = least_after >= LEAST_STEP * most_before
    falls = least_before >= LEAST_STEP * most_after
    for place in np.flatnonzero(rises | falls).tolist():
        before = values[: place + 1]
        after = values[place + 1 :]
        if min(len(before), len(after)) < LEAST_OF_A_SIDE:
            continue
        if log_chosen(len(values), len(before)) >= LEAST_LOG_WAYS:
            return Change(
                int(seen.started_ns[known[place + 1]]),
                seen.end_ns,
                float(np.median(after)),
                float(np.median(before)),
                at_begin=False,
                at_end=True,
            )
    return None


def _detected(series: _Series) -> float | None:
    """The least change of it that would have been named."""
    least = least_change(series.levels, series.values, has_waits=series.has_waits)
    return None if least is None else max(least, series.least_size)


def of_part(seen: Observed, is_part: Flags) -> Observed:
    """The same time and load, with the latencies of a part of the requests alone."""
    return replace(
        seen,
        ttft_ms=np.where(is_part, seen.ttft_ms, np.nan),
        tpot_ms=np.where(is_part, seen.tpot_ms, np.nan),
        e2el_ms=np.where(is_part, seen.e2el_ms, np.nan),
        prompt_tokens=np.where(is_part, seen.prompt_tokens, np.nan),
        ttft_quotients=_those_of(seen.ttft_quotients, is_part),
        turn_quotients=_those_of(seen.turn_quotients, is_part),
        is_even=False,
        is_part=True,
    )


def _those_of(quotients: Values | None, is_part: Flags) -> Values | None:
    return None if quotients is None else np.where(is_part, quotients, np.nan)


def moved_in_a_third(change: Change, begin_ns: int, end_ns: int) -> float:
    """The factor in a third of the time that would move the mean of all the time as much as this
    change does; its own, if that is larger.

    1.24 x in half of the time moves the mean by 12 %, as 1.36 x in a third. An even change: by half
    of its size.
    """
    share = 0.5
    if not (change.at_begin and change.at_end):
        share = (change.end_ns - change.begin_ns) / max(1, end_ns - begin_ns)
    return max(change.size, 1 + 3 * min(share, 1 - share) * (change.size - 1))


def _is_explained(named: Named, prompts: Change | None) -> bool:
    """Whether other prompts may explain a change: up to its square, of TPOT up to its root, because
    a token reads the model and the context, and the model is read whatever the context is."""
    if prompts is None:
        return False
    most = prompts.size**0.5 if named.name.startswith(TPOT) else prompts.size**2
    return named.change.size <= most


def _prompt_change(seen: Observed) -> Change | None:
    """The part of the time in which prompts were longer or shorter, as in a data set that is sorted
    by length."""
    for series in _latency(
        seen,
        "prompt tokens",
        np.where(seen.prompt_tokens > 0, seen.prompt_tokens, np.nan),
        seen.started_ns,
    ):
        candidates = (
            find(series.slices, series.levels) for find in (find_change, find_trend)
        )
        confirmed = [
            change
            for change in candidates
            if change is not None
            and is_confirmed(change, series.values, series.middle_ns)
        ]
        return max(confirmed, key=lambda change: change.size, default=None)
    return None


def prompt_change_of(seen: Observed, part: Change) -> Change | None:
    """How much longer or shorter prompts were in the part of the time of another change; None where
    the rank-sum test of the requests explains it by chance.

    The lengths of prompts are planned, not measured: no queue makes neighbours alike, so that their
    trend needs no allowance for correlation, which would hide an even one. Prompts of 400 to 1600
    tokens, in this order: 4 x over all the time.
    """
    return _length_change(seen, seen.prompt_tokens, part)


def _is_of_longer_answers(
    seen: Observed, named: Named, *, has_queue_apart: bool, are_few: bool
) -> bool:
    """Whether E2EL, or TTFT, changed because answers were longer or shorter, as in a data set that
    is sorted: by no more than their length, in the same direction. TPOT and TTFT show a slower
    server; TTFT contains the wait for others' answers, so that it shows one only where TTFT without
    that wait is not judged, or changed, too (`has_queue_apart`: it is, and did not). It is never
    judged where `are_few` requests: there longer answers explain TTFT, too."""
    if named.name not in (E2EL, TTFT) or np.isnan(seen.tpot_ms).all():
        return False
    if named.name == TTFT and not (has_queue_apart or are_few):
        return False
    answers = _length_change(seen, seen.tokens, named.change)
    if answers is None or (answers.factor > 1) != (named.change.factor > 1):
        return False
    margin = LENGTH_MARGIN_OF_FEW if are_few else LENGTH_MARGIN
    return named.change.size <= margin * answers.size


def _length_change(seen: Observed, lengths: Values, part: Change) -> Change | None:
    """How much longer or shorter prompts or answers were in the part of the time of another
    change."""
    known = lengths > 0
    tokens = lengths[known]
    started_ns = seen.started_ns[known]
    middle_ns = (started_ns + seen.ended_ns[known]) // 2
    is_even = part.at_begin and part.at_end
    begin_ns = (part.begin_ns + part.end_ns) // 2 if is_even else part.begin_ns
    is_in = (middle_ns >= begin_ns) & (middle_ns < part.end_ns)
    if is_in.all() or not is_in.any():
        return None
    logs = np.log(tokens)
    inside = float(logs[is_in].mean())
    outside = float(logs[~is_in].mean())
    if is_even:  # the middles of both halves are half of the time apart
        half = (inside - outside) / 2
        inside += half
        outside -= half
    change = replace(part, inside=math.exp(inside), outside=math.exp(outside))
    return change if is_confirmed(change, tokens, middle_ns) else None


@dataclass(frozen=True, slots=True)
class _Series:
    """A level per slice, and the requests that it comes from: value (of throughput: none) and
    middle of each. `by_one`: the factor by which a single slow request changes the level while it
    lasts."""

    name: str
    slices: Slices
    levels: Values
    values: Values
    middle_ns: Instants
    by_one: float = 1.0

    @property
    def least_size(self) -> float:
        """The smallest change of it that is believed."""
        return LEAST_SIZE_OF_TURNS if self.name == EQUAL_TURN else 1.0

    @property
    def has_waits(self) -> bool:
        """Whether waits in a queue are part of it, so that neighbours are alike."""
        return self.name not in (TPOT, THROUGHPUT, f"{TPOT} {EQUAL}")


def _is_confirmed(series: _Series, change: Change) -> bool:
    """Whether enough requests show it."""
    if len(series.values):
        return is_confirmed(
            change, series.values, series.middle_ns, has_waits=series.has_waits
        )
    inside = (series.middle_ns >= change.begin_ns) & (series.middle_ns < change.end_ns)
    return int(inside.sum()) >= FEWEST_REQUESTS and change.size > series.by_one**3


def _series(seen: Observed) -> Iterator[_Series]:
    """Each series that has enough slices."""
    decoding = ~np.isnan(seen.tpot_ms) & (seen.first_ns >= 0)
    for name, of_all in (
        (EQUAL_WORK, seen.ttft_quotients),
        (EQUAL_TURN, seen.turn_quotients),
    ):
        if of_all is None:
            continue
        quotients = np.where(_at_start(seen), np.nan, of_all)
        # without the wait in a queue, which would spread it over the time before
        is_answered = seen.first_ns >= 0
        until_ns = np.where(is_answered, seen.first_ns, seen.ended_ns)
        yield from _latency(seen, name, quotients, until_ns - INSTANT_NS, until_ns)
    if seen.is_open:
        tpot = np.where(decoding, seen.tpot_ms, np.nan)
        load = mean_in_flight(
            seen.started_ns, seen.ended_ns, _answer_begun_ns(seen), seen.ended_ns
        )
        yield from _latency(
            seen, f"{TPOT} {EQUAL}", at_equal_load(tpot, load), seen.first_ns
        )
        if seen.is_part:
            return
        name, values = (
            (E2EL, seen.e2el_ms)
            if np.isnan(seen.ttft_ms[seen.is_ok]).all()
            else (TTFT, seen.ttft_ms)
        )
        load = in_flight_at(seen.started_ns, seen.ended_ns, seen.started_ns)
        yield from _latency(
            seen,
            f"{name} {EQUAL}",
            at_equal_load(np.where(seen.is_ok, values, np.nan), load),
            seen.started_ns,
        )
        return
    yield from _latency(
        seen, TPOT, np.where(decoding, seen.tpot_ms, np.nan), seen.first_ns
    )
    if seen.is_part:
        return
    later = seen.is_ok & ~_at_start(seen)
    yield from _latency(
        seen, TTFT, np.where(later, seen.ttft_ms, np.nan), seen.started_ns
    )
    yield from _latency(
        seen, E2EL, np.where(later, seen.e2el_ms, np.nan), seen.started_ns
    )
    if (
        seen.is_even
        and (
            slices := slices_of(
                seen.begin_ns, seen.end_ns, seen.started_ns, seen.ended_ns
            )
        )
        is not None
    ):
        levels = tokens_per_s(seen, slices)
        levels = np.maximum(levels, 0.01 * float(np.median(levels)))
        served_ns = float(
            (seen.ended_ns - _answer_begun_ns(seen))[~seen.is_failed].sum()
        )
        served = served_ns / max(1, seen.end_ns - seen.begin_ns)  # at once, on average
        by_one = served / (served - 1) if served > 1 else math.inf
        yield _Series(
            THROUGHPUT,
            slices,
            levels,
            np.zeros(0),
            (seen.started_ns + seen.ended_ns) // 2,
            by_one,
        )


def tokens_per_s(seen: Observed, slices: Slices) -> Values:
    """Output tokens/s in each slice: those of an answer are spread evenly from its first token to
    its end."""
    answered = ~seen.is_failed
    return (
        slices.amount(
            seen.tokens[answered],
            _answer_begun_ns(seen)[answered],
            seen.ended_ns[answered],
        )
        / slices.seconds
    )


def _answer_begun_ns(seen: Observed) -> Instants:
    """The first token, or the start of a request without a stream."""
    return np.asarray(np.where(seen.first_ns >= 0, seen.first_ns, seen.started_ns))


def _latency(
    seen: Observed,
    name: str,
    values: Values,
    since_ns: Instants,
    until_ns: Instants | None = None,
) -> Iterator[_Series]:
    """The series of a latency, each value weighted by its time (None: until the answer's end)."""
    chosen = ~np.isnan(values)
    ended_ns = (seen.ended_ns if until_ns is None else until_ns)[chosen]
    values = values[chosen]
    since_ns = since_ns[chosen]
    slices = slices_of(seen.begin_ns, seen.end_ns, since_ns, ended_ns)
    if slices is not None:
        logs = np.log(np.maximum(values, 1e-3))
        yield _Series(
            name,
            slices,
            np.exp(slices.mean(logs, since_ns, ended_ns)),
            values,
            (since_ns + ended_ns) // 2,
        )


def _at_start(seen: Observed) -> Flags:
    """The requests that started before any had ended: with several users they met an idle server,
    all at once."""
    if not seen.is_ok.any():
        return np.zeros(len(seen.started_ns), dtype=np.bool_)
    early = np.asarray(seen.started_ns < seen.ended_ns[seen.is_ok].min())
    return early if int(early.sum()) > 1 else np.zeros_like(early)
