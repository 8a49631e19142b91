"""What the streams of other APIs than OpenAI's chat and completions have in common: one answer, whose parts come one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from llama_load.targets.answer import AnswerReader, is_something, is_visible
from llama_load.targets.server_errors import describe_error
from llama_load.targets.usage import without_odd_values

NULL = msgspec.Raw(b"null")


class PartReader(AnswerReader):
    """Reads one answer, part by part."""

    __slots__ = ()

    def decoded(self, decode: Callable[[bytes], Any], data: bytes) -> Any:
        """The event, None if it is no valid one."""
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            try:
                return decode(without_odd_values(data))
            except (ValueError, RecursionError):
                self.bad_event = self.bad_event or str(error)
                return None

    def token(self, at_ns: int, *, text: str | None = None, thought: str | None = None, call: bool = False) -> bool:
        """A part of the answer, of the reasoning before it, or of a tool call; True if there is anything in it."""
        if thought:
            self.thoughts.append(thought)
        if text:
            self.pieces.append(text)
        if not (text or thought or call):
            return False
        if self.first_answer_ns is None and (call or is_visible(text)):
            self.first_answer_ns = at_ns
        if not self.token_ns and self.first_answer_ns is None and not is_visible(thought):
            self.blank_ns.append(at_ns)
            return False
        self.token_ns.append(at_ns)
        return True

    def fail(self, error: msgspec.Raw) -> None:
        """Keep the error of an event, if it has one."""
        if is_something(error):
            self.error = describe_error(b'{"error":' + bytes(error) + b"}")
