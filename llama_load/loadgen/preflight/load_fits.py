"""The load of a run: arrivals of a trace or by a rate, or users; and how many Locust must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from locust.dispatch import UsersDispatcher
from locust.runners import MasterRunner, WorkerNode

from llama_load.ground.errors import UsageError
from llama_load.ground.units import quantity
from llama_load.loadgen.dispatch.leases import MOST_USERS_A_PROCESS
from llama_load.loadgen.options.flag_limits import DEFAULT_NUM_PROMPTS
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.preflight.plan_rows import reading_rows
from llama_load.loadgen.schedule.schedule import drawn_by_weight
from llama_load.loadgen.schedule.segments import (
    FILLING,
    GAMMA,
    LoadModel,
    Segment,
    of_conversations,
    plan_segments,
    total_requests,
)
from llama_load.loadgen.workloads.arrival import Arrival
from llama_load.loadgen.workloads.prompt_plan import DataReading, Plan
from llama_load.loadgen.workloads.traces import (
    LAYOUTS,
    Trace,
    read_trace_file,
    span_and_rate,
)
from llama_load.run_folder import PreflightRow, load_run
from llama_load.run_folder.observed.record import OK

# The users of an open loop are estimated from the requests scheduled within this time; warm-up uses
# this many too.
USERS_AHEAD_S = 3.0
# The requests planned for a run that ends by time. It may send more.
TIMED_PROMPTS = 1000
# The row of the preflight table with the load.
LOAD = "load"


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """When requests are sent: the load model, with its trace read, and its segments."""

    model: LoadModel
    segments: list[Segment]
    weights: Mapping[str, float]  # each workload's share of arrivals, by name
    run_time_s: float | None
    workers: int  # sending processes, as far as is known now
    alive: int | None  # conversations at a time, of --conversations
    users: int  # that Locust must start
    sending: int  # those of them that send LLM requests
    busy: int  # those at the start; an open loop creates more on demand
    warmup: int  # requests of each warm-up
    filling: int  # requests that keep up the load after the last measured one was sent, at most
    trace: Trace | None = None
    counts_requests: bool = False  # --num-prompts, or its default, ends the run

    @property
    def num_prompts(self) -> int | None:
        """Measured requests; None if a time ends a segment."""
        return total_requests(self.segments)

    @property
    def distinct_prompts(self) -> int:
        """The number of different prompts that it takes."""
        counted = self.num_prompts
        if self.model.same_prompts:
            counted = 0
            for segment in self.segments:
                counted = max(counted, segment.total or 0)

        return counted or TIMED_PROMPTS

    @property
    def num_conversations(self) -> int | None:
        """The conversations that arrive within the time of a rate; None: a number of requests, or
        of users, sets the amount."""
        if self.model.conversations_per_min is None or self.counts_requests:
            return None
        return self.segments[0].total

    @property
    def concurrency(self) -> int | None:
        """Maximum requests in flight; None without a limit. (The users of an open loop are
        available users, not load.)"""
        if self.model.is_open:
            return self.model.max_in_flight
        return self.sending


def planned_load(
    environment: Any, options: RunOptions, run_time_s: float | None, *, headless: bool
) -> PlannedLoad:
    """The load that the flags ask for. UsageError: a flag has no effect, or the load is
    impossible."""
    model = options.load
    trace = None
    if options.trace is not None:
        trace = _trace_of(environment, options.trace, options)
        model = replace(model, arrivals=trace.arrivals)
    of_each_stage = options.num_prompts
    has_shape = environment.shape_class is not None and not model.stages
    is_ended_otherwise = (
        has_shape or model.arrivals or run_time_s is not None or not headless
    )
    if of_each_stage is None and not is_ended_otherwise:
        of_each_stage = DEFAULT_NUM_PROMPTS
    segments = plan_segments(model, of_each_stage, run_time_s)

    num_users = environment.parsed_options.num_users
    workers = _workers(environment)
    most = MOST_USERS_A_PROCESS * max(1, workers)
    users = num_users
    busy = num_users
    for segment in segments:
        to_begin = segment.users_to_begin(USERS_AHEAD_S)
        users = max(users, segment.most_users or 0)
        busy = max(busy, min(to_begin, most))

    sending = users
    if not model.stages:
        sending = sending_users(environment.user_classes, users)

    handed_over = 0
    if model.hands_over:
        handed_over = sending

    if of_each_stage is not None and of_each_stage < 2 * handed_over:
        raise UsageError(
            f"--hand-over with {sending} users needs --num-prompts {2 * sending} or more, got "
            f"{of_each_stage}"
        )

    load = PlannedLoad(
        model=model,
        segments=segments,
        weights=_weights(environment),
        run_time_s=run_time_s,
        workers=workers,
        alive=options.conversations,
        users=users,
        sending=sending,
        busy=busy,
        warmup=max(options.warmup, handed_over),
        filling=FILLING * handed_over,
        trace=trace,
        counts_requests=of_each_stage is not None,
    )
    has_two_ends = run_time_s is not None and options.num_prompts is not None
    if model.conversations_per_min is not None and has_two_ends:
        raise UsageError(
            "--conversation-rate runs until its conversations have ended: give -t or "
            "--num-prompts, not both"
        )
    has_limit = run_time_s is not None or options.num_prompts is not None
    if options.goals.until is not None and not has_limit:
        raise UsageError(
            f"--until {options.goals.until.text} needs a limit: give -t or --num-prompts"
        )
    _refuse_what_makes_no_schedule(environment, options, load)
    return load


def with_conversations(load: PlannedLoad, plans: Mapping[str, Plan]) -> PlannedLoad:
    """The load with its conversations: those that arrive by a rate get the schedule of their
    requests. UsageError: the prompts are no conversations."""
    rate = load.model.conversations_per_min
    if rate is None and load.alive is None:
        return load
    flag = "--conversation-rate"
    instead = "--request-rate"
    if rate is None:
        flag = "--conversations"
        instead = f"-u {load.alive}"
    if not any(map(_has_turns, plans.values())):
        raise UsageError(
            f"{flag} needs conversations of several turns, and this locustfile sends single "
            "requests: give --turns all, use "
            f"conversations.py or agent.py, or give {instead} instead"
        )
    if rate is None:
        return load

    count = None
    if load.counts_requests:
        count = load.num_prompts

    turns = _turns_in_order(plans, load.weights, load.model.seed)
    segment = of_conversations(load.model, load.segments[0], turns, count)

    return replace(load, segments=[segment])


def _has_turns(plan: Plan) -> bool:
    return any(prompt.more for prompt in plan.measured)


def _turns_in_order(
    plans: Mapping[str, Plan], weights: Mapping[str, float], seed: int
) -> Iterator[int]:
    """The numbers of requests of the conversations in the order in which they arrive, without end:
    the dispatcher leases the next one of the workload that is drawn for its first request."""
    drawn = drawn_by_weight(weights, seed)
    places: Counter[str] = Counter()
    number = 0
    while True:
        workload = drawn(number)
        length = 1
        if workload in plans:
            length = plans[workload].turns_from(places[workload])

        places[workload] += length
        number += length
        yield length


def _workers(environment: Any) -> int:
    runner = environment.runner
    if not isinstance(runner, MasterRunner):
        return 1
    expected: int = environment.parsed_options.expect_workers
    return max(runner.worker_count, expected)


def _weights(environment: Any) -> dict[str, float]:
    """Each workload's share of scheduled arrivals, from the weights of the user classes."""
    weights: Counter[str] = Counter()
    for user in environment.user_classes:
        if hasattr(user, "workload_name"):  # not one of Locust's own
            weights[user.workload_name()] += user.fixed_count or user.weight
    return dict(weights)


