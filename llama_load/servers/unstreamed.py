"""Answers in one JSON body: a generated text without streaming, or results (vectors, scores).

Single tokens have no timestamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from llama_load.ground.failure_kind import FailureKind
from llama_load.servers.answer import AnswerReader
from llama_load.servers.choice_text import NULL, Choice
from llama_load.servers.usage import Timings, Usage

if TYPE_CHECKING:
    from llama_load.servers.ended_exchange import EndedExchange


class JsonBody(msgspec.Struct):
    """A body in OpenAI's layout; an API with results adds them."""

    choices: list[Choice] = msgspec.field(default_factory=list)
    usage: Usage | None = None
    timings: Timings | None = None
    metrics: msgspec.Raw = NULL


class JsonAnswer(AnswerReader):
    """Reads a generated text that is not streamed, in OpenAI's layout."""

    streams = False
    body_type: ClassVar[type[JsonBody]] = JsonBody

    def __init__(self) -> None:
        super().__init__()
        self._called = False  # a tool call is an answer without text

    def settle(self, exchange: EndedExchange) -> None:
        """Called when the exchange is over: read its body."""
        if exchange.failure is not None or exchange.cancelled:
            return
        if not 200 <= (exchange.status or 0) < 300:
            return
        decode = msgspec.json.Decoder(self.body_type).decode
        body = self.decoded(decode, bytes(exchange.body))
        if body is None:
            self.bad_event = self.bad_event or "it is no JSON object"
            return

        self.usage = body.usage
        self.timings = body.timings
        self.metrics = bytes(body.metrics)
        self.read(body)

    def read(self, body: Any) -> None:
        """Read what the body has besides its counts."""
        for choice in body.choices:
            _, _, is_call = self.take(choice, choice.message)
            self._called |= is_call

    def _incomplete(
        self, exchange: EndedExchange, *, ends_by_reason: bool
    ) -> tuple[str, str] | None:
        if exchange.failure is not None:
            return exchange.failure.kind, exchange.failure.text
        content_type = exchange.headers.get("content-type", "").lower()
        if content_type.startswith("text/event-stream"):
            return (
                FailureKind.BAD_BODY,
                "the answer is an event stream, although a whole answer was asked for: leave out "
                "--no-stream",
            )
        if exchange.headers.get("content-encoding", "identity").lower() != "identity":
            return (
                FailureKind.BAD_BODY,
                "the answer is compressed against the request; turn compression off in the proxy",
            )
        if self.bad_event is not None:
            return (
                FailureKind.BAD_BODY,
                f"the answer is not valid JSON of this endpoint: {self.bad_event}",
            )
        return self._missing()

    def _missing(self) -> tuple[str, str] | None:
        if self.generated or self._called:
            return None
        if self.usage is not None and self.usage.completion_tokens:
            return None
        return (
            FailureKind.EMPTY_ANSWER,
            f"no token was generated (finish_reason {self.finish_reason})",
        )


class ResultsAnswer(JsonAnswer):
    """Reads an answer of `results` results, which generates nothing."""

    generates = False

    def __init__(self, results: int) -> None:
        super().__init__()
        self._results = results
        self.received = 0

    def _missing(self) -> tuple[str, str] | None:
        if self.received == self._results:
            return None
        return (
            FailureKind.BAD_BODY,
            f"{self._results} results were requested, {self.received} received",
        )
