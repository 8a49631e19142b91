"""Anthropic's messages: content_block_delta, message_delta with stop_reason and usage,
message_stop.

Source: Anthropic's API reference (streaming events). llama-server and vLLM have this API, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from llama_load.servers.answer import PartReader
from llama_load.servers.apis.api import GeneratingApi
from llama_load.servers.apis.prompt_content import Content, as_messages
from llama_load.servers.body import BodyOptions
from llama_load.servers.choice_text import NULL
from llama_load.servers.server_errors import Count
from llama_load.servers.usage import later_count, usage_of

if TYPE_CHECKING:
    from llama_load.servers.target import Target

# This API refuses a request that does not limit its answer.
LEAST_MAX_TOKENS = 1024


class _Tokens(msgspec.Struct, gc=False):
    """Usage; input_tokens does not hold the cached ones."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None


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
    error: msgspec.Raw = NULL


class MessagesReader(PartReader):
    """Reads a stream of /v1/messages."""

    _decode = staticmethod(msgspec.json.Decoder(_MessageEvent).decode)

    def __init__(self) -> None:
        super().__init__()
        self._tokens = _Tokens()  # of the prompt

    def event(self, data: bytes, at_ns: int) -> bool:
        """See `AnswerReader.event`."""
        event = self.decoded(self._decode, data)
        if event is None:
            return False
        self.appeared = True
        delta = event.delta
        if event.type == "content_block_delta" and delta is not None:
            return self.token(
                at_ns,
                text=delta.text,
                thought=delta.thinking,
                call=bool(delta.partial_json),
            )
        if event.message is not None and event.message.usage is not None:
            self._count(event.message.usage)
        if event.usage is not None:
            self._count(event.usage)
        if delta is not None and delta.stop_reason:
            self.finish(delta.stop_reason)
        if event.type == "message_stop":
            self.end()
        self.fail(event.error)
        return False

    def _count(self, tokens: _Tokens) -> None:
        """The prompt is counted at the begin, the answer at the end. The prompt's tokens are all
        its parts together, which may come in two events."""
        kept = self._tokens
        kept.input_tokens = later_count(kept.input_tokens, tokens.input_tokens)
        kept.cache_read_input_tokens = later_count(
            kept.cache_read_input_tokens, tokens.cache_read_input_tokens
        )
        kept.cache_creation_input_tokens = later_count(
            kept.cache_creation_input_tokens, tokens.cache_creation_input_tokens
        )
        prompt = kept.input_tokens
        if prompt is not None:
            prompt += kept.cache_read_input_tokens or 0
            prompt += kept.cache_creation_input_tokens or 0
        usage = usage_of(prompt, tokens.output_tokens, kept.cache_read_input_tokens)
        self.keep_usage(usage)
        self.note_usage(usage, is_alone=True)


class MessagesApi(GeneratingApi):
    """/v1/messages."""

    name = "messages"
    path = "/v1/messages"
    has_template = True
    stream_reader = MessagesReader
    streams_only = True

    def prompt_fields(self, content: Content) -> dict[str, Any]:
        """See `GeneratingApi.prompt_fields`. System messages have a field of their own."""
        messages = as_messages(content)
        system = "\n\n".join(
            str(message["content"])
            for message in messages
            if message.get("role") == "system"
        )
        fields: dict[str, Any] = {
            "messages": [
                message for message in messages if message.get("role") != "system"
            ]
        }
        return fields | ({"system": system} if system else {})

    def fields(
        self,
        content: Content,
        options: BodyOptions,
        max_tokens: int | None,
        target: Target,
    ) -> dict[str, Any]:
        """See `Api.fields`."""
        return super().fields(content, options, max_tokens or LEAST_MAX_TOKENS, target)


MESSAGES = MessagesApi()
