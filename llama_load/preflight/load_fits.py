"""The load of a run: its arrivals or users, phase by phase, and how many users Locust must have ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from locust.runners import MasterRunner

from llama_load.dispatch.leases import MOST_USERS_A_PROCESS
from llama_load.errors import UsageError
from llama_load.load.schedule import drawn_by_weight
from llama_load.load.segments import FILLING, LoadModel, Segment, of_conversations, plan_segments, total_requests
from llama_load.options.flags import DEFAULT_NUM_PROMPTS
from llama_load.options.options import RunOptions
from llama_load.preflight.trace import load_trace
from llama_load.preflight.user_mix import sending_users
from llama_load.run_folder import PreflightRow
from llama_load.units import quantity
from llama_load.workloads.prompt import Plan

# The users of an open loop are estimated from the requests scheduled within this time; warm-up uses this many too.
USERS_AHEAD_S = 3.0


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
    counts_requests: bool = False  # --num-prompts, or its default, ends the run

    @property
    def num_prompts(self) -> int | None:
        """Measured requests; None if a time ends a segment."""
        return total_requests(self.segments)

    @property
    def distinct_prompts(self) -> int:
        """The number of different prompts that it takes."""
        counted = max((segment.total or 0 for segment in self.segments), default=0) if self.model.same_prompts else self.num_prompts
        return counted or DEFAULT_NUM_PROMPTS

    @property
    def num_conversations(self) -> int | None:
        """The conversations that arrive within the time of a rate; None: a number of requests, or of users, sets the amount."""
        if self.model.conversations_per_min is None or self.counts_requests:
            return None
        return self.segments[0].total

    @property
    def concurrency(self) -> int | None:
        """Maximum requests in flight; None without a limit. (The users of an open loop are available users, not load.)"""
        return self.model.max_in_flight if self.model.is_open else self.sending


def planned_load(environment: Any, options: RunOptions, run_time_s: float | None, *, headless: bool) -> PlannedLoad:
    """The load that the flags ask for. UsageError: a flag has no effect, or the load is impossible."""
    model = options.load
    if options.trace is not None:
        model = replace(model, arrivals=load_trace(options.trace, speed=options.traffic.speed))
    of_each_stage = options.num_prompts
    shaped = environment.shape_class is not None and not model.stages  # a LoadTestShape ends the run
    if of_each_stage is None and run_time_s is None and headless and not model.arrivals and not shaped:
        of_each_stage = DEFAULT_NUM_PROMPTS
    segments = plan_segments(model, of_each_stage, run_time_s)
    num_users, workers = environment.parsed_options.num_users, _workers(environment)
    most = MOST_USERS_A_PROCESS * max(1, workers)
    users = max(num_users, *(segment.most_users or 0 for segment in segments))
    sending = users if model.stages else sending_users(environment.user_classes, users)
    handed_over = sending if model.hands_over else 0
    if of_each_stage is not None and of_each_stage < 2 * handed_over:
        raise UsageError(f"--hand-over with {sending} users needs --num-prompts {2 * sending} or more, got {of_each_stage}")
    load = PlannedLoad(
        model=model,
        segments=segments,
        weights=_weights(environment),
        run_time_s=run_time_s,
        workers=workers,
        alive=options.conversations,
        users=users,
        sending=sending,
        busy=max(num_users, *(min(segment.users_to_begin(USERS_AHEAD_S), most) for segment in segments)),
        warmup=max(options.warmup, handed_over),
        filling=FILLING * handed_over,
        counts_requests=of_each_stage is not None,
    )
    if model.conversations_per_min is not None and run_time_s is not None and options.num_prompts is not None:
        raise UsageError("--conversation-rate runs until its conversations have ended: give -t or --num-prompts, not both")
    if options.goals.until is not None and run_time_s is None and options.num_prompts is None:
        raise UsageError(f"--until {options.goals.until.text} needs a limit: give -t or --num-prompts")
    _refuse_what_makes_no_schedule(environment, options, load)
    return load


def with_conversations(load: PlannedLoad, plans: Mapping[str, Plan]) -> PlannedLoad:
    """The load with its conversations: those that arrive by a rate get the schedule of their requests. UsageError: the prompts are
    no conversations."""
    rate, alive = load.model.conversations_per_min, load.alive
    if rate is None and alive is None:
        return load
    if not any(prompt.more for plan in plans.values() for prompt in plan.measured):
        flag, instead = ("--conversations", f"-u {alive}") if rate is None else ("--conversation-rate", "--request-rate")
        raise UsageError(
            f"{flag} needs conversations of several turns, and this locustfile sends single requests: give --turns all, use "
            f"conversations.py or agent.py, or give {instead} instead"
        )
    if rate is None:
        return load
    count = load.num_prompts if load.counts_requests else None
    turns = _turns(plans, load.weights, load.model.seed)
    return replace(load, segments=[of_conversations(load.model, load.segments[0], turns, count)])


def _turns(plans: Mapping[str, Plan], weights: Mapping[str, float], seed: int) -> Iterator[int]:
    """The numbers of requests of the conversations in the order in which they arrive, without end: the dispatcher leases the next
    one of the workload that is drawn for its first request."""
    drawn = drawn_by_weight(weights, seed)
    places: Counter[str] = Counter()
    number = 0
    while True:
        workload = drawn(number)
        length = plans[workload].turns_from(places[workload]) if workload in plans else 1
        places[workload] += length
        number += length
        yield length


def _workers(environment: Any) -> int:
    master = isinstance(environment.runner, MasterRunner)
    return max(environment.runner.worker_count, environment.parsed_options.expect_workers) if master else 1


def _weights(environment: Any) -> dict[str, float]:
    """Each workload's share of scheduled arrivals, from the weights of the user classes."""
    weights: Counter[str] = Counter()
    for user in environment.user_classes:
        if hasattr(user, "workload_name"):  # not one of Locust's own
            weights[user.workload_name()] += user.fixed_count or user.weight
    return dict(weights)


