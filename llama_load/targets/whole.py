"""Answers that come as one JSON body: chat and completions without streaming, and embeddings. No token has a time of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from llama_load.targets.answer import AnswerReader, Timings, Usage

if TYPE_CHECKING:
    from llama_load.wire.exchange import Exchange


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Embedding(msgspec.Struct):
    embedding: msgspec.Raw


class _Body(msgspec.Struct):
    choices: list[_Choice] = msgspec.field(default_factory=list)
    data: list[_Embedding] = msgspec.field(default_factory=list)
    usage: Usage | None = None
    timings: Timings | None = None


class WholeAnswer(AnswerReader):
    """Reads an answer that is not streamed. `wanted` is the number of embeddings that were asked for; None: a generated text."""

    streams = False

    def __init__(self, wanted: int | None = None) -> None:
        super().__init__()
        self._wanted = wanted
        self._got = 0

    def settle(self, exchange: Exchange) -> None:
        """The exchange is over: read its body."""
        if exchange.failure is not None or exchange.cancelled or not 200 <= (exchange.status or 0) < 300:
            return
        try:
            body = msgspec.json.decode(exchange.body, type=_Body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.bad_event = str(error)
            return
        self.usage, self.timings, self._got = body.usage, body.timings, len(body.data)
        for choice in body.choices[:1]:
            self.finish_reason = choice.finish_reason
            message = choice.message
            texts = (choice.text,) if message is None else (message.reasoning_content or message.reasoning, message.content)
            self.pieces += [text for text in texts if text]

    def output_tokens(self) -> tuple[int | None, str | None]:
        """See `AnswerReader.output_tokens`; embeddings have none."""
        return super().output_tokens() if self._wanted is None else (None, None)

    def _incomplete(self, exchange: Exchange) -> tuple[str, str] | None:
        if exchange.headers.get("content-encoding", "identity").lower() != "identity":
            return "bad_body", "the answer came compressed although plain was asked for; switch that off in the proxy"
        if self.bad_event is not None:
            return "bad_body", f"the answer is no valid JSON of this endpoint: {self.bad_event}"
        if self._wanted is not None:
            if self._got == self._wanted:
                return None
            return "bad_body", f"{self._wanted} embeddings were asked for, {self._got} came"
        if self.pieces or (self.usage is not None and self.usage.completion_tokens):
            return None
        return "empty_answer", f"no token was generated (finish_reason {self.finish_reason})"
