"""First tokens that came before anything was generated: the gap after them is that of the prompt,
and nothing else explains it.

A first gap is also long where the server works on the prompts of others, or where an answer waits
for a place among those that are decoded (disaggregated prefill). Both show in the other requests:
the time in which others wait for their first token, as far as it stretches other gaps as well; and
as many answers in decoding as there ever are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.equal_load import mean_in_flight
from llama_load.analysis.statistics.slices import Instants, Values
from llama_load.analysis.statistics.statistics import quick_percentile
from llama_load.ground.units import NS_PER_MS
from llama_load.run_folder.observed.records import Records

Flags = NDArray[np.bool_]

# A first gap is long above this many times the 90th percentile of the answer's other gaps (the
# steps of speculative decoding).
EARLY_BY_GAP = 3.0
# Gaps below this share of an answer's mean gap part no events: these came together.
TOGETHER = 0.05
# What is left of it, unexplained, exceeds this part of TTFT: the first token came in less than two
# thirds of its time.
EARLY_BY_TTFT = 0.5
# Decoding is full with the most answers that it ever has, less this number on average; of at least
# so many. (Where nothing waits to be decoded, the answer itself is missing from it: at least one.)
MOST_MISSING = 0.5
FEWEST_DECODED = 2
# A first gap depends on the prompt where their ranks do, by so many standard errors (chance: 0.5 %).
DEPENDS_BY = 2.6
# An opening has at most this many events; the longest gap is at one place in this part of the
# answers.
MOST_OPENING = 12
LEAST_AT_PLACE = 0.3
# Of a float32.
ROUNDING = 1e-6
# Answers whose gaps show how much the prompts of others stretch them, and what is read of them.
SAMPLED = 300
STREAM_COLUMNS = ("itl_ms", "first_token_mono_ns", "ttft_ms", "server_predict_ms")
# Answers that are compared with all others.
MOST_COMPARED = 1000


@dataclass(frozen=True, slots=True)
class FirstGaps:
    """The first gap of each answer, the time of it that nothing explains, and whether it is long
    against its other gaps; ms."""

    gap_ms: Values
    usual_ms: Values  # of the other gaps (see `usual_gap_ms`)
    unexplained_ms: Values
    is_long: Flags
    # of the later gaps: the share that is as long, 0 to 1; and the time of a step, ms
    later_ratio: float = 0.0
    step_ms: float = 0.0
    opening_ms: Values | float = 0.0  # of the gaps before

    def are_early(self, ttft_ms: Values) -> Flags:
        """Answers whose first token came long before the second, for no other reason."""
        return self.is_long & (self.unexplained_ms > EARLY_BY_TTFT * ttft_ms)

    def are_hand_overs(
        self, early: Flags, ttft_ms: Values, prompt_tokens: Values, extra: Values
    ) -> bool:
        """Whether the first gaps of these answers are as long after any prompt: a second machine
        decodes, and takes over after the prompt.

        What follows an invented first token is the rest of the prompt's time, longer for a longer
        prompt and with a later first token. An invented one is also an event more than the server
        counted tokens (`extra` of each answer; NaN: unknown), or it comes sooner than a step of
        decoding, which a prompt takes at least on the same machine.
        """
        # equal first tokens depend on nothing that shows
        if len(np.unique(ttft_ms[early])) < 2:
            return False
        counted = extra[early & ~np.isnan(extra)]
        if len(counted):
            is_invented = np.median(counted) > 0
        else:
            is_invented = np.median(ttft_ms[early]) < self.step_ms
        if is_invented:
            return False
        least_ms = EARLY_BY_TTFT * ttft_ms[early]
        gaps_ms = self.unexplained_ms[early]
        return not any(
            _depends(gaps_ms, on[early], least_ms) for on in (ttft_ms, prompt_tokens)
        )


def first_gaps(judged: Records, in_flight: Records, before: int = 0) -> FirstGaps:
    """Of streamed answers. `in_flight`: all requests beside them. `before`: gaps of an opening of
    several events, after which the gap is looked at."""
    gap_ms, usual_ms, opening_ms = _first_and_usual_gaps(judged, before)
    is_long = gap_ms > EARLY_BY_GAP * usual_ms
    first_ns = judged.optional_instants("first_token_mono_ns")
    first_ns = first_ns + np.rint(opening_ms * NS_PER_MS).astype(np.int64)
    second_ns = first_ns + np.rint(gap_ms * NS_PER_MS).astype(np.int64)

    unexplained_ms = np.zeros(len(judged))
    if not is_long.any():
        return FirstGaps(
            gap_ms, usual_ms, unexplained_ms, is_long, opening_ms=opening_ms
        )

    covered = Covered(in_flight)
    streams = list(sampled(judged))
    explained_ms = covered.ms(first_ns, second_ns) * stretch(streams, covered)
    unexplained_ms = np.maximum(0.0, gap_ms - usual_ms - explained_ms)
    unexplained_ms[_is_full(judged, first_ns, second_ns)] = 0.0
    steps_ms = [np.median(stream.gaps_ms[1:]) for stream in streams]
    return FirstGaps(
        gap_ms,
        usual_ms,
        unexplained_ms,
        is_long,
        _later_ratio(streams),
        float(np.median(steps_ms)),
        opening_ms,
    )


def usual_place(judged: Records) -> int:
    """The place, from 0 on, at which the longest of the first gaps is in a part of the answers; 0
    where it is at no such place."""
    places = [
        int(np.argmax(stream.gaps_ms[:MOST_OPENING])) for stream in sampled(judged)
    ]
    if not places:
        return 0
    counts = np.bincount(places)
    place = int(np.argmax(counts))
    return place if counts[place] > LEAST_AT_PLACE * len(places) else 0


def _depends(values: Values, on: Values, least: Values) -> bool:
    """Whether values grow with others, though each is seen only where it is above its own `least`,
    which may grow with the others, too: by Kendall's test for truncated data.

    Each value is ranked among those that would have been seen in its place: of answers with a lower
    `least`, and with less of the other, those above its own `least`. Such a rank is any of them
    alike, if nothing depends. Source: B. Efron, V. Petrosian, "A Simple Test of Independence for
    Truncated Data", 1992.
    """
    excess = variance = 0.0
    for place in _spread(len(values), MOST_COMPARED):
        # less of the other; not the same, which shows nothing
        beside = (on < on[place]) & (least <= least[place]) & (values > least[place])
        count = int(beside.sum())
        if not count:
            continue
        below = float((values[beside] < values[place]).sum())
        below += 0.5 * float((values[beside] == values[place]).sum())
        excess += below - count / 2
        variance += count * (count + 2) / 12
    return variance > 0 and excess / math.sqrt(variance) > DEPENDS_BY


def _spread(count: int, most: int) -> Instants:
    """Places of at most so many of `count`, evenly spread."""
    return np.linspace(0, count - 1, min(most, count)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer: its first token and the gaps after it; `server_ms`: the server's time for its
    tokens, NaN where it reports none."""

    first_ns: int
    ttft_ms: float
    gaps_ms: Values
    server_ms: float