def _refuse_what_makes_no_schedule(environment: Any, options: RunOptions, load: PlannedLoad) -> None:
    model = load.model
    if model.is_open and not load.weights:
        raise UsageError("a request rate needs a user class that sends: make one of the locustfile's classes a LlamaUser")
    fixed = [user.__name__ for user in environment.user_classes if user.fixed_count]
    if model.is_open and fixed:
        raise UsageError(f"{fixed[0]} has a fixed_count, but a request rate needs a variable number of users; use weight instead")
    amounts = [stage.count is not None or stage.seconds is not None for stage in model.stages]
    if amounts and all(amounts) and (load.run_time_s is not None or options.num_prompts is not None):
        what = "--num-prompts" if load.run_time_s is None else "-t"
        raise UsageError(f"{what} has no effect, because every stage has its own amount: leave it out")


def load_rows(model: LoadModel, segments: list[Segment]) -> list[PreflightRow]:
    """Rows for the preflight table; none for a plain closed loop, which -u and --num-prompts describe."""
    if model.stages:
        return [PreflightRow("stages", _stages(model, segments))]
    if not model.is_open:
        return []
    (segment,) = segments
    last_s = float(segment.scheduled_s[-1]) if segment.scheduled_s is not None else 0.0
    requests = quantity(segment.total or 0, "request")
    if model.arrivals:
        what = "arrivals of a trace"
    else:
        shape = f"gamma, burstiness {model.burstiness:g}" if model.process == "gamma" else model.process
        what = f"{model.rate_rps:g} requests/s ({shape})" if model.rate_rps is not None else ""
        if model.conversations_per_min is not None:
            what = f"{model.conversations_per_min:g} conversations/min ({shape})"
            requests = f"{quantity(segment.conversations or 0, 'conversation')} with {requests}"
        if model.ramp is not None:
            what = f"{model.ramp} ramp from {model.ramp_start_rps:g} to {what}"
    return [PreflightRow("load", f"open loop: {what}, {requests} in {last_s:.1f} s{_limit(model)}")]


def _limit(model: LoadModel) -> str:
    if model.max_in_flight is None:
        return ""
    return f"; at most {model.max_in_flight} in flight, the rest is {'dropped' if model.drops else 'queued'}"


def _stages(model: LoadModel, segments: list[Segment]) -> str:
    names = ", ".join(stage.name for stage in model.stages)
    total = total_requests(segments)
    count = "as many prompts as fit its time each" if total is None else f"{quantity(total, 'prompt')} in all"
    which = "the same in every stage" if model.same_prompts else "new ones of similar lengths in every stage while there are any"
    return f"{names}: {count}, {which}{_limit(model)}"
