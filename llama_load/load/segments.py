"""The segments of a run: which requests are scheduled when, stage by stage. Decided before the run, from flags alone.

A run is a sequence of segments. Within a segment the load may change, but nothing stops: a ramp, a spike, or a single stage.
Between two segments everything ends that was in flight, and the next one's warm-up is sent.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from llama_load.errors import UsageError
from llama_load.load.schedule import ROUNDING, RateRamp, arrivals_s, for_time
from llama_load.load.stages import Stage
from llama_load.workloads.traces import Arrival

POISSON, CONSTANT, GAMMA, TRACE = ARRIVALS = ("poisson", "constant", "gamma", "trace")
LINEAR, EXPONENTIAL = RAMPS = ("linear", "exponential")
QUEUE, DROP = ON_LIMITS = ("queue", "drop")
LONGEST_S = 1e8  # three years: instants in ns stay far from what 64 bits hold
MOST_ARRIVALS = 10**8  # of a stage: their instants take 0.8 GB


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadModel:
    """When requests are sent, as the flags say it. Without a rate, a trace or stages: a closed loop of as many as there are
    users.

    `max_in_flight` limits an open loop; what waits then is queued, or dropped. `arrivals` are a trace's.
    """

    rate_rps: float | None = None
    burstiness: float = 1.0
    process: str = POISSON  # or constant, gamma
    ramp: str | None = None  # linear or exponential
    ramp_start_rps: float | None = None
    max_in_flight: int | None = None
    drops: bool = False
    arrivals: Sequence[Arrival] = ()
    stages: tuple[Stage, ...] = ()
    same_prompts: bool = False  # in every stage
    seed: int = 0

    @property
    def is_open(self) -> bool:
        """Whether any of it is sent by a schedule."""
        return self.rate_rps is not None or bool(self.arrivals) or any(stage.rate_rps is not None for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Stages that follow each other without a pause: `total` requests, or as many as fit `seconds`, or both: what comes first.

    `scheduled_s` are the instants at which requests are scheduled, in s from its begin, one a request, and
    `stage_index` says of each to which of the stages it belongs (0 is the first here); None: a closed loop, in which a
    user asks again when it has its answer. `first_stage` is the number of its first stage in the run.
    """

    stages: tuple[Stage, ...]
    first_stage: int = 0
    total: int | None
    seconds: float | None
    scheduled_s: NDArray[np.float64] | None = None
    stage_index: NDArray[np.int64] | None = None
    max_in_flight: int | None = None

    @property
    def starts_s(self) -> list[float]:
        """When each of its stages begins, s from the segment's begin."""
        return list(accumulate((stage.seconds or math.inf for stage in self.stages[:-1]), initial=0.0))

    @property
    def ends_s(self) -> list[float]:
        """When each of its stages ends, if it ends by time; infinite where it does not."""
        last = self.stages[-1].seconds or self.seconds or math.inf
        return [*self.starts_s[1:], self.starts_s[-1] + last]

    def stage_index_at(self, elapsed_s: float) -> int:
        """Which of its stages is on so long after its begin: 0 the first."""
        return max(0, bisect_right(self.starts_s, elapsed_s) - 1)

    def stage_of(self, number: int, elapsed_s: float) -> int:
        """To which stage of the run its request `number` belongs: by the schedule, else by the time of its begin."""
        return self.first_stage + (
            int(self.stage_index[number]) if self.stage_index is not None else self.stage_index_at(elapsed_s)
        )

    def stage_of_warmup(self, _number: int, _elapsed_s: float) -> int:
        """To which stage its warm-up belongs: to its first one."""
        return self.first_stage

    def users_to_begin(self, horizon_s: float) -> int:
        """How many users it needs to begin: as many as it will ever have at once, or as its schedule wants in so many s. 0: as many
        as there are."""
        if self.scheduled_s is None:
            return self.most_users or 0
        soon = int(np.searchsorted(self.scheduled_s, horizon_s, side="right"))
        return max(1, min(soon, self.max_in_flight or soon))

    def limit_at(self, elapsed_s: float) -> int | None:
        """How many requests may be in flight then; None: no limit but the number of users."""
        if self.scheduled_s is not None:
            return self.max_in_flight
        stage_index = self.stage_index_at(elapsed_s)
        return self.stages[stage_index].users_at(elapsed_s - self.starts_s[stage_index])

    @property
    def is_limited(self) -> bool:
        """Whether anything but the number of users limits what is in flight."""
        return self.limit_at(0.0) is not None

    @property
    def most_users(self) -> int | None:
        """How many users it needs at once; None: as many as there are (closed loop), or as its schedule turns out to need."""
        if self.scheduled_s is not None:
            return None
        needed = [int(max(stage.users, stage.start or 0)) for stage in self.stages if stage.users is not None]
        return max(needed, default=None)


