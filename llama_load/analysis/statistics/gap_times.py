"""When the gaps between tokens ended."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.units import NS_PER_MS
from llama_load.run_folder.observed.records import Records

COLUMNS = ("itl_ms", "first_token_mono_ns")


class GapTimes(NamedTuple):
    """The gaps of some requests, one request after the other: how many each has, their ms, and the
    instants at which they ended."""

    counts: NDArray[np.int64]
    ms: NDArray[np.float32]
    ended_ns: NDArray[np.int64]


def gap_times(batch: Records) -> GapTimes:
    """The gaps of a batch of requests, of which `COLUMNS` are needed. A request without a first
    token has no gaps."""
    counts, gaps_ms = batch.lists("itl_ms")
    summed = np.multiply(gaps_ms, NS_PER_MS, dtype=np.float64)
    np.cumsum(summed, out=summed)
    before = np.concatenate(([0.0], summed))[np.cumsum(counts) - counts]
    # Only the time since the first token goes through a float: an instant over 2^53 ns (104 days)
    # would be rounded.
    summed -= np.repeat(before, counts)
    ended_ns = np.rint(summed, out=summed).astype(np.int64)
    ended_ns += np.repeat(batch.optional_instants("first_token_mono_ns"), counts)
    return GapTimes(counts, gaps_ms, ended_ns)
