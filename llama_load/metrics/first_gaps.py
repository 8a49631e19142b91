"""First tokens that came before anything was generated: the gap after them is that of the prompt, and nothing else
explains it.

A first gap is also long where the server works on the prompts of others, or where an answer waits for a place among
those that are decoded (disaggregated prefill). Both show in the other requests: the time in which others wait for
their first token, as far as it stretches other gaps as well; and as many answers in decoding as there ever are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.equal_load import mean_in_flight
from llama_load.metrics.slices import Instants, Values
from llama_load.observed.records import Records
from llama_load.units import NS_PER_MS

Flags = NDArray[np.bool_]

# A first gap is long above this many times the 90th percentile of the answer's other gaps (the steps of speculative
# decoding).
EARLY_BY_GAP = 3.0
# What is left of it, unexplained, exceeds this part of TTFT: the first token came in less than two thirds of its time.
EARLY_BY_TTFT = 0.5
# Decoding is full with the most answers that it ever has, less this number on average; of at least so many. (Where
# nothing waits to be decoded, the answer itself is missing from it: at least one.)
MOST_MISSING, FEWEST_DECODED = 0.5, 2
# Answers whose gaps show how much the prompts of others stretch them.
SAMPLED = 300


@dataclass(frozen=True, slots=True)
class FirstGaps:
    """The first gap of each answer, the time of it that nothing explains, and whether it is long against its other
    gaps; ms."""

    gap_ms: Values
    unexplained_ms: Values
    is_long: Flags

    def are_early(self, ttft_ms: Values) -> Flags:
        """Answers whose first token came long before the second, for no other reason."""
        return self.is_long & (self.unexplained_ms > EARLY_BY_TTFT * ttft_ms)


def first_gaps(judged: Records, in_flight: Records) -> FirstGaps:
    """Of streamed answers. `in_flight`: all requests beside them."""
    gap_ms, usual_ms = _gaps(judged)
    is_long = gap_ms > EARLY_BY_GAP * usual_ms
    first_ns = judged.optional_instants("first_token_mono_ns")
    second_ns = first_ns + np.rint(gap_ms * NS_PER_MS).astype(np.int64)

    covered = _Covered(in_flight)
    explained_ms = covered.ms(first_ns, second_ns) * _stretch(judged, covered)
    unexplained_ms = np.maximum(0.0, gap_ms - usual_ms - explained_ms)
    unexplained_ms[_is_full(judged, first_ns, second_ns)] = 0.0
    return FirstGaps(gap_ms, unexplained_ms, is_long)


class _Covered:
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
        before = np.interp((since_ns - self.origin).astype(np.float64), self._instants, self._covered)
        after = np.interp((until_ns - self.origin).astype(np.float64), self._instants, self._covered)
        return np.asarray((after - before) / NS_PER_MS)


def _gaps(judged: Records) -> tuple[Values, Values]:
    """The first gap of each answer, and the 90th percentile of its others where the first is longer than these; ms."""
    firsts = [np.zeros(0)]
    usual = [np.zeros(0)]
    for batch in judged.batches("itl_ms"):
        sizes, values = batch.lists("itl_ms")
        begins = np.cumsum(sizes) - sizes
        first_ms = np.zeros(len(sizes))
        first_ms[sizes > 1] = values[begins[sizes > 1]]
        # A percentile takes 50 us: only where the gap exceeds the mean of the others.
        sums = np.add.reduceat(np.append(values, 0.0), begins) if len(sizes) else np.zeros(0)
        means = (sums - first_ms) / np.maximum(sizes - 1, 1)
        usual_ms = np.maximum(means, first_ms)
        for row in np.flatnonzero((sizes > 1) & (first_ms > means)):
            usual_ms[row] = np.percentile(values[begins[row] + 1 : begins[row] + sizes[row]], 90)
        firsts.append(first_ms)
        usual.append(usual_ms)
    return np.concatenate(firsts), np.concatenate(usual)


def _stretch(judged: Records, covered: _Covered) -> float:
    """How much longer later gaps are for each ms in which others wait for their first token: 0 (they are no longer) to 1.

    1 where no later gap tells: all prompts come at once, as in waves of equal answers.
    """
    excess = waited = 0.0
    for row in np.linspace(0, len(judged) - 1, min(SAMPLED, len(judged))).astype(np.int64):
        one = judged.take(np.array([row]))
        gaps = one.lists("itl_ms")[1].astype(np.float64)
        if len(gaps) < 2:
            continue
        ends_ns = int(one.optional_instants("first_token_mono_ns")[0]) + np.rint(np.cumsum(gaps) * NS_PER_MS).astype(np.int64)
        of_others = covered.ms(ends_ns[:-1], ends_ns[1:])
        own = np.maximum(0.0, gaps[1:] - np.median(gaps[1:]))
        excess += float(np.minimum(own, of_others).sum())
        waited += float(of_others.sum())
    return min(1.0, excess / waited) if waited > 0 else 1.0


def _is_full(judged: Records, first_ns: Instants, second_ns: Instants) -> Flags:
    """Where as many answers were decoded during the first gap as ever were, and others waited as well."""
    ended_ns = judged.instants("ended_mono_ns")
    order = np.argsort(np.concatenate((second_ns, ended_ns)), kind="stable")
    steps = np.repeat((1, -1), len(second_ns))
    most = int(np.cumsum(steps[order]).max(initial=0))
    if most < FEWEST_DECODED:
        return np.zeros(len(first_ns), dtype=np.bool_)
    decoded = mean_in_flight(second_ns, ended_ns, first_ns, second_ns)
    return np.asarray(decoded >= most - MOST_MISSING)
