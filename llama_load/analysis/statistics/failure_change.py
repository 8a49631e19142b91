"""Whether failures gather in a part of a run's time."""

from __future__ import annotations

import numpy as np

from llama_load.analysis.statistics.changes import MOST_SLICES, REQUESTS_A_SLICE, Change
from llama_load.analysis.statistics.constant_load import Observed
from llama_load.analysis.statistics.slices import Slices, Values

# A part whose failures are as unlikely as this (log likelihood ratio) is no chance: about 1 in 1000
# for the most unlikely of 276.
LEAST_LOG_RATIO = 12.5


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
