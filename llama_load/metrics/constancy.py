"""Whether a server was the same all the time: latencies, throughput and failures by slices of the
run's time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.changes import (
    MOST_SLICES,
    REQUESTS_A_SLICE,
    Change,
    find_change,
    find_trend,
    is_confirmed,
    slices_of,
)
from llama_load.metrics.detection import least_change
from llama_load.metrics.equal_load import at_equal_load, in_flight_at, mean_in_flight
from llama_load.metrics.slices import Instants, Slices, Values
from llama_load.metrics.statistics import log_chosen
from llama_load.units import NS_PER_MS

Flags = NDArray[np.bool_]

TTFT = "TTFT"
TPOT = "TPOT"
E2EL = "E2EL"
THROUGHPUT = "throughput"
# Of the latencies of an open loop (see `metrics.equal_load`).
EQUAL = "at equal load"
# TTFT without its wait for a slot, by what prompts and load explain (see `metrics.equal_work`).
EQUAL_WORK = f"{TTFT} at equal work"
# The same of all turns of conversations, whose cached part is not known. It may grow and fall with
# what the server keeps, so that only changes of twice and more are believed.
EQUAL_TURN = f"{TTFT} at equal turn"
LEAST_SIZE_OF_TURNS = 2.0

# A part whose failures are as unlikely as this (log likelihood ratio) is no chance: about 1 in 1000
# for the most unlikely of 276.
LEAST_LOG_RATIO = 12.5
# A part of the time with another throughput has at least this many requests.
FEWEST_REQUESTS = 4
# The first requests are a cold start if the slowest of them took this many times as long as the
# slowest later one.
COLD = 3.0
# The slowest later one differs from run to run: cold starts of this many times the least are named
# in 58 of 60 simulated closed loops of 8 users with lognormal answers, in all with 1 and 4 users.
COLD_MARGIN = 2.0
# A request that more of the later ones overtook than this was left waiting, while the server worked.
LEFT_WAITING = 0.5
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The requests of a run or stage under constant load, as columns. A latency is NaN where there
    is none."""

    started_ns: Instants
    first_ns: Instants  # -1 where there is none
    ended_ns: Instants
    is_ok: Flags
    is_failed: Flags
    ttft_ms: Values
    tpot_ms: Values  # requests that were cut may have one
    e2el_ms: Values
    tokens: Values  # output tokens, or 1 a request where they are not known of all
    prompt_tokens: Values
    begin_ns: int
    end_ns: int
    scheduled_ns: Instants | None = None  # None in a closed loop
    # each is a draw from the same work, so that throughput should not change (not where
    # conversations grow)
    is_even: bool = True
    # TTFT without its wait for a slot / what prompts and load explain (`metrics.equal_work`); None:
    # not computed
    ttft_quotients: Values | None = None
    # of all turns, where the cached part of later ones is not known; else None
    turn_quotients: Values | None = None
    # those of a part of the requests, which are few among others: only what no queue makes alike
    is_part: bool = False

    @property
    def is_open(self) -> bool:
        """Whether requests were sent by a schedule."""
        return self.scheduled_ns is not None


@dataclass(frozen=True, slots=True)
class Named:
    """A series and the part of the time in which it changed."""

    name: str
    change: Change


@dataclass(frozen=True, slots=True)
class ColdStart:
    """The slowest first token of the requests that met the server at its start, and later ones,
    ms."""

    first_ms: float
    slowest_ms: float  # of the later ones, as the median
    median_ms: float
    requests: int
    later: int
    is_cold: bool
    least_ms: (
        float  # from which on the slowest of the first would be called a cold start
    )
    overtook: int = 0  # later ones with a first token before the slowest had its own

    @property
    def was_left_waiting(self) -> bool:
        """Whether most of the later ones were served while the slowest waited."""
        return self.overtook > LEFT_WAITING * self.later

    @property
    def detects(self) -> float:
        """The detection limit: the ratio that would be named with 95 %."""
        return COLD_MARGIN * self.least_ms / self.slowest_ms

    @property
    def ratio(self) -> float:
        """First / slowest later one."""
        return self.first_ms / self.slowest_ms


@dataclass(frozen=True, slots=True)
class Constancy:
    """What was looked at, and what changed."""

    judged: Sequence[str]  # names of series with enough slices
    changes: Sequence[Named]  # the largest first
    prompts: Change | None = None  # the part of the time with longer or shorter prompts
    explained: Sequence[Named] = ()  # changes that this may explain, up to its square
    failures: Change | None = None  # the part in which failures came together
    cold_start: ColdStart | None = None
    # By name: the least change of it that would have been named (see `metrics.detection`); None
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


