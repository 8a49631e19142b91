"""Synthetic agents: as large as usual where they fit a slot, else smaller as a whole, and never
silently."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from llama_load.loadgen.workloads.agent import Agent, AgentFacts
from llama_load.loadgen.workloads.prompt_plan import (
    AgentShape,
    Plan,
    PlanRequest,
    Traffic,
)


class Words:
    source = "words"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


def plan(slot: int | None, **shape: int) -> Plan:
    wanted = PlanRequest(
        num_prompts=20,
        fill=True,
        warmup=1,
        seed=3,
        counter=Words(),
        fits=None if slot is None else lambda prompt, answer: prompt + answer <= slot,
        traffic=Traffic(agent=AgentShape(**shape)),
    )
    return Agent().plan(wanted)


def size(planned: Plan) -> tuple[int, int, int]:
    facts = planned.facts.dataset
    assert isinstance(facts, AgentFacts)
    return facts.rounds, facts.system_tokens, facts.tool_output_tokens


def test_agents_are_as_large_as_usual_where_the_slot_is_large_or_unknown() -> None:
    for slot in (None, 16384):
        planned = plan(slot)
        assert (size(planned), planned.facts.shortened) == ((8, 1500, 400), 0)
        assert "instead of" not in str(planned.facts.dataset)


@pytest.mark.parametrize(
    ("slot", "expected"),
    [(4096, (8, 750, 200)), (2048, (8, 150, 40)), (1000, (2, 150, 40))],
)
def test_agents_are_made_smaller_until_a_whole_conversation_fits_a_slot(
    slot: int, expected: tuple[int, int, int]
) -> None:
    planned = plan(slot)
    assert (size(planned), planned.facts.shortened) == (expected, 0)
    assert {prompt.turns for prompt in planned.measured} == {expected[0] + 1}
    assert f"{expected[1]} instead of 1500 tokens" in str(planned.facts.dataset)


def test_what_a_flag_sets_is_not_changed() -> None:
    assert size(plan(4096, tool_output_tokens=300))[2] == 300
    planned = plan(4096, rounds=8, system_tokens=1500, tool_output_tokens=400)
    assert size(planned) == (8, 1500, 400)
    assert planned.facts.shortened == len(
        {prompt.conversation for prompt in planned.measured}
    )
