"""A mixture: shares as weights say, evenly interleaved, every task under its own name."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.mixed import Mixed
from llama_load.loadgen.workloads.prompt_plan import (
    DataFacts,
    Plan,
    PlanRequest,
    Traffic,
)
from llama_load.loadgen.workloads.vision import Vision
from llama_load.servers.counting import EstimatedCounter
from llama_load.servers.prompt import Prompt
from tests.make_records import facts


class Numbered:
    """A workload whose prompts are its name and a number."""

    def __init__(self, name: str) -> None:
        self.name = name

    def plan(self, wanted: PlanRequest) -> Plan:
        about = facts(
            dataset=DataFacts(path=self.name), distinct=5, repeated=1, replaced=2
        )
        measured = [Prompt(f"{self.name}{n}") for n in range(wanted.num_prompts)]
        return Plan(
            measured,
            [Prompt(f"{self.name} warm {n}") for n in range(wanted.warmup)],
            about,
        )


WANTED = PlanRequest(
    num_prompts=8, fill=True, warmup=3, seed=0, counter=EstimatedCounter()
)
MIXED = Mixed(document=Numbered("d"), vision=Numbered("v"))


def test_two_tasks_take_turns() -> None:
    plan = MIXED.plan(WANTED)
    assert [prompt.text for prompt in plan.measured] == [
        "d0",
        "v0",
        "d1",
        "v1",
        "d2",
        "v2",
        "d3",
        "v3",
    ]
    assert [prompt.task for prompt in plan.measured[:2]] == ["document", "vision"]
    assert [prompt.text for prompt in plan.warmup] == [
        "d warm 0",
        "v warm 0",
        "d warm 1",
    ]
    assert plan.facts.repeated == 2
    assert plan.facts.dataset.path == "d + v"


@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 200))
def test_shares_never_stray_from_the_weights_by_more_than_one(
    document: int, vision: int, count: int
) -> None:
    weights = {"document": float(document), "vision": float(vision)}
    plan = MIXED.plan(
        replace(WANTED, num_prompts=count, traffic=Traffic(weights=weights))
    )
    assert len(plan.measured) == count
    for so_far in range(1, count + 1):
        got = Counter(prompt.task for prompt in plan.measured[:so_far])
        assert abs(got["document"] - so_far * document / (document + vision)) <= 1


def test_a_task_that_there_is_none_of_is_named() -> None:
    with pytest.raises(UsageError, match="'audio'; this mixture has document, vision"):
        MIXED.plan(replace(WANTED, traffic=Traffic(weights={"audio": 1})))


def test_two_tasks_of_one_kind_send_nothing_alike() -> None:
    """Or the second would find its pictures in the server's cache."""
    wanted = replace(WANTED, traffic=Traffic(image_size=(32, 32)))
    plan = Mixed(small=Vision(), large=Vision()).plan(wanted)
    sent = [
        image.sha256
        for prompt in plan.measured + plan.warmup
        for image in prompt.images
    ]
    assert len(sent) == len(set(sent)) == 11
    alone = [
        image.sha256
        for prompt in Vision().plan(wanted.of_one("workload vision")).measured
        for image in prompt.images
    ]
    assert not {*alone} & {*sent}
