"""Leases in messages: what the turns of a conversation share travels once, and every prompt arrives
as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.swarm import lease_packing
from llama_load.loadgen.swarm.lease_packing import pack_leases, unpack_leases
from llama_load.loadgen.workloads.agent import Agent
from llama_load.loadgen.workloads.prompt_plan import AgentShape, PlanRequest, Traffic
from llama_load.loadgen.workloads.recorded import Conversations
from llama_load.servers.prompt import Image, Message, Prompt

PICTURE = Image(b"data:image/png;base64,QUJD", "00", 1, 1)


class Letters:
    source = "letters"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text) // 4 for text in texts]


def wanted(num_prompts: int, path: Path | None = None, **agent: int) -> PlanRequest:
    return PlanRequest(
        num_prompts=num_prompts,
        fill=False,
        warmup=0,
        seed=0,
        counter=Letters(),
        dataset_path=None if path is None else str(path),
        traffic=Traffic(agent=AgentShape(**agent)),
    )


def leases(prompts: Sequence[Prompt | None]) -> list[Lease]:
    """A conversation begins where none of the prompt before follows."""
    begins = [True, *(before is None or not before.more for before in prompts[:-1])]
    return [
        Lease(i, False, "w", prompt, i, follows=not first)
        for i, (prompt, first) in enumerate(zip(prompts, begins, strict=True))
    ]


def arrived(sent: Sequence[Lease]) -> list[Lease]:
    return [lease for message in pack_leases(sent) for lease in unpack_leases(message)]


def size(sent: Sequence[Lease]) -> int:
    return sum(map(len, pack_leases(sent)))


def test_every_kind_of_conversation_arrives_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Recorded agents with sub-agents, generated ones, a reset context, images in two turns,
    requests without a prompt; in many messages, too."""
    first = Prompt(
        "look",
        more=3,
        images=(PICTURE,),
        messages=(Message("user", "look", (PICTURE,)),),
    )
    shown = (*first.added, Message("assistant", "a cat"))
    second = Prompt(
        "again",
        more=2,
        history=shown,
        images=(PICTURE, PICTURE),
        messages=(Message("user", "again", (PICTURE,)),),
    )
    reset = Prompt("anew", more=1, resets=True)
    other_tools = Prompt(
        "last", history=(*reset.added, Message("assistant", "x")), fields={"tools": [1]}
    )
    talks = [
        *Conversations().plan(wanted(60)).measured,
        *Agent().plan(wanted(40, rounds=4, sub_agents=2)).measured,
        first,
        second,
        reset,
        other_tools,
        None,
        Prompt("alone"),
    ]
    assert any(prompt is not None and prompt.agent for prompt in talks)
    assert arrived(leases(talks)) == leases(talks)
    # The rest of a conversation, which another user sends.
    for begin in (3, 61):
        rest = leases(talks)[begin : begin + 5]
        rest = [replace(rest[0], follows=False), *rest[1:]]
        assert arrived(rest) == rest
    monkeypatch.setattr(lease_packing, "MOST_BYTES", 1000)
    assert len(list(pack_leases(leases(talks)))) > 5
    assert arrived(leases(talks)) == leases(talks)


def test_a_conversation_of_twice_as_many_turns_takes_twice_the_bytes() -> None:
    short, long = (
        size(leases(Agent().plan(wanted(1, rounds=rounds)).measured))
        for rounds in (30, 60)
    )
    assert 1.8 < long / short < 2.2
