"""The segments of a run: which requests are scheduled when, stage by stage. Computed before the
run, from flags alone.

A run is a sequence of segments. Within a segment (a ramp, a spike, or a single stage) the load may
change without a pause. Between two segments all requests in flight end, and the next segment's
warm-up is sent.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.errors import UsageError
from llama_load.loadgen.schedule.schedule import (
    ROUNDING,
    RateRamp,
    arrivals_s,
    for_time,
)
from llama_load.loadgen.schedule.stages import Stage
from llama_load.loadgen.workloads.arrival import Arrival

POISSON = "poisson"
CONSTANT = "constant"
GAMMA = "gamma"
TRACE = "trace"
ARRIVALS = (POISSON, CONSTANT, GAMMA, TRACE)
LINEAR = "linear"
EXPONENTIAL = "exponential"
RAMPS = (LINEAR, EXPONENTIAL)
QUEUE = "queue"
DROP = "drop"
ON_LIMITS = (QUEUE, DROP)
# With --hand-over: this many requests per user keep up the load until the last measured one has
# ended, unless it takes longer.
FILLING = 2
LONGEST_S = 1e8  # three years: instants in ns stay far below 64 bits
MOST_ARRIVALS = 10**8  # per stage: their instants take 0.8 GB


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadModel:
    """When requests are sent, according to the flags. Without a rate, a trace or stages: a closed
    loop with all users.

    `max_in_flight` limits an open loop; further arrivals are queued or dropped. `arrivals` are a
    trace's.
    """

    rate_rps: float | None = None
    # arrivals of conversations instead of requests
    conversations_per_min: float | None = None
    burstiness: float = 1.0
    process: str = POISSON  # or constant, gamma
    ramp: str | None = None  # linear or exponential
    ramp_start_rps: float | None = None
    max_in_flight: int | None = None
    drops: bool = False
    arrivals: Sequence[Arrival] = ()
    stages: tuple[Stage, ...] = ()
    same_prompts: bool = False  # in every stage
    # a closed loop whose warm-up hands its slots over to the measured requests one by one
    hands_over: bool = False
    seed: int = 0

    @property
    def arrival_rate_rps(self) -> float | None:
        """Arrivals per second without stages and traces, of requests or of conversations."""
        if self.conversations_per_min is None:
            return self.rate_rps
        return self.conversations_per_min / 60

    @property
    def is_open(self) -> bool:
        """Whether any part of it is an open loop."""
        if self.arrival_rate_rps is not None or self.arrivals:
            return True
        return any(stage.rate_rps is not None for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Stages that follow each other without a pause: `total` requests, or `seconds`, or both:
    whichever is reached first.

    `scheduled_s` are the scheduled instants of the requests, in s from the segment's start, and
    `stage_index` is the stage of each (0 is the first here). None: a closed loop, in which a user
    sends its next request when the previous one is answered. `first_stage` is the number of its
    first stage in the run. `conversations`: how many arrive, where they have the instants.
    """

    stages: tuple[Stage, ...]
    first_stage: int = 0
    total: int | None
    seconds: float | None
    scheduled_s: NDArray[np.float64] | None = None
    stage_index: NDArray[np.int64] | None = None
    max_in_flight: int | None = None
    conversations: int | None = None

    @property
    def starts_s(self) -> list[float]:
        """When each of its stages begins, in s from the segment's start."""
        begin_s = 0.0
        starts_s = [begin_s]
        for stage in self.stages[:-1]:
            begin_s += stage.seconds or math.inf
            starts_s.append(begin_s)
        return starts_s

    @property
    def ends_s(self) -> list[float]:
        """When each of its stages ends if it ends by time; else infinite."""
        last = self.stages[-1].seconds or self.seconds or math.inf
        return [*self.starts_s[1:], self.starts_s[-1] + last]

    def stage_index_at(self, elapsed_s: float) -> int:
        """The stage at this time after the segment's start: 0 is the first."""
        return max(0, bisect_right(self.starts_s, elapsed_s) - 1)

    def stage_of(self, number: int, elapsed_s: float) -> int:
        """The stage of the run that request `number` belongs to: by the schedule, else by the time
        at which it begins."""
        if self.stage_index is None:
            return self.first_stage + self.stage_index_at(elapsed_s)
        return self.first_stage + int(self.stage_index[number])

    def stage_of_warmup(self, _number: int, _elapsed_s: float) -> int:
        """The stage that its warm-up belongs to: its first one."""
        return self.first_stage

    def users_to_begin(self, horizon_s: float) -> int:
        """Users needed at the start: the most at any time, or the requests scheduled within
        `horizon_s`. 0: all there are."""
        if self.scheduled_s is None:
            return self.most_users or 0
        soon = int(np.searchsorted(self.scheduled_s, horizon_s, side="right"))
        return max(1, min(soon, self.max_in_flight or soon))

    def limit_at(self, elapsed_s: float) -> int | None:
        """Maximum requests in flight at this time; None: limited only by the number of users."""
        if self.scheduled_s is not None:
            return self.max_in_flight
        stage_index = self.stage_index_at(elapsed_s)
        return self.stages[stage_index].users_at(elapsed_s - self.starts_s[stage_index])

    @property
    def is_limited(self) -> bool:
        """Whether anything else than the number of users limits requests in flight."""
        return self.limit_at(0.0) is not None

    @property
    def most_users(self) -> int | None:
        """The users it needs at once; None: all there are (closed loop), or depends on the answers
        (open loop)."""
        if self.scheduled_s is not None:
            return None

        needed = []
        for stage in self.stages:
            if stage.users is not None:
                needed.append(int(max(stage.users, stage.start or 0)))
        return max(needed, default=None)


