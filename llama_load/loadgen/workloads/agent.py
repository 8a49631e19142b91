"""A synthetic agent: a system prompt with tools, then rounds of a tool call and its output, with a
context that grows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UNSET, UnsetType

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.block_text import BlockText
from llama_load.loadgen.workloads.data_files import ASSISTANT, SYSTEM, USER
from llama_load.loadgen.workloads.prompt_plan import (
    ROUNDS,
    SYSTEM_TOKENS,
    TOOL_OUTPUT_TOKENS,
    AgentShape,
    DataFacts,
    Plan,
    PlanRequest,
)
from llama_load.loadgen.workloads.talk_prompts import Chat, TalkWriter
from llama_load.loadgen.workloads.talks import TOOL, RecordedTurn, Talk
from llama_load.servers.prompt import Message, Prompt, ToolCall

# Tokens of a task and of the text that goes with a tool call, where no flag says otherwise.
TASK_TOKENS = 200
ANSWER_TOKENS = 64
# Agents that do not fit a slot get this share of the usual lengths, then this many rounds.
SHARES = (1.0, 0.75, 0.5, 0.4, 0.3, 0.2, 0.1)
FEWER_ROUNDS = (4, 2, 1)
# Tools of coding agents: a name, what it does, and its parameters.
_TOOLS = (
    ("read_file", "Read a file of the project.", ("path", "first_line", "last_line")),
    ("edit_file", "Replace a text in a file by another one.", ("path", "old", "new")),
    (
        "run_command",
        "Run a shell command in the project and return its output.",
        ("command", "timeout_s"),
    ),
    ("search", "Search the project for a regular expression.", ("pattern", "folder")),
    ("list_files", "List the files of a folder.", ("folder",)),
    ("write_file", "Write a new file.", ("path", "text")),
    ("fetch_page", "Fetch a page of the documentation.", ("url",)),
    (
        "ask_agent",
        "Start another agent with a task of its own and return its answer.",
        ("task",),
    ),
)
MOST_TOOLS = len(_TOOLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts(DataFacts):
    """The shape of the agents."""

    rounds: int
    system_tokens: int
    tools: int
    tool_output_tokens: int
    sub_agents: int
    # what is smaller than usual, so that agents fit a slot
    smaller: str | UnsetType = UNSET


class Agent:
    """Coding agents at work: every conversation is a task, rounds of a tool call with its output,
    and a last answer.

    The shape is set by --rounds, --system-tokens, --tools, --tool-output-tokens, --tool-time and
    --sub-agents; the task has --input-len tokens, each answer asks for --output-len. All agents
    share system prompt and tools. The history has the model's own answers; where it called no tool,
    a call is added, since the output of a tool follows. Sizes that no flag sets are made smaller
    until a whole agent fits a slot.
    """

    name = "agent"

    def plan(self, request: PlanRequest) -> Plan:
        """Make as many agents as the run needs. UsageError: not even the first request fits a
        slot."""
        writer = TalkWriter(request)
        shape = request.traffic.agent
        for maker in _makers(request, writer):
            chats = _chats(maker, writer, request)
            if not (shortened := sum(chat.missing > 0 for chat in chats)):
                break
        size = maker.size
        measured = [
            _unjudged(prompt, is_new=request.renews)
            for chat in chats
            for prompt in chat.prompts
        ]
        warmup = [
            _unjudged(writer.chat(talk, 1).prompts[0], is_new=request.renews)
            for talk in writer.counted(maker.warmup(request.warmup))
        ]
        facts = AgentFacts(
            path="generated agents",
            rounds=size.rounds,
            system_tokens=size.system_tokens,
            tools=shape.tools,
            tool_output_tokens=size.tool_output_tokens,
            sub_agents=shape.sub_agents,
            smaller=_smaller(size, _sizes(shape)[0]) or UNSET,
        )
        # Shared are system prompt and tools, rendered by the server's template.
        return request.plan(
            measured,
            warmup,
            facts,
            distinct=len(measured),
            shortened=shortened,
            shared_tokens=None,
        )


def _unjudged(prompt: Prompt, *, is_new: bool) -> Prompt:
    """Without a recorded answer: a model that does not call a made-up tool does nothing wrong."""
    return replace(prompt, answer=None, is_new=is_new)


@dataclass(frozen=True, slots=True)
class _Size:
    """The sizes of an agent that may be made smaller."""

    rounds: int
    system_tokens: int
    tool_output_tokens: int


def _sizes(shape: AgentShape) -> list[_Size]:
    """The sizes to try, largest first: first the lengths that no flag sets become shorter, then the
    rounds fewer."""
    trials = [(ROUNDS, share) for share in SHARES] + [
        (rounds, SHARES[-1]) for rounds in FEWER_ROUNDS
    ]
    sizes = (
        _Size(
            shape.rounds or rounds,
            shape.system_tokens or round(SYSTEM_TOKENS * share),
            shape.tool_output_tokens or round(TOOL_OUTPUT_TOKENS * share),
        )
        for rounds, share in trials
    )
    return list(dict.fromkeys(sizes))


def _makers(request: PlanRequest, writer: TalkWriter) -> Iterator[_Maker]:
    """Makers of smaller and smaller agents, the first of which fits a slot as a whole; at the end
    one of the usual size, whose last requests are left out."""
    sizes = _sizes(request.traffic.agent)
    for size in sizes:
        maker = _Maker(request, size)
        (talk,) = writer.counted([next(maker.talks())])
        if not writer.chat(talk).missing:
            yield maker
    yield _Maker(request, sizes[0])


def _chats(maker: _Maker, writer: TalkWriter, request: PlanRequest) -> list[Chat]:
    """As many agents as the run needs. UsageError: not even the first request fits a slot."""
    chats: list[Chat] = []
    count = 0
    for talk in writer.counted(maker.talks()):
        chat = writer.chat(talk)
        if not chat.prompts:
            raise UsageError(
                "the first request of an agent is longer than a slot of the server; start it "
                "with a larger context or fewer "
                "slots, or give fewer --system-tokens, --tools or a shorter --input-len"
            )
        chats.append(chat)
        count += len(chat.prompts)
        if request.is_enough(count, len(chats)):
            break
    return chats


def _smaller(size: _Size, usual: _Size) -> str:
    """`system prompt 750 instead of 1500 tokens, …`; "" if all is as usual."""
    parts = (
        (size.rounds, usual.rounds, "{} instead of {} rounds"),
        (
            size.system_tokens,
            usual.system_tokens,
            "a system prompt of {} instead of {} tokens",
        ),
        (
            size.tool_output_tokens,
            usual.tool_output_tokens,
            "tool outputs of {} instead of {} tokens",
        ),
    )
    return ", ".join(
        text.format(now, before) for now, before, text in parts if now != before
    )


class _Maker:
    """Makes agents of one shape and size; their texts depend on the seed and the agent's number."""

    def __init__(self, request: PlanRequest, size: _Size) -> None:
        self.size = size
        shape = self._shape = request.traffic.agent
        self._text = BlockText(request.content_seed, request.counter)
        self._task_tokens = request.traffic.input_len or TASK_TOKENS
        self._output = request.output_len or ANSWER_TOKENS
        self._seed = request.seed
        self._fields = (
            {"tools": [_definition(*tool) for tool in _TOOLS[: shape.tools]]}
            if shape.tools
            else {}
        )
        system = self._words("system", size.system_tokens)
        self._opening = (Message(SYSTEM, f"You are a coding agent. {system}"),)

    def talks(self) -> Iterator[Talk]:
        """Agents without end."""
        number = 0
        while True:
            number += 1
            yield self._talk(
                f"agent {number}", self.size.rounds, self._shape.sub_agents
            )

    def warmup(self, count: int) -> Iterator[Talk]:
        """Agents of one round, with tasks of their own."""
        return (self._talk(f"warm-up {number}", 0, 0) for number in range(count))

    def _talk(self, name: str, rounds: int, sub_agents: int) -> Talk:
        draw = random.Random(f"{name} {self._seed}")
        added = (Message(USER, self._words(f"{name} task", self._task_tokens)),)
        turns = []
        delay_s: float | None = None
        for number in range(1, rounds + 1):
            call = self._call(f"{name} {number}", draw)
            agents = self._sub_agents(name, sub_agents, rounds) if number == 1 else ()
            reply = Message(
                ASSISTANT,
                self._words(f"{name} answer {number}", max(8, self._output // 2)),
                calls=(call,),
            )
            turns.append(RecordedTurn(added, reply, delay_s, self._output, agents))
            output = self._words(
                f"{name} output {number}", self.size.tool_output_tokens
            )
            added = (Message(TOOL, output, call_id=call.id),)
            delay_s = (
                None
                if self._shape.tool_time is None
                else self._shape.tool_time.draw(draw)
            )
        turns.append(RecordedTurn(added, None, delay_s, self._output))
        return Talk(name, self._opening, tuple(turns), self._fields)

    def _sub_agents(self, name: str, count: int, rounds: int) -> tuple[Talk, ...]:
        talks = (
            self._talk(f"{name} sub-agent {number}", max(1, rounds // 2), 0)
            for number in range(1, count + 1)
        )
        return tuple(
            replace(talk, name=f"sub-agent {number}")
            for number, talk in enumerate(talks, start=1)
        )

    def _call(self, name: str, draw: random.Random) -> ToolCall:
        tool, _, parameters = draw.choice(_TOOLS[: max(1, self._shape.tools)])
        arguments = {parameter: f"{draw.randrange(10**6)}" for parameter in parameters}
        return ToolCall(f"call_{name.replace(' ', '_')}", tool, json.dumps(arguments))

    def _words(self, name: str, tokens: int) -> str:
        names = (f"{name} {block}" for block in range(10**9))
        return self._text.prompt(names, max(self._text.least, tokens))[0]


def _definition(
    name: str, description: str, parameters: tuple[str, ...]
) -> dict[str, Any]:
    properties = {
        parameter: {
            "type": "string",
            "description": f"The {parameter.replace('_', ' ')}.",
        }
        for parameter in parameters
    }
    schema = {"type": "object", "properties": properties, "required": [parameters[0]]}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }
