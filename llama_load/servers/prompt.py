"""A prompt: the content of one request, which every API puts into its body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llama_load.servers.expect import Expect


@dataclass(frozen=True, slots=True)
class Image:
    """An image as sent: a base64 data URL, encoded before the run. `sha256` is the hash of the
    encoded file."""

    data_url: bytes
    sha256: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of the assistant: its id, the tool's name, and the arguments as the JSON text
    that the API sends."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation: its role ("system", "user", "assistant", "tool", …) and text.
    `call_id`: the tool call of which this is the result."""

    role: str
    text: str
    images: tuple[Image, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """The content of one request.

    `prompt_tokens` counts all its text, history included, without chat template; None if not
    counted. `history` goes before the text (system prompt, recorded exchanges), `answer` is the
    recorded answer, `more` the number of turns of this conversation that follow in the plan.
    `inputs` are the texts of an embeddings request, or the documents to rank for the query `text`.
    `task` names the request in reports of a mixture. `is_new`: its text or images were made for
    this run; no server has them cached. `expect`: what a valid answer is like; any other is a
    failure.

    Where a turn is more than a user's text, `messages` are all that it adds to the history, and
    `text` and `images` are theirs; `calls` are the tool calls of the recorded answer. `fields` go
    into the request body (tools, tool_choice). `delay_s` is the recorded wait before this turn,
    `turns` the number of turns of its conversation in the file. `agent` names the sub-agent that
    sends it: sub-agents run beside each other, and the conversation's next own turn waits for all
    of them. `resets`: nothing of the earlier turns goes before this one, because the client
    compacted its context. `round`: how often the run has sent it before, each time with another
    beginning; 0 where repetitions are the same.
    """

    text: str
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    conversation: str | None = None
    turn: int | None = None  # 1, 2, …
    history: tuple[Message, ...] = ()
    answer: str | None = None
    more: int = 0
    images: tuple[Image, ...] = ()
    inputs: tuple[str, ...] = ()
    task: str | None = None
    is_new: bool = False
    expect: Expect | None = None
    messages: tuple[Message, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    delay_s: float | None = None
    turns: int | None = None
    agent: str | None = None
    resets: bool = False
    round: int = 0

    @property
    def added(self) -> tuple[Message, ...]:
        """The messages that this turn adds to the history."""
        return self.messages or (Message("user", self.text, self.images),)

    @property
    def is_users(self) -> bool:
        """Whether a user sends it: not an agent with the results of its tools."""
        return self.agent is None and all(
            message.call_id is None for message in self.added
        )

    @property
    def recorded(self) -> Message:
        """The recorded answer."""
        return Message("assistant", self.answer or "", calls=self.calls)
