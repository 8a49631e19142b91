"""What a run consists of, as the dispatcher sees it: a warm-up, a measurement, perhaps another warm-up, and so on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llama_load.dispatch.leases import IndexPool


@dataclass(slots=True, kw_only=True)
class Phase:
    """A part of the run: a warm-up, or the measurement of stages that go on without a pause.

    `total` requests (None: until it is closed). `scheduled_ns`: when each is scheduled, after the begin, ascending;
    None: as soon as possible. `limit_at` says how many may be in flight so many s after the begin (None: as many as
    there are users), `stage_of` to which stage a request belongs, by its number in the phase and the s after the begin,
    `workload_of` of which workload it is: the workers get requests in turn, and make users for them (None: requests go
    to users that ask, of their workload). `drops`: what is scheduled while the limit is reached is never sent.
    `repeats`: it sends the same prompts as the phase before it.
    """

    total: int | None
    warmup: bool = False
    scheduled_ns: Sequence[int] | None = None
    limit_at: Callable[[float], int | None] = lambda _: None
    stage_of: Callable[[int, float], int] = lambda _number, _elapsed_s: 0
    workload_of: Callable[[int], str] | None = None
    drops: bool = False
    repeats: bool = False
    begun_ns: int = 0
    dropped: Counter[int] = field(default_factory=Counter)  # by stage
    pool: IndexPool = field(default_factory=lambda: IndexPool(0))
