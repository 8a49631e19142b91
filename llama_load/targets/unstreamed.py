"""Answers in one JSON body: a generated text without streaming, or results (vectors, scores). Single tokens have no timestamps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from llama_load.failure_kind import FailureKind
from llama_load.targets.answer import AnswerReader, ChoiceText, is_something
from llama_load.targets.counts import Bounds, Counts
from llama_load.targets.usage import Timings, Usage, without_odd_values

if TYPE_CHECKING:
    from llama_load.targets.ended_exchange import EndedExchange


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw(b"null")
    function_call: msgspec.Raw = msgspec.Raw(b"null")


class _Choice(msgspec.Struct):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    index: int = 0


class JsonBody(msgspec.Struct):
    """A body in OpenAI's layout; an API with results adds them."""

    choices: list[_Choice] = msgspec.field(default_factory=list)
    usage: Usage | None = None
    timings: Timings | None = None
    metrics: msgspec.Raw = msgspec.Raw(b"null")


class JsonAnswer(AnswerReader):
    """Reads a generated text that is not streamed, in OpenAI's layout."""

    streams = False
    body_type: ClassVar[type[JsonBody]] = JsonBody

    def __init__(self) -> None:
        super().__init__()
        self._called = False  # a tool call is an answer without text

    def settle(self, exchange: EndedExchange) -> None:
        """Called when the exchange is over: read its body."""
        if exchange.failure is not None or exchange.cancelled or not 200 <= (exchange.status or 0) < 300:
            return
        data = bytes(exchange.body)
        try:
            body = msgspec.json.decode(data, type=self.body_type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            try:
                body = msgspec.json.decode(without_odd_values(data), type=self.body_type)
            except (ValueError, RecursionError):
                self.bad_event = str(error)
                return
        self.usage, self.timings, self.metrics = body.usage, body.timings, bytes(body.metrics)
        self.read(body)

    def read(self, body: Any) -> None:
        """Read what the body has besides its counts."""
        for choice in body.choices:
            self._take(choice)

    def _take(self, choice: _Choice) -> None:
        choice_text = self.others.setdefault(choice.index, ChoiceText()) if choice.index > 0 else self
        choice_text.appeared = True
        choice_text.finish_reason = choice.finish_reason or None
        message = choice.message
        text = choice.text if message is None else message.content
        if text:
            choice_text.pieces.append(text)
        if message is not None:
            if thought := message.reasoning_content or message.reasoning:
                choice_text.thoughts.append(thought)
            if is_something(message.tool_calls):
                choice_text.call_pieces.append(bytes(message.tool_calls))
            self._called |= is_something(message.tool_calls) or is_something(message.function_call)

    def _incomplete(self, exchange: EndedExchange) -> tuple[str, str] | None:
        if exchange.headers.get("content-encoding", "identity").lower() != "identity":
            return FailureKind.BAD_BODY, "the answer is compressed against the request; turn compression off in the proxy"
        if self.bad_event is not None:
            return FailureKind.BAD_BODY, f"the answer is not valid JSON of this endpoint: {self.bad_event}"
        return self._missing()

    def _missing(self) -> tuple[str, str] | None:
        if self.generated or self._called or (self.usage is not None and self.usage.completion_tokens):
            return None
        return FailureKind.EMPTY_ANSWER, f"no token was generated (finish_reason {self.finish_reason})"


class ResultsAnswer(JsonAnswer):
    """Reads an answer of `results` results, which generates nothing."""

    def __init__(self, results: int) -> None:
        super().__init__()
        self._results = results
        self.received = 0

    def counts(self, bounds: Bounds | None = None) -> Counts:
        """See `AnswerReader.counts`; no token is generated."""
        return replace(super().counts(bounds), output_tokens=None, token_source=None, reasoning_tokens=None)

    def _missing(self) -> tuple[str, str] | None:
        if self.received == self._results:
            return None
        return FailureKind.BAD_BODY, f"{self._results} results were requested, {self.received} received"
