"""The requests of a run or stage under constant load, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.slices import Instants, Values

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Columns of the requests. A latency is NaN where there is none."""

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
    # TTFT without its wait for a slot / what prompts and load explain (`analysis.statistics.equal_work`); None:
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