def plan_segments(
    model: LoadModel, num_prompts: int | None, run_time_s: float | None
) -> list[Segment]:
    """The segments of a run; `num_prompts` and `run_time_s` apply to every stage without an amount.

    UsageError: the load has no valid schedule.
    """
    if not model.stages:
        return [_single(model, num_prompts, run_time_s)]
    segments: list[Segment] = []
    for first, stages in _grouped(model.stages):
        if stages[0].rate_rps is not None:
            segments.append(_open(model, first, stages, num_prompts, run_time_s))
        else:
            segments.append(_closed(first, stages, num_prompts, run_time_s))
    return segments


def _single(
    model: LoadModel, num_prompts: int | None, run_time_s: float | None
) -> Segment:
    """A run without stages has a single one, without a name."""
    if model.arrivals:
        arrivals = model.arrivals[:num_prompts]
        scheduled_s = np.array([arrival.at_s for arrival in arrivals])
        if scheduled_s[-1] > LONGEST_S:
            raise UsageError(
                f"the trace takes {scheduled_s[-1]:.3g} s: check its time unit, or raise --speed"
            )
        return Segment(
            stages=(Stage(name=""),),
            total=len(scheduled_s),
            seconds=run_time_s,
            scheduled_s=scheduled_s,
            stage_index=np.zeros(len(scheduled_s), dtype=np.int64),
            max_in_flight=model.max_in_flight,
        )
    stage = Stage(name="", rate_rps=model.arrival_rate_rps)
    if stage.rate_rps is None:
        return _closed(0, (stage,), num_prompts, run_time_s)
    return _open(model, 0, (stage,), num_prompts, run_time_s)


def _grouped(stages: Sequence[Stage]) -> list[tuple[int, tuple[Stage, ...]]]:
    return _in_groups(stages, lambda stage_index: stages[stage_index].goes_on)


def _closed(
    first: int,
    stages: tuple[Stage, ...],
    num_prompts: int | None,
    run_time_s: float | None,
) -> Segment:
    seconds = _seconds_of(stages)
    if seconds:
        return Segment(stages=stages, first_stage=first, total=None, seconds=seconds)

    total = stages[0].count or num_prompts
    if stages[0].name and total is None and run_time_s is None:
        raise UsageError(
            f"stage {stages[0].name} needs an end: give --num-prompts or -t, or write {stages[0].name}:64 or {stages[0].name}:30s"
        )
    return Segment(
        stages=stages,
        first_stage=first,
        total=total,
        seconds=None if stages[0].count else run_time_s,
    )


def _open(
    model: LoadModel,
    first: int,
    stages: tuple[Stage, ...],
    num_prompts: int | None,
    run_time_s: float | None,
) -> Segment:
    """The schedules of its stages, concatenated. A time alone determines the number of requests;
    all of them are sent and answered, even after that time."""
    parts = []
    stage_indices = []
    begin_s = 0.0
    cut_s = None
    for stage_index, together in _at_one_rate(stages):
        number = first + stage_index
        stage = together[0]
        # one schedule for all: at 1.5/s, windows of one second would each get one request
        if len(together) > 1:
            stage = replace(stage, seconds=_seconds_of(together))

        rate_rps = stage.rate_rps or 1.0
        ramp = _ramp(model, stage, rate_rps)
        count = stage.count
        seconds = stage.seconds
        if count is None and seconds is None:
            count = num_prompts
            seconds = run_time_s
            cut_s = seconds if count is not None else None
        if count is None and seconds is None:
            raise UsageError("a request rate needs an end: give --num-prompts or -t")

        highest_rps = rate_rps if ramp is None else max(rate_rps, ramp.start_rps)
        _check_size(count or highest_rps * (seconds or 0.0))
        if count is None and stage.seconds:
            count = _within(stage, ramp)
        elif count is None:
            count = for_time(rate_rps, seconds or 0.0, ramp=ramp)

        scheduled_s = arrivals_s(
            count,
            rate_rps,
            burstiness=model.burstiness,
            process=model.process,
            seed=model.seed + number,
            ramp=ramp,
        )
        if stage.seconds:  # rounding may make the last one late
            scheduled_s = np.minimum(scheduled_s, stage.seconds)
        if scheduled_s[-1] > LONGEST_S:
            raise UsageError(
                f"at {rate_rps:g} requests per second {count} requests take {scheduled_s[-1]:.3g} s: raise the rate"
            )

        parts.append(begin_s + scheduled_s)
        ends_s = list(accumulate(each.seconds or 0.0 for each in together[:-1]))
        places = np.searchsorted(ends_s, scheduled_s, side="right")
        stage_indices.append(stage_index + places)
        begin_s += stage.seconds or float(scheduled_s[-1])

    scheduled = np.concatenate(parts)
    return Segment(
        stages=stages,
        first_stage=first,
        total=len(scheduled),
        seconds=cut_s,
        scheduled_s=scheduled,
        stage_index=np.concatenate(stage_indices),
        max_in_flight=model.max_in_flight,
    )


