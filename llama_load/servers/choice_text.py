"""What the choices of an answer are on the wire, and the text of one of them so far."""

from __future__ import annotations

import unicodedata

import msgspec

from llama_load.servers.finish_reasons import finish_reason_of, is_known
from llama_load.servers.prompt import ToolCall
from llama_load.servers.tool_calls import calls_of
from llama_load.servers.usage import Usage

_NOTHING = {b"null", b"[]", b"{}", b'""', b"false"}
NULL = msgspec.Raw(b"null")
# Unicode categories without a visible character: separators, control and format characters
# (zero-width space).
_INVISIBLE = frozenset(("Zs", "Zl", "Zp", "Cc", "Cf"))


class _Detail(msgspec.Struct, gc=False):
    """A piece of reasoning as MiniMax and OpenRouter have it; an encrypted one has neither."""

    text: str | None = None
    summary: str | None = None


_decode_details = msgspec.json.Decoder(list[_Detail]).decode


class Delta(msgspec.Struct, gc=False):
    """New parts of a choice, or a whole message."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None  # GitHub's
    thinking: str | None = None
    reasoning_details: msgspec.Raw = NULL
    tool_calls: msgspec.Raw = NULL
    function_call: msgspec.Raw = NULL
    type: str | None = None  # Snowflake's, of which a tool_use has neither of these

    @property
    def is_call(self) -> bool:
        """Whether it has a tool call, or a piece of one."""
        if is_something(self.tool_calls) or is_something(self.function_call):
            return True
        return self.type == "tool_use"

    @property
    def thought(self) -> str | None:
        """The reasoning, under the first of its names that has any."""
        thought = self.reasoning_content or self.reasoning or self.thinking
        if thought:
            return thought
        if self.reasoning_details is NULL:
            return self.reasoning_text
        try:
            details = _decode_details(self.reasoning_details)
        except msgspec.DecodeError:
            return None
        texts = [detail.text or detail.summary or "" for detail in details]
        return "".join(texts)


class Choice(msgspec.Struct, gc=False):
    """One choice of an event."""

    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    index: int = 0
    message: Delta | None = None  # of an answer that comes whole
    usage: Usage | None = None  # Moonshot's
    error: msgspec.Raw = NULL  # OpenRouter's


def is_something(value: msgspec.Raw) -> bool:
    """Whether a JSON value is present: not null, not empty."""
    # An absent one is the default object, which is fast to check.
    return value is not NULL and bytes(value) not in _NOTHING


def is_visible(text: str | None) -> bool:
    """Whether a reader could see something of this text.

    Blanks, line ends and zero-width characters cannot be seen.
    """
    if not text:
        return False
    return any(unicodedata.category(char) not in _INVISIBLE for char in text)


class ChoiceText:
    """The text of one choice of an answer so far, and its finish_reason in OpenAI's words."""

    def __init__(self) -> None:
        self.pieces: list[str] = []  # of the answer
        self.thoughts: list[str] = []  # of the reasoning before it
        self.call_pieces: list[bytes] = []  # of tool calls, as JSON
        self.finish_reason: str | None = None
        # pieces when it came first
        self._finished_at = 0
        self.appeared = False

    def finish(self, sent: str) -> None:
        """Keep the finish_reason of an event whose text is kept."""
        reason = finish_reason_of(sent)
        if reason is not None and reason != self.finish_reason:
            self.finish_reason = reason
            self._finished_at = self._number_of_pieces

    @property
    def has_end(self) -> bool:
        """Whether its finish_reason ended it: a known one, after which nothing of it came. Some
        servers send one with every event."""
        return (
            is_known(self.finish_reason) and self._finished_at == self._number_of_pieces
        )

    @property
    def _number_of_pieces(self) -> int:
        return len(self.pieces) + len(self.thoughts) + len(self.call_pieces)

    @property
    def reasoning(self) -> str:
        """The reasoning that the server sent."""
        return "".join(self.thoughts)

    @property
    def text(self) -> str:
        """The answer, without its reasoning."""
        return "".join(self.pieces)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in their order; pieces that are no calls are left out."""
        return calls_of(self.call_pieces)