def _refuse_what_makes_no_schedule(
    environment: Any, options: RunOptions, load: PlannedLoad
) -> None:
    model = load.model
    if model.is_open and not load.weights:
        raise UsageError(
            "a request rate needs a user class that sends: make one of the locustfile's classes "
            "a LlamaUser"
        )

    for user in environment.user_classes:
        if model.is_open and user.fixed_count:
            raise UsageError(
                f"{user.__name__} has a fixed_count, but a request rate needs a variable number "
                "of users; use weight instead"
            )

    has_own_amounts = bool(model.stages)
    for stage in model.stages:
        if stage.count is None and stage.seconds is None:
            has_own_amounts = False

    what = None
    if load.run_time_s is not None:
        what = "-t"
    elif options.num_prompts is not None:
        what = "--num-prompts"

    if has_own_amounts and what is not None:
        raise UsageError(
            f"{what} has no effect, because every stage has its own amount: leave it out"
        )


def load_rows(load: PlannedLoad, wait_at_end_s: float = 0) -> list[PreflightRow]:
    """The row of the preflight table that says what is sent, and what ends it. `wait_at_end_s`: for
    answers under way at the end of the time."""
    model = load.model
    if model.stages:
        return [PreflightRow(LOAD, _stages_text(model, load.segments))]
    (segment,) = load.segments
    if not model.is_open:
        return [PreflightRow(LOAD, _closed_text(load, segment, wait_at_end_s))]
    last_s = 0.0
    if segment.scheduled_s is not None:
        last_s = float(segment.scheduled_s[-1])
    if model.arrivals:
        plan = span_and_rate(segment.total or 0, last_s)
        text = f"open loop: arrivals of a trace, {plan}{_limit(model)}"
        return [PreflightRow(LOAD, text)]

    requests = quantity(segment.total or 0, "request")
    if model.conversations_per_min is not None:
        requests = (
            f"{quantity(segment.conversations or 0, 'conversation')} with {requests}"
        )
    text = f"open loop: {_rate(model)}, {requests} in {last_s:.1f} s"
    return [PreflightRow(LOAD, text + _limit(model))]