def plan_segments(model: LoadModel, num_prompts: int | None, run_time_s: float | None) -> list[Segment]:
    """The segments of a run; `num_prompts` and `run_time_s` are those of every stage that has no amount of its own.

    Raises UsageError for what makes no schedule.
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


def _single(model: LoadModel, num_prompts: int | None, run_time_s: float | None) -> Segment:
    """A run without stages is one of a single one, which has no name."""
    if model.arrivals:
        scheduled_s = np.array([arrival.at_s for arrival in model.arrivals[:num_prompts]])
        if scheduled_s[-1] > LONGEST_S:
            raise UsageError(f"the trace takes {scheduled_s[-1]:.3g} s: is its unit of time another one, or --speed too low?")
        return Segment(
            stages=(Stage(name=""),),
            total=len(scheduled_s),
            seconds=run_time_s,
            scheduled_s=scheduled_s,
            stage_index=np.zeros(len(scheduled_s), dtype=np.int64),
            max_in_flight=model.max_in_flight,
        )
    stage = Stage(name="", rate_rps=model.rate_rps)
    if model.rate_rps is None:
        return _closed(0, (stage,), num_prompts, run_time_s)
    return _open(model, 0, (stage,), num_prompts, run_time_s)


def _grouped(stages: Sequence[Stage]) -> list[tuple[int, tuple[Stage, ...]]]:
    return _in_groups(stages, lambda stage_index: stages[stage_index].goes_on)


def _closed(first: int, stages: tuple[Stage, ...], num_prompts: int | None, run_time_s: float | None) -> Segment:
    if any(stage.seconds for stage in stages):
        return Segment(stages=stages, first_stage=first, total=None, seconds=sum(stage.seconds or 0.0 for stage in stages))
    total = stages[0].count or num_prompts
    if stages[0].name and total is None and run_time_s is None:
        raise UsageError(
            f"stage {stages[0].name} needs an end: give --num-prompts or -t, or write {stages[0].name}:64 or {stages[0].name}:30s"
        )
    return Segment(stages=stages, first_stage=first, total=total, seconds=None if stages[0].count else run_time_s)


def _open(model: LoadModel, first: int, stages: tuple[Stage, ...], num_prompts: int | None, run_time_s: float | None) -> Segment:
    """The schedules of its stages, one after the other. A time alone says how many requests there are; all of them are sent and
    answered, however long that takes."""
    parts, stage_indices, begin_s, cut_s = [], [], 0.0, None
    for stage_index, together in _at_one_rate(stages):
        number, stage = first + stage_index, together[0]
        if len(together) > 1:  # one schedule for all of them: of 1.5 a second, windows of a second would get one each
            stage = replace(stage, seconds=sum(each.seconds or 0.0 for each in together))
        rate_rps = stage.rate_rps or 1.0
        ramp = _ramp(model, stage, rate_rps)
        count, seconds = stage.count, stage.seconds
        if count is None and seconds is None:
            count, seconds = num_prompts, run_time_s
            cut_s = seconds if count is not None else None
        if count is None and seconds is None:
            raise UsageError("a request rate needs an end: give --num-prompts or -t")
        _check_size(count or max(rate_rps, ramp.start_rps if ramp else 0.0) * (seconds or 0.0))
        if count is None:
            count = _within(stage, ramp) if stage.seconds else for_time(rate_rps, seconds or 0.0, ramp=ramp)
        scheduled_s = arrivals_s(
            count, rate_rps, burstiness=model.burstiness, process=model.process, seed=model.seed + number, ramp=ramp
        )
        if stage.seconds:  # the last may be late by rounding
            scheduled_s = np.minimum(scheduled_s, stage.seconds)
        if scheduled_s[-1] > LONGEST_S:
            raise UsageError(
                f"at {rate_rps:g} requests per second {count} of them take {scheduled_s[-1]:.3g} s: give a higher rate"
            )
        parts.append(begin_s + scheduled_s)
        ends_s = list(accumulate(each.seconds or 0.0 for each in together[:-1]))
        stage_indices.append(stage_index + np.searchsorted(ends_s, scheduled_s, side="right"))
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


def _at_one_rate(stages: Sequence[Stage]) -> list[tuple[int, tuple[Stage, ...]]]:
    """The stages, with the number of the first, those together that follow each other with a time each and the same rate."""

    def goes_on(stage_index: int) -> bool:
        before, stage = stages[stage_index - 1], stages[stage_index]
        steady = before.start is None and stage.start is None and before.rate_rps == stage.rate_rps
        return steady and bool(before.seconds and stage.seconds)

    return _in_groups(stages, goes_on)


def _in_groups(stages: Sequence[Stage], goes_on: Callable[[int], bool]) -> list[tuple[int, tuple[Stage, ...]]]:
    """The stages in groups, each with the number of its first: a stage (by its number) that goes on is in the group before it."""
    starts = [stage_index for stage_index in range(len(stages)) if not (stage_index and goes_on(stage_index))]
    return [(start, tuple(stages[start:end])) for start, end in zip(starts, [*starts[1:], len(stages)], strict=True)]


def _within(stage: Stage, ramp: RateRamp | None) -> int:
    """How many requests come within a stage's own time. A last one that would come after it is none: where the next stage goes on
    without a pause, that has begun by then. 2.5 a second for 3 s: 7."""
    rate_rps, seconds = stage.rate_rps or 1.0, stage.seconds or 0.0
    if ramp is not None:
        return for_time(rate_rps, seconds, ramp=ramp)
    if (count := math.floor(rate_rps * seconds * (1 + ROUNDING))) < 1:
        raise UsageError(
            f"stage {stage.name}: at {rate_rps:g} requests per second none comes within {seconds:g} s; raise one of the two"
        )
    return count


def _check_size(count: float) -> None:
    if count > MOST_ARRIVALS:
        raise UsageError(
            f"a schedule holds {MOST_ARRIVALS:,} requests at most, got {count:,.0f}: lower the rate, the time or the number"
        )


def _ramp(model: LoadModel, stage: Stage, rate_rps: float) -> RateRamp | None:
    if stage.start is not None:
        return RateRamp(model.ramp or LINEAR, stage.start, rate_rps)
    if model.ramp is not None and not model.stages:
        return RateRamp(model.ramp, model.ramp_start_rps or 1.0, rate_rps)
    return None


def stage_counts(segments: Sequence[Segment]) -> list[int] | None:
    """How many requests each stage of the run sends; None if that is not known before it, as a time may end one of them."""
    counts: list[int] = []
    for segment in segments:
        if segment.total is None or segment.seconds is not None:
            return None
        stage_indices = np.zeros(segment.total, dtype=np.int64) if segment.stage_index is None else segment.stage_index
        counts += np.bincount(stage_indices, minlength=len(segment.stages)).tolist()
    return counts


def total_requests(segments: Sequence[Segment]) -> int | None:
    """How many requests all of them send; None if that is not known before the run."""
    totals = [segment.total for segment in segments]
    return None if None in totals else sum(total or 0 for total in totals)
