"""The phases of a run, as the dispatcher sees them: warm-ups and measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llama_load.loadgen.dispatch.leases import IndexPool


@dataclass(slots=True, kw_only=True)
class Phase:
    """A part of the run: a warm-up, or the measurement of stages without a pause between them.

    `total`: number of requests (None: until it is closed). `scheduled_ns`: scheduled time of each
    request since the begin, ascending; None: as soon as possible. `limit_at(s)`: the limit of
    requests in flight at this time since the begin (None: the number of users). `stage_of(number,
    s)`: the stage of request `number`, sent at this time. `workload_of(number)`: its workload;
    workers get requests in turn and start users for them (None: requests go to waiting users of the
    workload). `drops`: requests scheduled while the limit is reached are never sent.
    `by_conversation`: all requests of a conversation have the instant of its arrival, which is that
    of its first one. `repeats`: same prompts as the phase before. `then`: the phase that takes over
    its slots one by one, from when all its requests are leased. `fills`: it only keeps up the load
    until all requests of the phases before it have ended, and is over then.
    """

    total: int | None
    warmup: bool = False
    scheduled_ns: Sequence[int] | None = None
    limit_at: Callable[[float], int | None] = lambda _: None
    stage_of: Callable[[int, float], int] = lambda _number, _elapsed_s: 0
    workload_of: Callable[[int], str] | None = None
    drops: bool = False
    by_conversation: bool = False
    repeats: bool = False
    then: Phase | None = None
    fills: bool = False
    begun_ns: int = 0
    dropped: Counter[int] = field(default_factory=Counter)  # by stage
    pool: IndexPool = field(default_factory=lambda: IndexPool(0))
