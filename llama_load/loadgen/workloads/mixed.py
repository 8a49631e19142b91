"""Several kinds of requests in one queue, such as documents and images, interleaved by weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from msgspec import UNSET

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.prompt_plan import (
    DataFacts,
    Plan,
    PlanFacts,
    PlanRequest,
    Workload,
)
from llama_load.loadgen.workloads.replay import Replay
from llama_load.servers.prompt import Prompt


class Mixed:
    """A mixture of workloads, interleaved by `--weights`. Reports show each task by name."""

    name = "mixed"

    def __init__(self, **tasks: Workload) -> None:
        """Tasks by name: Mixed(document=Documents(), vision=Vision())."""
        self.tasks = tasks

    def plan(self, request: PlanRequest) -> Plan:
        """Plan every task's share. UsageError: --weights names an unknown task."""
        if any(isinstance(task, Replay) for task in self.tasks.values()):
            raise UsageError(
                "Replay cannot be a task of a mixture: each of its prompts belongs to one "
                "arrival of the trace"
            )
        weights = self._weights(request.traffic.weights)
        order = list(_interleaved(weights, request.num_prompts))
        plans = {
            name: self.tasks[name].plan(
                replace(
                    request.of_one(f"task {name}"),
                    num_prompts=order.count(name),
                    fill=True,
                )
            )
            for name in dict.fromkeys(order)
        }
        queues = {name: iter(plan.measured) for name, plan in plans.items()}
        # Other tasks' requests come between the turns of a conversation, so each turn is sent
        # alone, with the recorded history.
        measured = [
            replace(next(queues[name]), task=name, more=0, turns=None) for name in order
        ]
        warmup = [
            replace(prompt, task=name)
            for name, plan in plans.items()
            for prompt in plan.warmup
        ]
        return Plan(
            measured,
            _in_turn(warmup, len(plans), request.warmup),
            _summed(plans),
            _rounds(list(plans.values())),
        )

    def _weights(self, given: Mapping[str, float]) -> dict[str, float]:
        unknown = [name for name in given if name not in self.tasks]
        if unknown:
            raise UsageError(
                f"--weights names {unknown[0]!r}; this mixture has {', '.join(self.tasks)}"
            )
        return (
            {name: given.get(name, 0.0) for name in self.tasks}
            if given
            else dict.fromkeys(self.tasks, 1.0)
        )


def _interleaved(weights: Mapping[str, float], count: int) -> Iterator[str]:
    """`count` names, as evenly interleaved as their weights allow: a=2, b=1 gives a b a a b a …

    Smooth weighted round robin: every name gains its weight, the largest is next and loses the sum.
    Source: nginx's balancer.
    """
    credit = dict.fromkeys(weights, 0.0)
    total = sum(weights.values())
    for _ in range(count):
        for name, weight in weights.items():
            credit[name] += weight
        richest = max(credit, key=lambda name: credit[name])
        credit[richest] -= total
        yield richest


def _rounds(plans: Sequence[Plan]) -> int:
    """The most rounds of a task; 0 where the prompts of one repeat as they are."""
    rounds = [plan.rounds for plan in plans]
    return max(rounds) if all(rounds) else 0


def _in_turn(warmup: list[Prompt], tasks: int, count: int) -> list[Prompt]:
    """Warm-up prompts of the tasks in turn. (Each task planned the full number.)"""
    per_task = len(warmup) // tasks if tasks else 0
    return (
        [warmup[number % tasks * per_task + number // tasks] for number in range(count)]
        if per_task
        else []
    )


def _summed(plans: Mapping[str, Plan]) -> PlanFacts:
    """The facts of the tasks' plans, with numbers added up."""
    tasks = {name: plan.facts for name, plan in plans.items()}
    parts = list(tasks.values())
    return PlanFacts(
        dataset=DataFacts(path=" + ".join(part.dataset.path for part in parts)),
        counted_by=parts[0].counted_by,
        distinct=sum(part.distinct for part in parts),
        repeated=sum(part.repeated for part in parts),
        varied=sum(part.varied or 0 for part in parts) or UNSET,
        replaced=sum(part.replaced for part in parts),
        cut=sum(part.cut or 0 for part in parts),
        tasks=tasks,
    )