def sampled(judged: Records) -> Iterator[Stream]:
    """The answers that are looked at one by one."""
    few = judged.take(_spread(len(judged), SAMPLED), STREAM_COLUMNS)
    sizes, gaps_ms = few.lists("itl_ms")
    ends = np.cumsum(sizes)
    first_ns = few.optional_instants("first_token_mono_ns")
    ttft_ms = few.numbers("ttft_ms")
    server_ms = few.numbers("server_predict_ms")
    for row in np.flatnonzero(sizes > 1):
        own_ms = gaps_ms[ends[row] - sizes[row] : ends[row]]
        yield Stream(
            int(first_ns[row]),
            float(ttft_ms[row]),
            own_ms.astype(np.float64),
            float(server_ms[row]),
        )


def _later_ratio(streams: Sequence[Stream]) -> float:
    """The share of later gaps that would count as long if they were first ones: a scheduler that
    stalls answers at any place stalls some of them at the first."""
    long = count = 0
    for stream in streams:
        later_ms = stream.gaps_ms[1:]
        usual_ms = float(np.median(later_ms))
        least_ms = max(
            EARLY_BY_GAP * usual_ms, usual_ms + EARLY_BY_TTFT * stream.ttft_ms
        )
        long += int((later_ms > least_ms).sum())
        count += len(later_ms)
    return long / count if count else 0.0


class Covered:
    """How much of any time some request waited for its first token."""

    def __init__(self, in_flight: Records) -> None:
        first_ns = in_flight.optional_instants("first_token_mono_ns")
        known = first_ns >= 0
        begins = in_flight.instants("started_mono_ns")[known]
        order = np.argsort(begins, kind="stable")
        begins = begins[order]
        ends = np.maximum.accumulate(first_ns[known][order])
        before = np.concatenate((begins[:1], ends[:-1]))
        self.origin = int(begins[0]) if len(begins) else 0
        since = (np.maximum(begins, before) - self.origin).astype(np.float64)
        until = np.maximum(since, (ends - self.origin).astype(np.float64))
        summed = np.cumsum(until - since)
        self._instants = np.column_stack((since, until)).ravel()
        self._covered = np.column_stack((summed - (until - since), summed)).ravel()

    def ms(self, since_ns: Instants, until_ns: Instants) -> Values:
        """Of these times."""
        if not len(self._instants):
            return np.zeros(len(since_ns))
        before = np.interp(
            (since_ns - self.origin).astype(np.float64), self._instants, self._covered
        )
        after = np.interp(
            (until_ns - self.origin).astype(np.float64), self._instants, self._covered
        )
        return np.asarray((after - before) / NS_PER_MS)


