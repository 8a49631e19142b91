"""Options of a request body, and what a body asks for, under any API's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llama_load.servers.answer_form import AnswerForm


@dataclass(frozen=True, slots=True)
class BodyOptions:
    """The flags that apply to every request.

    `max_tokens` overrides the prompt's value; None leaves a field out. `endpoint` names the API of
    --endpoint. `cache_prompt` is sent to llama-server only. `extra` is merged last and takes
    precedence. `form`: what answers are forced to be. `token_ids_of`: a tokenizer.json, whose
    token ids are sent in place of a prompt's text; None: the text is sent.
    """

    endpoint: str = "chat"
    max_tokens: int | None = None
    temperature: float | None = None
    ignore_eos: bool = False
    cache_prompt: bool | None = None
    stream: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    form: AnswerForm | None = None
    token_ids_of: str | None = None


# The servers' names for the maximum answer length.
LENGTH_FIELDS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n_predict",
)


def asked_tokens(body: Mapping[str, Any]) -> int | None:
    """The requested answer length of a body, under any of its names; None if it has none."""
    asked = []
    for name in LENGTH_FIELDS:
        value = body.get(name)
        if isinstance(value, int) and value >= 0:
            asked.append(value)
    return min(asked, default=None)


def asked_choices(body: Mapping[str, Any]) -> int:
    """The number of choices that the server generates: the larger of `n` and `best_of`."""
    most = 1
    for name in ("n", "best_of"):
        asked = body.get(name)
        if isinstance(asked, int):
            most = max(most, asked)
    return most


def longest_stop(body: Mapping[str, Any]) -> int | None:
    """Bytes of the longest string at which the answer is to stop, in UTF-8; None: there is none."""
    stop = body.get("stop")
    texts = stop if isinstance(stop, list) else [stop]
    lengths = []
    for text in texts:
        if isinstance(text, str) and text:
            lengths.append(len(text.encode("utf-8", "surrogatepass")))
    return max(lengths, default=None)


def is_text(body: Mapping[str, Any]) -> bool:
    """Whether a body has only text (no images, no audio), so that its length bounds its tokens."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return True
    return all(_has_only_text(message.get("content")) for message in messages)


def _has_only_text(content: object) -> bool:
    """Whether all parts of a message are text; a content that is no list has no parts."""
    if not isinstance(content, list):
        return True
    return all(
        isinstance(part, Mapping) and part.get("type") == "text" for part in content
    )
