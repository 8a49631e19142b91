"""The pace of each answer: its mean gap between tokens, without stalls.

TPOT of a short answer is that of its stalls: a prompt of another request that is prefilled between
two of ten tokens makes it three times as long. So gaps count at most three times the run's 90th
percentile, which lies above the steps of speculative decoding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.observed.records import Records

Values = NDArray[np.float64]

# An answer with fewer gaps shows no pace.
LEAST_GAPS = 8
# Gaps count at most this often the run's 90th percentile.
MOST_BY_P90 = 3.0
# Gaps of a run that its 90th percentile is taken from.
SAMPLED_GAPS = 100_000


def paces_ms(records: Records) -> Values:
    """One value per request: sum of its gaps, each at most three times the run's 90th percentile, /
    (output tokens - 1), ms.

    By gaps where tokens are unknown or fewer. NaN below eight gaps. 20 gaps of 10 ms and one of 500
    ms, 22 tokens: (20 x 10 +
    30) / 21 = 11.0.
    """
    tokens = records.numbers("output_tokens")
    most_ms = _most_ms(records)
    sums = [np.zeros(0)]
    sizes = [np.zeros(0, dtype=np.int64)]
    for batch in records.batches("itl_ms"):
        of_batch, gaps = batch.lists("itl_ms")
        summed = np.concatenate(
            ([0.0], np.cumsum(np.minimum(gaps, most_ms), dtype=np.float64))
        )
        ends = np.cumsum(of_batch)
        sums.append(summed[ends] - summed[ends - of_batch])
        sizes.append(of_batch)

    counts = np.concatenate(sizes)
    steps = np.fmax(tokens - 1, counts)
    return np.where(
        counts >= LEAST_GAPS, np.concatenate(sums) / np.maximum(steps, 1.0), np.nan
    )


def _most_ms(records: Records) -> float:
    """What a gap counts at most."""
    pieces: list[NDArray[np.float32]] = []
    count = 0
    for piece in records.gap_pieces():
        pieces.append(piece)
        count += len(piece)
        if count > SAMPLED_GAPS:
            break
    if not count:
        return np.inf
    return MOST_BY_P90 * float(np.percentile(np.concatenate(pieces), 90))


def median_gaps_ms(records: Records) -> Values:
    """One value per request: the median of its gaps, ms; NaN below eight gaps. Stalls, however many
    fewer than half, do not move it."""
    medians: list[float] = []
    for batch in records.batches("itl_ms"):
        sizes, gaps = batch.lists("itl_ms")
        for own in np.split(gaps, np.cumsum(sizes)[:-1]):
            medians.append(float(np.median(own)) if len(own) >= LEAST_GAPS else np.nan)
    return np.array(medians)
