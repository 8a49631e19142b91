"""Answers in one JSON body: chat and completions without streaming, embeddings, rerankings. Single tokens have no timestamps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from llama_load.targets.answer import AnswerReader, Said, is_something
from llama_load.targets.counts import Bounds, Counts
from llama_load.targets.failure_kinds import Count
from llama_load.targets.usage import Timings, Usage, without_odd_values

if TYPE_CHECKING:
    from llama_load.wire.exchange import Exchange


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


class _Embedding(msgspec.Struct):
    embedding: msgspec.Raw


class _Ranked(msgspec.Struct):
    index: Count
    relevance_score: float


class _Body(msgspec.Struct):
    choices: list[_Choice] = msgspec.field(default_factory=list)
    data: list[_Embedding] = msgspec.field(default_factory=list)
    results: list[_Ranked] = msgspec.field(default_factory=list)
    usage: Usage | None = None
    timings: Timings | None = None
    metrics: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Body).decode


class JsonAnswer(AnswerReader):
    """Reads an answer that is not streamed. `results` is the requested number of results (embeddings, or ranked documents); None:
    a generated text."""

    streams = False

    def __init__(self, results: int | None = None) -> None:
        super().__init__()
        self._results = results
        self._got = 0
        self._called = False  # a tool call is an answer without text

    def settle(self, exchange: Exchange) -> None:
        """Called when the exchange is over: read its body."""
        if exchange.failure is not None or exchange.cancelled or not 200 <= (exchange.status or 0) < 300:
            return
        data = bytes(exchange.body)
        try:
            body = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            try:
                body = _decode(without_odd_values(data))
            except (ValueError, RecursionError):
                self.bad_event = str(error)
                return
        self.usage, self.timings, self._got = body.usage, body.timings, len(body.data) or len({each.index for each in body.results})
        self.metrics = bytes(body.metrics)
        for choice in body.choices:
            self._take(choice)

    def _take(self, choice: _Choice) -> None:
        said = self.others.setdefault(choice.index, Said()) if choice.index > 0 else self
        said.appeared = True
        said.finish_reason = choice.finish_reason or None
        message = choice.message
        text = choice.text if message is None else message.content
        if text:
            said.pieces.append(text)
        if message is not None:
            if thought := message.reasoning_content or message.reasoning:
                said.thoughts.append(thought)
            if is_something(message.tool_calls):
                said.call_pieces.append(bytes(message.tool_calls))
            self._called |= is_something(message.tool_calls) or is_something(message.function_call)

    def counts(self, bounds: Bounds | None = None) -> Counts:
        """See `AnswerReader.counts`; embeddings and rerankings generate nothing."""
        found = super().counts(bounds)
        return found if self._results is None else replace(found, output_tokens=None, token_source=None, reasoning_tokens=None)

    def _incomplete(self, exchange: Exchange) -> tuple[str, str] | None:
        if exchange.headers.get("content-encoding", "identity").lower() != "identity":
            return "bad_body", "the answer is compressed against the request; turn compression off in the proxy"
        if self.bad_event is not None:
            return "bad_body", f"the answer is not valid JSON of this endpoint: {self.bad_event}"
        if self._results is not None:
            if self._got == self._results:
                return None
            return "bad_body", f"{self._results} results were requested, {self._got} received"
        if self.generated or self._called or (self.usage is not None and self.usage.completion_tokens):
            return None
        return "empty_answer", f"no token was generated (finish_reason {self.finish_reason})"
