"""The prompts of a run: every workload of the locustfile plans its prompts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from gevent.threadpool import ThreadPoolExecutor  # the standard pool's threads are greenlets here, on one core

from llama_load.errors import UsageError
from llama_load.load.segments import stage_counts
from llama_load.options.options import RunOptions
from llama_load.preflight.checks import Budget
from llama_load.preflight.load_fits import PlannedLoad
from llama_load.workloads.counting import TokenCounter
from llama_load.workloads.mixed import Mixed
from llama_load.workloads.prompt import Plan, PlanRequest, Workload
from llama_load.workloads.stage_order import in_stages
from llama_load.workloads.traces import MOONCAKE_BLOCK, block_tokens


def plan_prompts(
    environment: Any, options: RunOptions, load: PlannedLoad, budget: Budget, counter: TokenCounter, *, nonce: str, renews: bool
) -> Mapping[str, Plan]:
    """A plan by the name of each workload; generated prompts depend on the nonce if the run `renews` them. UsageError: the data
    does not allow one."""
    plan_request = PlanRequest(
        num_prompts=load.distinct_prompts,
        num_conversations=load.num_conversations,
        fill=load.num_prompts is not None,
        warmup=load.warmup * len(load.segments) + load.filling,
        trace=load.model.arrivals or None,
        block_tokens=MOONCAKE_BLOCK if options.trace is None else block_tokens(options.trace),
        seed=options.seed,
        counter=counter,
        dataset_path=options.dataset_path,
        output_len=options.output_len,
        answer_len=budget.answer,
        exchange_tokens=budget.template,
        fits=None if options.keep_long_prompts or budget.context is None else budget.fits,
        room=(lambda _: None) if options.keep_long_prompts else budget.room,
        threads=ThreadPoolExecutor,
        on_image_ready=_image_progress(),
        nonce=nonce,
        renews=renews,
        traffic=options.traffic,
    )
    plans = {
        name: workload.plan(plan_request.of_one(f"workload {name}") if number else plan_request).with_think_times(
            options.traffic.think_time, options.seed
        )
        for number, (name, workload) in enumerate(_workloads(environment).items())
    }
    if not load.model.stages or load.model.same_prompts:
        return plans
    # The mix of several workloads within a stage is not known.
    counts = stage_counts(load.segments) if len(plans) == 1 else None
    alike = budget.answer is not None
    return {name: in_stages(plan, counts, options.seed, same_answers=alike) for name, plan in plans.items()}


def _workloads(environment: Any) -> dict[str, Workload]:
    """The workloads of the user classes by name. UsageError: two different ones have the same name."""
    workloads: dict[str, Workload] = {}
    for workload in (getattr(user, "workload", None) for user in environment.user_classes):
        if workload is None:
            continue
        other = workloads.setdefault(workload.name, workload)
        if not _alike(other, workload):
            raise UsageError(f"two workloads of different kinds are both named {workload.name!r}; give one another name")
    return workloads


def _alike(one: Workload, other: Workload) -> bool:
    if type(one) is not type(other):
        return False
    tasks, others = (workload.tasks if isinstance(workload, Mixed) else {} for workload in (one, other))
    return list(tasks) == list(others) and all(_alike(tasks[name], others[name]) for name in tasks)


def _image_progress() -> Callable[[int], None]:
    """Prints to stderr how many images are ready, if that takes long."""
    printed_s = time.monotonic()

    def tell(count: int) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s > 2:
            printed_s = time.monotonic()
            print(f"{count} images ready …", file=sys.stderr, flush=True)

    return tell
