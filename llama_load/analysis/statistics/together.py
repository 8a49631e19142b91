"""Events of a stream that came together: read at one instant, or in reads that follow at once, as a
program on the way writes what it has held back.

A gap of less than 0.4 % of an answer's mean gap is none between tokens. Of exponential gaps 0.4 %
are as short, which is below the limit of `merged_ratio`.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.observed.records import Records

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Of an answer's mean gap.
AT_ONCE = 0.004
# A program that writes the events of a burst one by one takes less for each, and a step of decoding
# more: of an answer's mean gap, and ms.
BURST_SHARE = 0.05
BURST_MS = 0.2
# This many gaps before show what is usual of an answer.
FEWEST_EARLIER = 4


class Together(NamedTuple):
    """What came together in each of some answers."""

    events: Values  # how many came together with a later one
    is_first: Flags  # the first token came together with the second one
    in_bursts: Values  # the same, and in a burst whose events follow one by one
    is_first_in_burst: Flags
    late_end_ms: Values  # see `_late_ends_ms`


# Two checks ask, and reading the gaps of a million answers takes seconds: kept as long as the
# records are.
_TOGETHER: WeakKeyDictionary[Records, Together] = WeakKeyDictionary()


def together(records: Records) -> Together:
    """What came together in each of the answers among these records.

    Gaps of 0, 60, 0.05, 60 ms: two events, the first of them read together with the next.
    """
    if records not in _TOGETHER:
        _TOGETHER[records] = _looked_at(records.ok())
    return _TOGETHER[records]


def _looked_at(ok: Records) -> Together:
    events = np.nan_to_num(ok.numbers("merged_events"))
    is_first = np.array(ok.equals("first_merged", True))
    in_bursts = events.copy()
    is_first_in_burst = is_first.copy()
    late_end_ms = np.zeros(len(ok))
    done = 0
    for batch in ok.batches("itl_ms"):
        sizes, gaps_ms = batch.lists("itl_ms")
        rows = np.flatnonzero(sizes)
        if len(rows):
            own = sizes[rows]
            begins = np.cumsum(own) - own
            means_ms = np.add.reduceat(gaps_ms, begins) / own
            least_ms = AT_ONCE * means_ms
            burst_ms = np.minimum(BURST_SHARE * means_ms, BURST_MS)
            places = done + rows
            is_none = _are_below(gaps_ms, least_ms, own)
            events[places] += np.add.reduceat(is_none, begins, dtype=np.int64)
            is_first[places] |= is_none[begins]
            is_none |= _are_below(gaps_ms, burst_ms, own)
            in_bursts[places] += np.add.reduceat(is_none, begins, dtype=np.int64)
            is_first_in_burst[places] |= is_none[begins]
            late_end_ms[places] = _late_ends_ms(gaps_ms.astype(np.float64), begins, own)
        done += len(sizes)
    return Together(events, is_first, in_bursts, is_first_in_burst, late_end_ms)


def _are_below(
    gaps_ms: NDArray[np.float32], least_ms: Values, sizes: NDArray[np.int64]
) -> Flags:
    """Which gaps are below their answer's least; not those of events that were read together."""
    return np.asarray((gaps_ms > 0) & (gaps_ms < np.repeat(least_ms, sizes)))


def _late_ends_ms(
    gaps_ms: Values, begins: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Values:
    """How late each answer's last event came, where it was read together with earlier ones; 0 where
    it came alone.

    Events that come together waited for one another, by at most the gap before them beyond the
    usual time of as many: gaps of 20, 20, 20, 20, 100, 0 ms: 60 of the 100, because two events
    usually take 40.
    """
    places = np.arange(len(gaps_ms))
    last = np.maximum.reduceat(np.where(gaps_ms > 0, places, -1), begins)
    has_gap = last >= begins
    last = np.maximum(last, begins)
    at_the_end = begins + sizes - last
    passed_ms = np.concatenate(([0.0], np.cumsum(gaps_ms)))
    earlier = last - begins
    usual_ms = (passed_ms[last] - passed_ms[begins]) / np.maximum(1, earlier)
    late_ms = gaps_ms[last] - at_the_end * usual_ms
    is_late = has_gap & (at_the_end > 1) & (earlier >= FEWEST_EARLIER)
    return np.where(is_late, np.maximum(0.0, late_ms), 0.0)