def _seconds_of(stages: Sequence[Stage]) -> float:
    return sum(stage.seconds or 0.0 for stage in stages)


def _at_one_rate(stages: Sequence[Stage]) -> list[tuple[int, tuple[Stage, ...]]]:
    """The stages, each with the number of the first. Consecutive ones with a time each and the same
    rate form one group."""

    def goes_on(stage_index: int) -> bool:
        before = stages[stage_index - 1]
        stage = stages[stage_index]
        steady = (
            before.start is None
            and stage.start is None
            and before.rate_rps == stage.rate_rps
        )
        return steady and bool(before.seconds and stage.seconds)

    return _in_groups(stages, goes_on)


def _in_groups(
    stages: Sequence[Stage], goes_on: Callable[[int], bool]
) -> list[tuple[int, tuple[Stage, ...]]]:
    """The stages in groups, each with the number of its first: a stage that continues the one
    before it joins its group."""
    starts = []
    for stage_index in range(len(stages)):
        if stage_index == 0 or not goes_on(stage_index):
            starts.append(stage_index)

    groups = []
    for start, end in pairwise([*starts, len(stages)]):
        groups.append((start, tuple(stages[start:end])))
    return groups


def _within(stage: Stage, ramp: RateRamp | None) -> int:
    """Number of requests that arrive within the stage's time. One that would arrive later is left
    out, because the next stage may have begun by then. 2.5 a second for 3 s: 7."""
    rate_rps = stage.rate_rps or 1.0
    seconds = stage.seconds or 0.0
    if ramp is not None:
        return for_time(rate_rps, seconds, ramp=ramp)

    count = math.floor(rate_rps * seconds * (1 + ROUNDING))
    if count < 1:
        raise UsageError(
            f"stage {stage.name}: at {rate_rps:g} requests per second none arrives within {seconds:g} s; raise the rate or the time"
        )
    return count


def _check_size(count: float) -> None:
    if count > MOST_ARRIVALS:
        raise UsageError(
            f"a schedule has room for {MOST_ARRIVALS:,} requests, got {count:,.0f}: lower the rate, the time or the number"
        )


def _ramp(model: LoadModel, stage: Stage, rate_rps: float) -> RateRamp | None:
    if stage.start is not None:
        return RateRamp(model.ramp or LINEAR, stage.start, rate_rps)
    if model.ramp is not None and not model.stages:
        return RateRamp(model.ramp, model.ramp_start_rps or 1.0, rate_rps)
    return None


def stage_counts(segments: Sequence[Segment]) -> list[int] | None:
    """Requests per stage of the run; None if unknown beforehand, because a time may end one of
    them."""
    counts: list[int] = []
    for segment in segments:
        if segment.total is None or segment.seconds is not None:
            return None

        stage_indices = segment.stage_index
        if stage_indices is None:
            stage_indices = np.zeros(segment.total, dtype=np.int64)
        counts += np.bincount(stage_indices, minlength=len(segment.stages)).tolist()
    return counts


def total_requests(segments: Sequence[Segment]) -> int | None:
    """Requests in all segments; None if unknown before the run."""
    total = 0
    for segment in segments:
        if segment.total is None:
            return None
        total += segment.total
    return total


def of_conversations(
    model: LoadModel, segment: Segment, turns: Iterator[int], num_prompts: int | None
) -> Segment:
    """The schedule of the requests of conversations, of which the segment has the arrivals, and
    `turns` the numbers of requests.

    All requests of a conversation have the instant of its arrival: further turns follow their own
    waits. With `num_prompts` as many conversations arrive as have this many requests, the last one
    perhaps cut; otherwise one for each arrival of the segment. Arrivals at 0 and 2 s with 3 and 1
    requests: 0, 0, 0, 2.
    """
    assert segment.scheduled_s is not None
    arrivals = segment.scheduled_s
    if num_prompts is None:
        lengths = list(islice(turns, len(arrivals)))
    else:
        lengths = []
        missing = num_prompts
        while missing > 0:
            lengths.append(next(turns))
            missing -= lengths[-1]
        rate_rps = model.arrival_rate_rps or 1.0
        arrivals = arrivals_s(
            len(lengths),
            rate_rps,
            burstiness=model.burstiness,
            process=model.process,
            seed=model.seed,
        )
    scheduled = np.repeat(arrivals, lengths)[:num_prompts]
    return replace(
        segment,
        total=len(scheduled),
        scheduled_s=scheduled,
        stage_index=np.zeros(len(scheduled), dtype=np.int64),
        conversations=len(lengths),
    )
