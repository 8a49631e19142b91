"""Ends of answers that came long after the rest, which nothing explains: a packet that was lost, a
guardrail that reads the whole answer.

A gap of an answer is long by the prompts of others or by a scheduler as often at its end as at any
other place. So ends count only as far as they are late more often than other events are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.first_gaps import TOGETHER, Covered, usual_gap_ms
from llama_load.ground.units import NS_PER_MS
from llama_load.run_folder.observed.records import Records

# A gap is long beyond so many times the 90th percentile of the answer's other gaps.
LONG_BY_GAP = 3.0
# Such a gap is at least this many times the mean of all gaps of an answer of nine and more.
LEAST_OF_MEAN = 2.0
# Of a gap, while others wait for their first tokens.
COVERED_SHARE = 0.5
# Late ends beyond what chance explains: so many standard deviations, and so many more.
LEAST_DEVIATIONS = 3.0
LEAST_MORE = 2.0


@dataclass(frozen=True, slots=True)
class LastGaps:
    """How many answers ended late, of how many, after what gap (median, ms), and at how many of
    the other gaps in their second halves they would have been late as well (0 to 1)."""

    late: int
    answers: int
    gap_ms: float
    elsewhere: float

    @property
    def ratio(self) -> float:
        """The share of answers that ended late beyond chance; 0 where chance explains all."""
        chance = self.elsewhere * self.answers
        if self.late - chance <= LEAST_DEVIATIONS * math.sqrt(chance) + LEAST_MORE:
            return 0.0
        return (self.late - chance) / self.answers


@dataclass(frozen=True, slots=True)
class _Answer:
    """The gap before an answer's last events, and how many of its others are as long; ms."""

    gap_ms: float
    usual_ms: float
    end_ns: float  # of this gap
    long_others: int


def last_gaps(judged: Records, in_flight: Records) -> LastGaps | None:
    """Of streamed answers of nine gaps and more; None where none ended late. `in_flight`: all
    requests beside them."""
    late: list[_Answer] = []
    others = 0
    long_others = 0
    for batch in judged.batches("itl_ms", "first_token_mono_ns"):
        sizes, gaps_ms = batch.lists("itl_ms")
        if not len(gaps_ms):
            continue
        # an answer without gaps may be the last one
        gaps_ms = np.append(gaps_ms, 0.0)
        first_ns = batch.optional_instants("first_token_mono_ns")
        begins = np.cumsum(sizes) - sizes
        means_ms = np.add.reduceat(gaps_ms, begins) / np.maximum(sizes, 1)
        longest_ms = np.maximum.reduceat(gaps_ms, begins)
        others += int(np.maximum(sizes - 1 - sizes // 2, 0).sum())
        for row in np.flatnonzero(
            (sizes > 1) & (longest_ms > LEAST_OF_MEAN * means_ms)
        ):
            own_ms = gaps_ms[begins[row] : begins[row] + sizes[row]].astype(np.float64)
            answer = _last_gap_of(own_ms, int(first_ns[row]))
            long_others += answer.long_others
            if _is_long(answer.gap_ms, answer.usual_ms):
                late.append(answer)
    if not late:
        return None

    covered = Covered(in_flight)
    first_tokens_ns = in_flight.optional_instants("first_token_mono_ns")
    first_tokens_ns = np.sort(first_tokens_ns[first_tokens_ns >= 0])
    unexplained = []
    for answer in late:
        if not _explains(covered, first_tokens_ns, answer):
            unexplained.append(answer)
    if not unexplained:
        return None
    gap_ms = float(np.median([answer.gap_ms for answer in unexplained]))
    return LastGaps(len(unexplained), len(judged), gap_ms, long_others / max(1, others))


def _last_gap_of(gaps_ms: np.ndarray, first_ns: int) -> _Answer:
    """The last gap that parts events, against the others."""
    is_apart = gaps_ms >= TOGETHER * gaps_ms.mean()
    last = int(np.flatnonzero(is_apart)[-1])
    end_ns = first_ns + float(gaps_ms[: last + 1].sum()) * NS_PER_MS
    # Each of the second half, as if the answer had ended with it: of several long gaps in a row the
    # first one is long beside those before it.
    long_others = 0
    for place in np.flatnonzero(gaps_ms > LEAST_OF_MEAN * gaps_ms.mean()):
        if len(gaps_ms) // 2 <= place < last:
            so_far_ms = gaps_ms[: place + 1]
            usual_ms = _usual_ms(so_far_ms, int(place))
            long_others += _is_long(float(gaps_ms[place]), usual_ms)
    return _Answer(float(gaps_ms[last]), _usual_ms(gaps_ms, last), end_ns, long_others)


def _usual_ms(gaps_ms: np.ndarray, place: int) -> float:
    """What is usual of an answer's gaps besides this one."""
    return usual_gap_ms(np.delete(gaps_ms, place), float(gaps_ms[place]))


def _is_long(gap_ms: float, usual_ms: float) -> bool:
    return gap_ms > LONG_BY_GAP * usual_ms


def _explains(
    covered: Covered, first_tokens_ns: NDArray[np.int64], answer: _Answer
) -> bool:
    """Whether a prompt of others explains the gap: it was computed in the same step as the last
    token, or some request waited for its first token half of the time.

    With more requests than slots one always waits, and no end is judged: whether it waits for a
    slot or is computed is not seen.
    """
    end_ns = np.array([answer.end_ns]).astype(np.int64)
    since_ns = end_ns - round(answer.gap_ms * NS_PER_MS)
    until_ns = end_ns + round(answer.usual_ms * NS_PER_MS)
    begin = np.searchsorted(first_tokens_ns, since_ns)
    end = np.searchsorted(first_tokens_ns, until_ns, side="right")
    if end[0] > begin[0]:
        return True

    waited_ms = float(covered.ms(since_ns, end_ns)[0])
    return waited_ms >= COVERED_SHARE * answer.gap_ms
