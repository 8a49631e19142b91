"""Events of a stream that came together: read at one instant, or in reads that follow at once, as a
program on the way writes what it has held back.

A gap of less than 0.4 % of an answer's mean gap is none between tokens. Of exponential gaps 0.4 %
are as short, which is below the limit of `merged_ratio`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from llama_load.observed.records import Records

# Of an answer's mean gap.
AT_ONCE = 0.004


def events_together(records: Records) -> NDArray[np.float64]:
    """How many token events of each answer came together with a later one.

    Gaps of 0, 60, 0.05, 60 ms: 2, the first of them read together with the next.
    """
    read_together = np.nan_to_num(records.numbers("merged_events"))
    return np.asarray(read_together + _at_once(records, of_first=False))


def first_together(records: Records) -> NDArray[np.bool_]:
    """Whether each answer's first token came together with the second one."""
    followed = _at_once(records, of_first=True) > 0
    return np.asarray(records.equals("first_merged", True) | followed)


def _at_once(records: Records, *, of_first: bool) -> NDArray[np.float64]:
    """How many gaps of each answer are none, but for those of events that were read together;
    `of_first`: of its first one alone."""
    counts = np.zeros(len(records))
    done = 0
    for batch in records.batches("itl_ms"):
        sizes, gaps_ms = batch.lists("itl_ms")
        rows = np.flatnonzero(sizes)
        if len(rows):
            begins = (np.cumsum(sizes) - sizes)[rows]
            means_ms = np.add.reduceat(gaps_ms, begins) / sizes[rows]
            least_ms = AT_ONCE * np.repeat(means_ms, sizes[rows])
            is_none = (gaps_ms > 0) & (gaps_ms < least_ms)
            if of_first:
                counts[done + rows] = is_none[begins]
            else:
                counts[done + rows] = np.add.reduceat(is_none, begins, dtype=np.int64)
        done += len(sizes)
    return counts