def usual_gap_ms(others_ms: Values, own_ms: float) -> float:
    """The 90th percentile of an answer's other gaps, of those that part events: tokens that come
    together, eight at a step, have none between them. Infinite where no other gap parts any."""
    mean_ms = (float(others_ms.sum()) + own_ms) / (len(others_ms) + 1)
    apart_ms = others_ms[others_ms >= TOGETHER * mean_ms]
    return quick_percentile(apart_ms, 90) if len(apart_ms) else math.inf


def _first_and_usual_gaps(
    judged: Records, before: int = 0
) -> tuple[Values, Values, Values]:
    """The first gap of each answer, and the usual one of its others where the first may be long; ms.

    Elsewhere the second is the mean of the others or the first one, whichever is longer.
    """
    firsts = [np.zeros(0)]
    usual = [np.zeros(0)]
    openings = [np.zeros(0)]
    for batch in judged.batches("itl_ms"):
        sizes, values = batch.lists("itl_ms")
        sizes, values, opening_ms = _without_first(sizes, values, before)
        openings.append(opening_ms)
        if not len(values):
            firsts.append(np.zeros(len(sizes)))
            usual.append(np.zeros(len(sizes)))
            continue
        begins = np.cumsum(sizes) - sizes
        first_ms = np.zeros(len(sizes))
        first_ms[sizes > 1] = values[begins[sizes > 1]]
        sums = np.add.reduceat(np.append(values, 0.0), begins)
        sums = np.where(sizes > 0, sums, 0.0)
        means = (sums - first_ms) / np.maximum(sizes - 1, 1)
        usual_ms = np.maximum(means, first_ms)
        for row in _maybe_long(first_ms, sizes, values):
            others_ms = values[begins[row] + 1 : begins[row] + sizes[row]]
            usual_ms[row] = usual_gap_ms(others_ms, first_ms[row])
        firsts.append(first_ms)
        usual.append(usual_ms)
    return np.concatenate(firsts), np.concatenate(usual), np.concatenate(openings)


def _without_first(
    sizes: Instants, values: NDArray[Any], count: int
) -> tuple[Instants, NDArray[Any], Values]:
    """Without the first gaps of each answer, and their sum."""
    opening_ms = np.zeros(len(sizes))
    if not count or not len(values):
        return sizes, values, opening_ms
    places = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    is_first = places < count
    np.add.at(opening_ms, rows[is_first], values[is_first])
    return np.maximum(sizes - count, 0), values[~is_first], opening_ms


def _maybe_long(
    first_ms: Values, sizes: Instants, values: NDArray[np.float32]
) -> Instants:
    """Rows whose first gap may be `EARLY_BY_GAP` times the 90th percentile of the others.

    In all others more than a tenth of these gaps are too long for that, which is counted for all
    rows at once: a percentile takes 50 us a row.
    """
    least_ms = (first_ms / EARLY_BY_GAP * (1 + ROUNDING)).astype(np.float32)
    is_too_long = values >= np.repeat(least_ms, sizes)
    before = np.concatenate(([0], np.cumsum(is_too_long)))
    ends = np.cumsum(sizes)
    too_long = before[ends] - before[ends - sizes]
    others = sizes - 1
    below = np.floor(0.9 * np.maximum(others - 1, 0)).astype(np.int64)
    # The first gap itself is among those that are counted.
    return np.flatnonzero((sizes > 1) & (too_long - 1 < others - below))


def stretch(streams: Sequence[Stream], covered: Covered) -> float:
    """How much longer later gaps are for each ms in which others wait for their first token: 0
    (they are no longer) to 1.

    1 where no later gap tells: all prompts come at once, as in waves of equal answers.
    """
    excess = waited = 0.0
    for stream in streams:
        gaps = stream.gaps_ms
        ends_ns = stream.first_ns + np.rint(np.cumsum(gaps) * NS_PER_MS).astype(
            np.int64
        )
        of_others = covered.ms(ends_ns[:-1], ends_ns[1:])
        own = np.maximum(0.0, gaps[1:] - np.median(gaps[1:]))
        excess += float(np.minimum(own, of_others).sum())
        waited += float(of_others.sum())
    return min(1.0, excess / waited) if waited > 0 else 1.0


def _is_full(judged: Records, first_ns: Instants, second_ns: Instants) -> Flags:
    """Where as many answers were decoded during the first gap as ever were, and others waited as
    well."""
    ended_ns = judged.instants("ended_mono_ns")
    order = np.argsort(np.concatenate((second_ns, ended_ns)), kind="stable")
    steps = np.repeat((1, -1), len(second_ns))
    most = int(np.cumsum(steps[order]).max(initial=0))
    if most < FEWEST_DECODED:
        return np.zeros(len(first_ns), dtype=np.bool_)
    decoded = mean_in_flight(second_ns, ended_ns, first_ns, second_ns)
    return np.asarray(decoded >= most - MOST_MISSING)