def _closed_text(load: PlannedLoad, segment: Segment, wait_at_end_s: float) -> str:
    """`8 users, 100 requests, at most 100 s and 20 s for answers under way`."""
    sending = load.sending
    if segment.total is not None:
        sending = min(sending, segment.total)
    parts = [quantity(sending, "user")]
    if load.alive is not None:
        parts = [quantity(load.alive, "conversation") + " at a time"]
    if segment.total is not None:
        parts.append(quantity(segment.total, "request"))
    if segment.seconds is not None:
        limit = "at most " if segment.total is not None else ""
        wait = (
            f" and {wait_at_end_s:g} s for answers under way" if wait_at_end_s else ""
        )
        parts.append(f"{limit}{segment.seconds:g} s{wait}")
    if segment.total is None and segment.seconds is None:
        parts.append("until it is stopped")
    return ", ".join(parts)


def trace_rows(trace: Trace | None) -> list[PreflightRow]:
    """What of the trace is not sent as it is there."""
    if trace is None:
        return []
    rows = len(trace.arrivals) + trace.left_out.total()
    reading = DataReading(
        left_out=trace.left_out, rows=rows, ignored=trace.ignored, unread=trace.unread
    )
    return reading_rows(reading)


def _rate(model: LoadModel) -> str:
    """`linear ramp from 1 to 8 requests/s (poisson)`."""
    shape = model.process
    if shape == GAMMA:
        shape = f"gamma, burstiness {model.burstiness:g}"
    if model.conversations_per_min is not None:
        what = f"{model.conversations_per_min:g} conversations/min ({shape})"
    else:
        what = f"{model.rate_rps:g} requests/s ({shape})"
    if model.ramp is None:
        return what
    return f"{model.ramp} ramp from {model.ramp_start_rps:g} to {what}"


def _limit(model: LoadModel) -> str:
    if model.max_in_flight is None:
        return ""

    rest = "queued"
    if model.drops:
        rest = "dropped"

    return f"; at most {model.max_in_flight} in flight, the rest is {rest}"


