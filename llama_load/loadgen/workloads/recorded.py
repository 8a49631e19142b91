"""Recorded conversations, sent whole: chats and agents with all their messages, tools, tool
results, images and sub-agents."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.prompt_plan import (
    DataFacts,
    DataReading,
    Plan,
    PlanRequest,
    chained,
)
from llama_load.loadgen.workloads.talk_prompts import Chat, TalkWriter
from llama_load.servers.prompt import Prompt

if TYPE_CHECKING:
    from llama_load.loadgen.workloads.talk_files import TalkFile

SAMPLE = "datasets/agent_messages.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkFacts(DataFacts):
    """A file of recorded conversations: its layout, its conversations, and the requests in all of
    them."""

    layout: str
    conversations: int
    requests: int
    with_tools: int  # conversations that have tools
    sub_agents: int


class Conversations:
    """The conversations of a file, in its order, each sent whole by one user: all turns, unless
    --turns says otherwise.

    Reads OpenAI messages, ShareGPT, spans of OpenTelemetry and the agentic traces of
    kv-cache-tester (see docs/conversations.md). The recorded tool results follow the model's own
    tool calls, or with --history recorded the recorded ones.
    """

    name = "conversations"

    def plan(self, request: PlanRequest) -> Plan:
        """Choose the prompts of a run. UsageError names the line that is not understood.

        The requests of a conversation are consecutive; the last one is cut at `num_prompts`.
        """
        # Its readers of six layouts: other workloads do without.
        from llama_load.loadgen.workloads.talk_files import read_talks

        file = read_talks(
            bundled(SAMPLE) if request.dataset_path is None else request.dataset_path,
            request,
        )
        writer = TalkWriter(request)
        most_turns = request.traffic.turns if request.traffic.limits_turns else None
        chats: list[Chat] = []
        warmup: list[Prompt] = []
        left_out = 0
        planned = 0
        for talk in writer.counted(file.talks):
            chat = writer.chat(talk, most_turns)
            if not chat.prompts:
                left_out += 1
            elif not request.is_enough(planned, len(chats)):
                chats.append(chat)
                planned += len(chat.prompts)
            elif len(warmup) < request.warmup:
                warmup += chained(chat.prompts[:1])
            else:
                break
        if not chats:
            raise UsageError(
                f"the first turns of all {left_out} conversations of {file.path} are longer than "
                "a slot of the server; start it "
                "with a larger context or fewer slots, or send them anyway with --keep-long-prompts"
            )
        chats = [_at_speed(chat, request.traffic.speed) for chat in chats]
        measured = [prompt for chat in chats for prompt in chat.prompts]
        distinct = len(measured)
        draw = random.Random(request.seed)
        count = len(chats)
        while request.fill and not request.is_enough(len(measured), count):
            measured += draw.choice(chats).prompts
            count += 1
        return request.plan(
            measured,
            warmup,
            _facts(file),
            distinct=distinct,
            replaced=left_out,
            shortened=sum(chat.missing > 0 for chat in chats),
            shared_tokens=file.shared_tokens,
            reading=DataReading(
                ignored=file.ignored, unread=file.unread, left_out=file.left_out
            ),
        )


def _at_speed(chat: Chat, speed: float) -> Chat:
    """The conversation with its recorded waits divided by this."""
    if speed == 1:
        return chat
    prompts = (
        prompt
        if prompt.delay_s is None
        else replace(prompt, delay_s=prompt.delay_s / speed)
        for prompt in chat.prompts
    )
    return replace(chat, prompts=tuple(prompts))


def _facts(file: TalkFile) -> TalkFacts:
    talks = file.talks
    return TalkFacts(
        path=file.path,
        sha256=file.sha256,
        layout=file.layout,
        conversations=len(talks),
        requests=sum(talk.requests for talk in talks),
        with_tools=sum(bool(talk.fields.get("tools")) for talk in talks),
        sub_agents=sum(len(turn.agents) for talk in talks for turn in talk.turns),
    )