def failure_change(seen: Observed) -> Change | None:
    """The part of the time whose share of failed requests is most unlike the rest's, if chance does
    not explain it.

    Its log likelihood ratio against one share for all the time must exceed 12.5. `inside` and
    `outside` are shares, 0 to 1.
    """
    ended = seen.is_ok | seen.is_failed
    count = min(MOST_SLICES, int(ended.sum()) // REQUESTS_A_SLICE)
    if count < 2 or not seen.is_failed.any():
        return None
    slices = Slices(
        int(seen.ended_ns[ended].min()), int(seen.ended_ns[ended].max()) + 1, count
    )
    failures = np.concatenate(
        ([0.0], np.cumsum(slices.number(seen.ended_ns[seen.is_failed])))
    )
    requests = np.concatenate(([0.0], np.cumsum(slices.number(seen.ended_ns[ended]))))
    first, last = np.triu_indices(count + 1, 1)
    is_part = last - first < count
    first = first[is_part]
    last = last[is_part]
    failed = failures[last] - failures[first]
    of = requests[last] - requests[first]
    rest_failed = failures[-1] - failed
    rest = requests[-1] - of
    ratio = (
        _likelihood(failed, of)
        + _likelihood(rest_failed, rest)
        - _likelihood(failures[-1:], requests[-1:])
    )
    ratio[(of == 0) | (rest == 0) | (failed * rest < rest_failed * of)] = 0.0
    best = int(np.argmax(ratio)) if len(ratio) else 0
    if not len(ratio) or ratio[best] < LEAST_LOG_RATIO:
        return None
    return Change(
        slices.edge_ns(int(first[best])),
        slices.edge_ns(int(last[best])),
        float(failed[best] / of[best]),
        float(rest_failed[best] / rest[best]),
        at_begin=bool(first[best] == 0),
        at_end=bool(last[best] == count),
    )


def _likelihood(failed: Values, of: Values) -> Values:
    """k ln(k / n) + (n - k) ln((n - k) / n), with 0 ln 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [
            np.where(number > 0, number * np.log(number / of), 0.0)
            for number in (failed, of - failed)
        ]
    return np.asarray(parts[0] + parts[1])


def cold_start(seen: Observed) -> ColdStart | None:
    """The first tokens of the requests that met the server at its start against those of later ones;
    None where later ones are too few.

    They are a cold start if the slowest exceeds 3 x (the slowest later one + their number x the
    later median), because they are prefilled all at once, and does so per prompt token, too,
    because a long prompt is no cold start. Those that waited for a slot of the others are left out.
    """
    values = seen.e2el_ms if np.isnan(seen.ttft_ms[seen.is_ok]).all() else seen.ttft_ms
    ok = seen.is_ok & (values > 0)
    if not ok.any():
        return None
    at_start = ok & (seen.started_ns < seen.ended_ns[ok].min())
    later = ok & ~at_start
    first_ns = seen.started_ns + values * NS_PER_MS
    early = at_start & ~_waited_for_a_slot(seen, first_ns, at_start, later)
    # none is early where requests took no time
    if not early.any() or later.sum() < max(8, early.sum()):
        return None
    tokens = np.maximum(np.nan_to_num(seen.prompt_tokens, nan=1.0), 1.0)
    least_ms = _least_cold(values, early, later)
    least_per_token = _least_cold(values / tokens, early, later)
    is_cold = values[early].max() > least_ms
    is_cold &= (values / tokens)[early].max() > least_per_token
    overtook = first_ns[later] < first_ns[early].max()
    return ColdStart(
        float(values[early].max()),
        float(values[later].max()),
        float(np.median(values[later])),
        int(early.sum()),
        int(later.sum()),
        bool(is_cold),
        max(least_ms, least_per_token * float(np.median(tokens[early]))),
        int(overtook.sum()),
    )


def _waited_for_a_slot(
    seen: Observed, first_ns: Values, at_start: Flags, later: Flags
) -> Flags:
    """The first requests whose first token came when another one's text had ended, in their turn:
    no later request overtook them."""
    text_ns = (seen.tokens - 1) * seen.tpot_ms * NS_PER_MS
    text_end_ns = np.fmin(first_ns + text_ns, seen.ended_ns)
    behind_one = first_ns > text_end_ns[at_start].min(initial=np.inf)
    overtaken = first_ns > first_ns[later].min(initial=np.inf)
    return np.asarray(at_start & behind_one & ~overtaken)


def _least_cold(waits: Values, early: Flags, later: Flags) -> float:
    """From which wait on the slowest first request is a cold start."""
    together = (int(early.sum()) - 1) * float(np.median(waits[later]))
    return COLD * (float(waits[later].max()) + together)
