"""A recorded conversation, whatever file it comes from: its turns, each of which asks the model for
one answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.data_files import ASSISTANT, SYSTEM, USER
from llama_load.loadgen.workloads.think_time import LONGEST_THINK_S
from llama_load.servers.prompt import Message

DEVELOPER = "developer"
TOOL = "tool"
ROLES = (SYSTEM, DEVELOPER, USER, ASSISTANT, TOOL)
INSTRUCTIONS = (SYSTEM, DEVELOPER)


def recorded_wait_s(seconds: float, where: str) -> float:
    """The wait before a turn, s: no less than 0. UsageError: longer than a run can last, or no
    number."""
    if not seconds <= LONGEST_THINK_S:
        shown = min(seconds, sys.float_info.max)  # an integer may have any length
        raise UsageError(
            f"{where} comes after a wait of {shown:g} s; at most {LONGEST_THINK_S:g} s can be "
            "kept"
        )
    return max(0.0, float(seconds))


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One request: the messages that it adds to the history (a question, tool results), and the
    recorded answer, None if the record ends before it. `delay_s` is the recorded wait before it.
    `agents` are the sub-agents that ran after its answer and before the next turn. `tokens` are
    those of the added messages where they are known. `resets`: the client compacted its context, so
    nothing of the earlier turns goes before this one."""

    added: tuple[Message, ...]
    reply: Message | None
    delay_s: float | None = None
    output_tokens: int | None = None
    agents: tuple[Talk, ...] = ()
    tokens: int | None = None
    resets: bool = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """All of them, with the answer if there is one."""
        return self.added if self.reply is None else (*self.added, self.reply)


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation: what precedes its first turn (a system prompt), its turns, and the body
    fields of each of its requests. `name` is that of a sub-agent."""

    id: str
    opening: tuple[Message, ...]
    turns: tuple[RecordedTurn, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    output_tokens: int | None = None
    name: str | None = None

    @property
    def requests(self) -> int:
        """The number of its requests, those of its sub-agents included."""
        agents = [agent for turn in self.turns for agent in turn.agents]
        return len(self.turns) + sum(agent.requests for agent in agents)


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message of a file, with the wait before it, the sub-agents that an assistant's answer
    started, and the length of the answer to a question. `asks`: its answer comes before the next
    question, which the file does not have."""

    message: Message
    delay_s: float | None = None
    agents: tuple[Talk, ...] = ()
    output_tokens: int | None = None
    asks: bool = False


def turns_of(
    recorded: Sequence[RecordedMessage], where: str, history: int = 0
) -> tuple[tuple[Message, ...], tuple[RecordedTurn, ...]]:
    """The opening and the turns of a conversation. `history`: so many first messages belong to the
    opening, whatever they are. UsageError names the place (`where`) if the messages are in no order
    that a client could have sent."""
    _check_calls(recorded, where)
    opening = [entry.message for entry in recorded[:history]]
    rest = list(recorded[history:])
    # an assistant may greet first
    while rest and rest[0].message.role in (*INSTRUCTIONS, ASSISTANT):
        opening.append(rest.pop(0).message)
    turns: list[RecordedTurn] = []
    added: list[RecordedMessage] = []
    for number, entry in enumerate(rest, start=len(opening) + 1):
        if entry.message.role != ASSISTANT:
            if added and added[-1].asks:
                turns.append(_turn(added, None))
                added = []
            added.append(entry)
            continue
        if not added:
            raise UsageError(
                f"{where}: message {number} is a second answer in a row; join it with the one "
                "before it"
            )
        turns.append(_turn(added, entry))
        added = []
    if added:
        turns.append(_turn(added, None))
    if not turns:
        raise UsageError(
            f"{where} has no question: it needs a message of the role user"
        )
    return tuple(opening), tuple(turns)


def _turn(
    added: Iterable[RecordedMessage], reply: RecordedMessage | None
) -> RecordedTurn:
    added = tuple(added)
    lengths = [entry.output_tokens for entry in added if entry.output_tokens]
    delays = [entry.delay_s for entry in added if entry.delay_s is not None]
    return RecordedTurn(
        tuple(entry.message for entry in added),
        None if reply is None else reply.message,
        sum(delays) if delays else None,
        lengths[-1] if lengths else None,
        agents=() if reply is None else reply.agents,
    )


def _check_calls(recorded: Iterable[RecordedMessage], where: str) -> None:
    """Every tool result belongs to a call of the answer before it, and every call has its result
    before the next answer."""
    open_calls: dict[str, str] = {}
    for number, entry in enumerate(recorded, start=1):
        message = entry.message
        if message.role == TOOL:
            if message.call_id not in open_calls:
                raise UsageError(
                    f"{where}: message {number} is the result of the tool call "
                    f"{message.call_id!r}, which no answer before it "
                    "makes; give it the id of a call in tool_calls"
                )
            del open_calls[message.call_id or ""]
        elif message.role == ASSISTANT:
            if open_calls:
                missing = next(iter(open_calls.values()))
                raise UsageError(
                    f"{where}: message {number} comes before the result of the tool call "
                    f"{missing!r}; add the result"
                )
            open_calls = {call.id: call.name for call in message.calls}


def texts_of(message: Message) -> Iterator[str]:
    """The texts of a message that are counted as tokens: its text, names and arguments of its tool
    calls."""
    yield message.text
    for call in message.calls:
        yield call.name
        yield call.arguments
