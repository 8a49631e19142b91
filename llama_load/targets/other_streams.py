"""Streams of other APIs than OpenAI's chat and completions, read into the same stamps, texts and counts.

    messages     Anthropic's /v1/messages: content_block_delta, message_delta with stop_reason and usage, message_stop
    responses    OpenAI's /v1/responses: response.output_text.delta, response.completed with usage
    completion   llama-server's own /completion and /infill: content, a last event with stop_type and timings

Sources: Anthropic's and OpenAI's API references (streaming events), llama.cpp's tools/server/README.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from llama_load.targets.answer import AnswerReader, is_something, is_visible
from llama_load.targets.failure_kinds import Count, describe_error
from llama_load.targets.usage import Timings, Usage, without_odd_values

_NULL = msgspec.Raw(b"null")


class _Tokens(msgspec.Struct, gc=False):
    """Usage as messages and responses report it. Messages: input_tokens does not hold the cached ones."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    input_tokens_details: dict[str, Any] | None = None
    output_tokens_details: dict[str, Any] | None = None


class _Delta(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct, gc=False):
    usage: _Tokens | None = None


class _MessageEvent(msgspec.Struct, gc=False):
    type: str = ""
    delta: _Delta | None = None
    message: _Message | None = None
    usage: _Tokens | None = None
    error: msgspec.Raw = _NULL


class _Response(msgspec.Struct, gc=False):
    status: str | None = None
    usage: _Tokens | None = None
    error: msgspec.Raw = _NULL
    incomplete_details: dict[str, Any] | None = None


class _ResponseEvent(msgspec.Struct, gc=False):
    type: str = ""
    delta: msgspec.Raw = _NULL
    response: _Response | None = None
    error: msgspec.Raw = _NULL
    message: str | None = None


class _NativeEvent(msgspec.Struct, gc=False):
    content: str = ""
    stop: bool = False
    stop_type: str | None = None
    tokens_predicted: Count | None = None
    tokens_evaluated: Count | None = None
    timings: Timings | None = None
    error: msgspec.Raw = _NULL


_FINISHED = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
_STOPPED = {"eos": "stop", "word": "stop", "limit": "length"}
_decode_text = msgspec.json.Decoder(str).decode


class _OtherStream(AnswerReader):
    """What these streams have in common: one answer, whose parts come one by one."""

    __slots__ = ()

    def _read(self, decode: Callable[[bytes], Any], data: bytes) -> Any:
        """The event, None if it is no valid one."""
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            try:
                return decode(without_odd_values(data))
            except (ValueError, RecursionError):
                self.bad_event = self.bad_event or str(error)
                return None

    def _token(self, at_ns: int, *, text: str | None = None, thought: str | None = None, call: bool = False) -> bool:
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

    def _fail(self, error: msgspec.Raw) -> None:
        if is_something(error):
            self.error = describe_error(b'{"error":' + bytes(error) + b"}")


class MessagesReader(_OtherStream):
    """Reads a stream of Anthropic's /v1/messages."""

    __slots__ = ()
    _decode = staticmethod(msgspec.json.Decoder(_MessageEvent).decode)

    def event(self, data: bytes, at_ns: int) -> bool:
        """See `AnswerReader.event`."""
        event = self._read(self._decode, data)
        if event is None:
            return False
        self.appeared = True
        delta = event.delta
        if event.type == "content_block_delta" and delta is not None:
            return self._token(at_ns, text=delta.text, thought=delta.thinking, call=bool(delta.partial_json))
        if event.message is not None and event.message.usage is not None:
            self._count(event.message.usage)
        if event.usage is not None:
            self._count(event.usage)
        if delta is not None and delta.stop_reason:
            self.finish_reason = _FINISHED.get(delta.stop_reason, delta.stop_reason)
        self.done |= event.type == "message_stop"
        self._fail(event.error)
        return False

    def _count(self, tokens: _Tokens) -> None:
        """The prompt is counted at the begin, the answer at the end: what an event does not say stays."""
        before = self.usage or Usage()
        cached = tokens.cache_read_input_tokens
        prompt = before.prompt_tokens
        if tokens.input_tokens is not None:
            prompt = tokens.input_tokens + (cached or 0) + (tokens.cache_creation_input_tokens or 0)
        self.usage = _usage(prompt, tokens.output_tokens, cached) if cached is not None else _usage(prompt, tokens.output_tokens)
        if cached is None:
            self.usage.prompt_tokens_details = before.prompt_tokens_details


class ResponsesReader(_OtherStream):
    """Reads a stream of OpenAI's /v1/responses."""

    __slots__ = ()
    _decode = staticmethod(msgspec.json.Decoder(_ResponseEvent).decode)

    def event(self, data: bytes, at_ns: int) -> bool:
        """See `AnswerReader.event`."""
        if data == b"[DONE]":
            self.done = True
            return False
        event = self._read(self._decode, data)
        if event is None:
            return False
        self.appeared = True
        kind = event.type
        if kind.endswith(".delta"):
            try:
                said = _decode_text(event.delta)
            except msgspec.DecodeError:
                return False
            if "reasoning" in kind:
                return self._token(at_ns, thought=said)
            if "function_call" in kind:
                return self._token(at_ns, call=bool(said))
            return kind in ("response.output_text.delta", "response.refusal.delta") and self._token(at_ns, text=said)
        response = event.response
        if kind in ("response.completed", "response.incomplete", "response.failed") and response is not None:
            self.done = True
            self._fail(response.error)
            if response.usage is not None:
                self.usage = _usage_of_response(response.usage)
            why = (response.incomplete_details or {}).get("reason")
            self.finish_reason = "stop" if kind == "response.completed" else "length" if why == "max_output_tokens" else str(why)
        elif kind == "error":
            self.error = event.message or "the stream ended with an error"
            self._fail(event.error)
        return False


class NativeReader(_OtherStream):
    """Reads a stream of llama-server's /completion or /infill."""

    __slots__ = ()
    _decode = staticmethod(msgspec.json.Decoder(_NativeEvent).decode)

    def event(self, data: bytes, at_ns: int) -> bool:
        """See `AnswerReader.event`."""
        event = self._read(self._decode, data)
        if event is None:
            return False
        self.appeared = True
        self._fail(event.error)
        if event.timings is not None:
            self.timings = event.timings
        if event.stop:
            self.done = True
            self.finish_reason = _STOPPED.get(event.stop_type or "", event.stop_type or "stop")
            self.usage = _usage(event.tokens_evaluated, event.tokens_predicted)
        return self._token(at_ns, text=event.content)


def _usage(prompt: int | None, output: int | None, cached: int | None = None, reasoning: int | None = None) -> Usage:
    """The counts in OpenAI's layout."""
    found: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output}
    if cached is not None:
        found["prompt_tokens_details"] = {"cached_tokens": cached}
    if reasoning is not None:
        found["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return msgspec.convert(found, Usage)


def _usage_of_response(tokens: _Tokens) -> Usage:
    cached = (tokens.input_tokens_details or {}).get("cached_tokens")
    reasoning = (tokens.output_tokens_details or {}).get("reasoning_tokens")
    counts = (
        value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None for value in (cached, reasoning)
    )
    return _usage(tokens.input_tokens, tokens.output_tokens, *counts)
