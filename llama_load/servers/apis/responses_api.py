"""OpenAI's responses: response.output_text.delta, response.completed with usage.

Source: OpenAI's API reference (streaming events). llama-server and vLLM have this API, too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llama_load.servers.answer import PartReader
from llama_load.servers.apis.api import GeneratingApi
from llama_load.servers.apis.prompt_content import Content, as_messages
from llama_load.servers.choice_text import NULL
from llama_load.servers.server_errors import Count
from llama_load.servers.usage import Usage, known_count, usage_of

_decode_text = msgspec.json.Decoder(str).decode


class _Tokens(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    input_tokens_details: dict[str, Any] | None = None
    output_tokens_details: dict[str, Any] | None = None

    def as_usage(self) -> Usage:
        cached = known_count((self.input_tokens_details or {}).get("cached_tokens"))
        reasoning = known_count(
            (self.output_tokens_details or {}).get("reasoning_tokens")
        )
        return usage_of(self.input_tokens, self.output_tokens, cached, reasoning)


class _Response(msgspec.Struct, gc=False):
    status: str | None = None
    usage: _Tokens | None = None
    error: msgspec.Raw = NULL
    incomplete_details: dict[str, Any] | None = None


class _ResponseEvent(msgspec.Struct, gc=False):
    type: str = ""
    delta: msgspec.Raw = NULL
    response: _Response | None = None
    error: msgspec.Raw = NULL
    message: str | None = None
    text: str | None = None


class ResponsesReader(PartReader):
    """Reads a stream of /v1/responses."""

    _decode = staticmethod(msgspec.json.Decoder(_ResponseEvent).decode)

    def event(self, data: bytes, at_ns: int) -> bool:
        """See `AnswerReader.event`."""
        if data == b"[DONE]":
            self.end()
            return False
        event = self.decoded(self._decode, data)
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
                return self.token(at_ns, thought=said)
            if "function_call" in kind:
                return self.token(at_ns, call=bool(said))
            return kind in (
                "response.output_text.delta",
                "response.refusal.delta",
            ) and self.token(at_ns, text=said)
        if kind == "response.output_text.done" and not self.pieces:
            return self.token(at_ns, text=event.text)  # it came in no pieces
        response = event.response
        if (
            kind in ("response.completed", "response.incomplete", "response.failed")
            and response is not None
        ):
            self.end()
            self.fail(response.error)
            if response.usage is not None:
                self.keep_usage(response.usage.as_usage())
            why = (response.incomplete_details or {}).get("reason")
            # vLLM completes answers that are incomplete.
            is_whole = kind == "response.completed" and response.status != "incomplete"
            self.finish("stop" if is_whole else str(why))
        elif kind == "error":
            self.fail_with(data)
        return False


class ResponsesApi(GeneratingApi):
    """/v1/responses."""

    name = "responses"
    path = "/v1/responses"
    has_template = True
    length_field = "max_output_tokens"
    stream_reader = ResponsesReader
    streams_only = True

    def prompt_fields(self, content: Content) -> dict[str, Any]:
        """See `GeneratingApi.prompt_fields`."""
        return {"input": as_messages(content)}


RESPONSES = ResponsesApi()
