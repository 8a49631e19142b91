"""The prompts of a run: every workload of the locustfile plans its prompts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

# the standard pool's threads are greenlets here, on one core
from gevent.threadpool import ThreadPoolExecutor

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.preflight.load_fits import PlannedLoad
from llama_load.loadgen.preflight.slot_budget import Budget
from llama_load.loadgen.schedule.segments import stage_counts
from llama_load.loadgen.workloads.mixed import Mixed
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Workload
from llama_load.loadgen.workloads.stage_order import in_stages
from llama_load.loadgen.workloads.traces import MOONCAKE_BLOCK
from llama_load.servers.counting import TokenCounter

# From so many prompts on, reading and counting them takes seconds (8 s per 100,000 on one core).
MANY = 10_000


def plan_prompts(
    environment: Any,
    options: RunOptions,
    load: PlannedLoad,
    budget: Budget,
    counter: TokenCounter,
    *,
    nonce: str,
    renews: bool,
    varies: bool,
) -> Mapping[str, Plan]:
    """A plan by the name of each workload; generated prompts depend on the nonce if the run
    `renews` them, and prompts of bundled data vary if they are sent again and the run can `vary`
    them. UsageError: the data does not allow one."""
    block = MOONCAKE_BLOCK
    if load.trace is not None:
        block = load.trace.block_tokens

    fits = None
    room: Callable[[int], int | None] = budget.room
    if options.keep_long_prompts:
        room = _unlimited
    elif budget.context is not None:
        fits = budget.fits

    plan_request = PlanRequest(
        num_prompts=load.distinct_prompts,
        num_conversations=load.num_conversations,
        fill=load.num_prompts is not None,
        warmup=load.warmup * len(load.segments) + load.filling,
        trace=load.model.arrivals or None,
        block_tokens=block,
        seed=options.seed,
        counter=counter,
        dataset_path=options.dataset_path,
        output_len=options.output_len,
        answer_len=budget.answer,
        exchange_tokens=budget.template,
        fits=fits,
        keeps_long=options.keep_long_prompts,
        room=room,
        threads=ThreadPoolExecutor,
        on_image_ready=_image_progress(),
        nonce=nonce,
        renews=renews,
        varies=varies and not options.has_own_data,
        traffic=options.traffic,
    )
    announce_many(load.distinct_prompts)
    plans: dict[str, Plan] = {}
    for name, workload in _workloads_of_users(environment).items():
        own_request = plan_request
        # Each after the first draws of its own.
        if plans:
            own_request = plan_request.of_one(f"workload {name}")

        plan = workload.plan(own_request)
        plans[name] = plan.with_think_times(options.traffic.think_time, options.seed)
    if not load.model.stages or load.model.same_prompts:
        return plans
    # The mix of several workloads within a stage is not known.
    counts = None
    if len(plans) == 1:
        counts = stage_counts(load.segments)

    alike = budget.answer is not None
    by_name = {}
    for name, plan in plans.items():
        by_name[name] = in_stages(plan, counts, options.seed, same_answers=alike)

    return by_name


def announce_many(prompts: int) -> None:
    """Say on stderr what takes seconds before anything else is printed."""
    if prompts >= MANY:
        print(
            f"reading and counting {prompts:,} prompts …", file=sys.stderr, flush=True
        )


def _unlimited(_answer_tokens: int) -> None:
    """The room for a prompt with --keep-long-prompts."""


def _workloads_of_users(environment: Any) -> dict[str, Workload]:
    """The workloads of the user classes by name. UsageError: two different ones have the same
    name."""
    workloads: dict[str, Workload] = {}
    for user in environment.user_classes:
        workload = getattr(user, "workload", None)
        if workload is None:
            continue
        other = workloads.setdefault(workload.name, workload)
        if not _alike(other, workload):
            raise UsageError(
                f"two workloads of different kinds are both named {workload.name!r}; give one "
                "another name"
            )
    return workloads


def _alike(one: Workload, other: Workload) -> bool:
    if type(one) is not type(other):
        return False
    if not isinstance(one, Mixed) or not isinstance(other, Mixed):
        return True
    if list(one.tasks) != list(other.tasks):
        return False

    return all(_alike(task, other.tasks[name]) for name, task in one.tasks.items())


def _image_progress() -> Callable[[int], None]:
    """Prints to stderr how many images are ready, if that takes long."""
    printed_s = time.monotonic()

    def print_count(count: int) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s > 2:
            printed_s = time.monotonic()
            print(f"{count} images ready …", file=sys.stderr, flush=True)

    return print_count