def _stages_text(model: LoadModel, segments: list[Segment]) -> str:
    names = ", ".join(stage.name for stage in model.stages)
    total = total_requests(segments)
    count = "as many prompts as fit its time each"
    if total is not None:
        count = f"{quantity(total, 'prompt')} in all"
    which = "new ones of similar lengths in every stage while there are any"
    if model.same_prompts:
        which = "the same in every stage"
    return f"{names}: {count}, {which}{_limit(model)}"


def _trace_of(environment: Any, path: Path, options: RunOptions) -> Trace:
    """The trace of a run. Where its lengths are sent, requests without any are left out."""
    from llama_load.loadgen.workloads.replay import (
        Replay,  # a run without a trace needs none
    )

    traffic = options.traffic
    trace = load_trace(
        path, speed=traffic.speed, unit=options.trace_unit, columns=traffic.columns
    )
    workloads = [getattr(user, "workload", None) for user in environment.user_classes]
    if any(isinstance(workload, Replay) for workload in workloads):
        sets_answers = options.output_len is not None or options.max_tokens is not None
        return trace.with_lengths(path, traffic.input_len, sets_answers=sets_answers)
    return trace


def load_trace(
    path: Path,
    *,
    speed: float = 1.0,
    unit: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Trace:
    """A trace, sorted by time, the first arrival at 0; `speed` 2 plays it in half the time.

    Arrivals at the same instant stay in file order. UsageError names the line when the trace is
    missing, empty or invalid; RunError: a damaged run folder.
    """
    trace = _read_trace(path, unit, columns)
    rows = sorted(trace.arrivals, key=attrgetter("at_s"))
    if not rows:
        raise UsageError(
            f"the trace {path} contains no request; it must have {LAYOUTS}"
        )

    arrivals = []
    for row in rows:
        since_first_s = row.at_s - rows[0].at_s
        arrivals.append(replace(row, at_s=since_first_s / speed))

    return replace(trace, arrivals=arrivals)


def _read_trace(
    path: Path, unit: str | None, columns: Mapping[str, str] | None
) -> Trace:
    """A trace file or run folder, at its own times."""
    if path.is_dir():
        return Trace(_rows_of_run(path))
    return read_trace_file(path, unit, columns)


def _rows_of_run(path: Path) -> list[Arrival]:
    """The measured requests of a run. A failed or cut request takes its token limit as the answer's
    length."""
    records = load_run(path).records.measured()
    columns = (
        "scheduled_mono_ns",
        "started_mono_ns",
        "status",
        "prompt_tokens",
        "output_tokens",
        "max_tokens",
    )
    arrivals = []
    for row in zip(*map(records.strings, columns), strict=True):
        scheduled_ns, started_ns, status, prompt_tokens, output_tokens, max_tokens = row
        at_ns = scheduled_ns
        if at_ns is None:
            at_ns = started_ns

        answer_tokens = max_tokens
        if status == OK:
            answer_tokens = output_tokens

        arrivals.append(Arrival(at_ns / 1e9, prompt_tokens, answer_tokens))
    return arrivals


def sending_users(user_classes: Iterable[Any], total: int) -> int:
    """Of `total` users those of our classes, as Locust's own dispatcher shares them out by `weight`
    and `fixed_count`; all where every class is ours, or none is. 4 users of a LlamaUser and an
    HttpUser of equal weight: 2."""
    return _sending(tuple(user_classes), total)


@lru_cache(64)
def _sending(user_classes: tuple[Any, ...], total: int) -> int:
    own = [user.__name__ for user in user_classes if hasattr(user, "workload_name")]
    if len(own) in (0, len(user_classes)) or total < 1:
        return total
    dispatcher = UsersDispatcher([WorkerNode("one")], list(user_classes))
    dispatcher.new_dispatch(total, total)
    (counts,) = next(dispatcher).values()

    sending = 0
    for name in own:
        sending += counts[name]

    return sending
