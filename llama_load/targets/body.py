"""Request bodies, one format per API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_load.targets.target import LLAMA_SERVER, VLLM, Target

CHAT, COMPLETIONS, MESSAGES, RESPONSES, COMPLETION, INFILL, RERANK = ENDPOINTS = (
    *("chat", "completions"),
    *("messages", "responses", "completion", "infill"),
    "rerank",
)
EMBEDDINGS = "embeddings"
PATHS = {
    CHAT: "/v1/chat/completions",
    COMPLETIONS: "/v1/completions",
    MESSAGES: "/v1/messages",
    RESPONSES: "/v1/responses",
    COMPLETION: "/completion",
    INFILL: "/infill",
    EMBEDDINGS: "/v1/embeddings",
    RERANK: "/v1/rerank",
}
WITH_TEMPLATE = (CHAT, MESSAGES, RESPONSES)  # the server puts the messages into its chat template
# Anthropic's API refuses a request that does not limit its answer.
MESSAGES_MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class BodyOptions:
    """The flags that apply to every request. `max_tokens` overrides the prompt's value; None leaves a field out.

    `cache_prompt` is sent to llama-server only. `extra` is merged last and takes precedence.
    """

    endpoint: str = CHAT
    max_tokens: int | None = None
    temperature: float | None = None
    ignore_eos: bool = False
    cache_prompt: bool | None = None
    stream: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)


# The servers' names for the maximum answer length.
LENGTH_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")


def asked_tokens(body: Mapping[str, Any]) -> int | None:
    """The requested answer length of a body, under any of its names; None if it has none."""
    asked = (body.get(name) for name in LENGTH_FIELDS)
    return min((value for value in asked if isinstance(value, int) and value >= 0), default=None)


def asked_choices(body: Mapping[str, Any]) -> int:
    """The number of choices that a body makes the server generate: the larger of `n` and `best_of`."""
    asked = (body.get(name) for name in ("n", "best_of"))
    return max((value for value in asked if isinstance(value, int) and value > 0), default=1)


def is_text(body: Mapping[str, Any]) -> bool:
    """Whether a body has only text (no images, no audio), so that its length bounds its tokens."""
    messages = body.get("messages")
    contents = [message.get("content") for message in messages] if isinstance(messages, list) else []
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return all(isinstance(part, Mapping) and part.get("type") == "text" for part in parts)


def _content_fields(
    content: str | Sequence[Mapping[str, Any]] | Sequence[str], endpoint: str, max_tokens: int | None
) -> dict[str, Any]:
    """Prompt and length of the answer by the names that this API has for them."""
    if endpoint == INFILL:
        fields: dict[str, Any] = {"input_prefix": content, "input_suffix": ""}
    elif endpoint in (COMPLETION, COMPLETIONS):
        fields = {"prompt": content}
    else:
        messages: list[Any] = [{"role": "user", "content": content}] if isinstance(content, str) else list(content)
        fields = {"input" if endpoint == RESPONSES else "messages": messages}
        if endpoint == MESSAGES:
            fields = _anthropic(messages)
            max_tokens = max_tokens or MESSAGES_MAX_TOKENS
    if max_tokens is not None:
        fields[{RESPONSES: "max_output_tokens", COMPLETION: "n_predict", INFILL: "n_predict"}.get(endpoint, "max_tokens")] = (
            max_tokens
        )
    return fields


def _anthropic(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """System messages have a separate field there."""
    system = "\n\n".join(str(message["content"]) for message in messages if message.get("role") == "system")
    fields: dict[str, Any] = {"messages": [message for message in messages if message.get("role") != "system"]}
    return fields | ({"system": system} if system else {})


def request_body(
    content: str | Sequence[Mapping[str, Any]] | Sequence[str],
    target: Target,
    options: BodyOptions,
    max_tokens: int | None,
    model: str | None = None,
) -> dict[str, Any]:
    """The JSON body of a request to `target`: `content` is a text, (chat) a list of messages, or (embeddings) a list of texts;
    (rerank) a query and the documents to be ranked for it, in this order.

    Chat has `messages`, completions has `prompt`. The length is sent as `max_tokens`, which all servers support.
    """
    body: dict[str, Any] = {}
    if (name := model or target.model) is not None:
        body["model"] = name
    if options.endpoint == EMBEDDINGS:
        return body | {"input": [content] if isinstance(content, str) else list(content)} | dict(options.extra)
    if options.endpoint == RERANK:
        return body | {"query": content[0], "documents": list(content[1:])} | dict(options.extra)
    body |= _content_fields(content, options.endpoint, max_tokens)
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.ignore_eos:
        body["ignore_eos"] = True
    if options.cache_prompt is not None and target.backend == LLAMA_SERVER:
        body["cache_prompt"] = options.cache_prompt
    body["stream"] = options.stream
    if options.stream and options.endpoint in (CHAT, COMPLETIONS):
        body["stream_options"] = {"include_usage": True}
        if target.backend == VLLM:  # usage with every event, to count its tokens
            body["stream_options"]["continuous_usage_stats"] = True
    return body | dict(options.extra)
