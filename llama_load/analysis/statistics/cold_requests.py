"""Whether the first requests of a run met a server that was not warm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llama_load.analysis.statistics.constant_load import Flags, Observed
from llama_load.analysis.statistics.slices import Values
from llama_load.ground.units import NS_PER_MS

# The first requests are a cold start if the slowest of them took this many times as long as the
# slowest later one.
COLD = 3.0
# The slowest later one differs from run to run: cold starts of this many times the least are named
# in 58 of 60 simulated closed loops of 8 users with lognormal answers, in all with 1 and 4 users.
COLD_MARGIN = 2.0
# A request that more of the later ones overtook than this was left waiting, while the server worked.
LEFT_WAITING = 0.5


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
