"""Events that are not as OpenAI's reference has them, made so that the reader understands them.

Events are first decoded strictly, which is fast; this is for events where that fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from llama_load.servers.json_fields import fields, objects
from llama_load.servers.usage import known_count, known_ms

# More digits than any count or index has; Python refuses to read numbers of thousands of digits.
MOST_DIGITS = 20
_USAGE_COUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_cache_hit_tokens",
    "cached_tokens",
)
_TIMINGS_COUNTS = ("cache_n", "prompt_n", "predicted_n", "draft_n", "draft_n_accepted")
_TIMINGS_MS = ("prompt_ms", "predicted_ms")
_TEXTS = (
    "content",
    "text",
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "thinking",
)
_NAMES = ("model", "system_fingerprint", "stop_type", "type", "message", "x_groq")


def without_odd_values(document: dict[str, Any]) -> bytes:
    """The event or answer with null for invalid numbers in `usage`, `timings` and `index`, and with
    texts for what stands for one.

    `completion_tokens: 2.0` becomes 2, `prompt_n: -1` and `"12"` null; a number as `content` is its
    digits, a list of parts their texts.
    """
    document["usage"] = _valid_usage(fields(document.get("usage")))
    document["timings"] = _valid_timings(fields(document.get("timings")))
    for name in _NAMES:
        if not isinstance(document.get(name), str | dict):
            document.pop(name, None)
    choices = document.get("choices")
    if isinstance(choices, dict):
        choices = [choices]
    if isinstance(choices, list):
        document["choices"] = list(map(_valid_choice, objects(choices)))
    return msgspec.json.encode(document)


def decoded_json(data: bytes) -> Any:
    """The JSON value. Raises ValueError (or RecursionError) if it is none."""
    return json.loads(data.decode(), parse_int=_integer)


def _valid_choice(choice: dict[str, Any]) -> dict[str, Any]:
    choice["index"] = known_count(choice.get("index")) or 0
    choice["usage"] = _valid_usage(fields(choice.get("usage")))
    reason = choice.get("finish_reason")
    if isinstance(reason, dict):
        reason = reason.get("type")
    choice["finish_reason"] = reason if isinstance(reason, str) else None
    choice["text"] = _text_in(choice.get("text"))
    for name in ("delta", "message"):
        part = choice.get(name)
        if isinstance(part, str):
            part = {"content": part}
        choice[name] = _valid_delta(part) if isinstance(part, dict) else None
    return choice


def _valid_delta(delta: dict[str, Any]) -> dict[str, Any]:
    """Mistral's content is a list of parts, of which some are thoughts."""
    content = delta.get("content")
    if isinstance(content, list):
        thoughts = [part for part in objects(content) if "thinking" in part]
        delta["content"] = _text_in([part for part in content if part not in thoughts])
        delta["reasoning"] = _text_in([part["thinking"] for part in thoughts])
    for name in _TEXTS:
        if name in delta:
            delta[name] = _text_in(delta[name])
    return delta


def _text_in(value: Any) -> str | None:
    """What stands for a text: a number, a part with a text, or several of these. A switch
    (`thinking: true`) is none."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, list):
        return "".join(_text_in(part) or "" for part in value)
    if isinstance(value, dict):
        return _text_in(value.get("text"))
    return json.dumps(value)


def _valid_usage(reported: dict[str, Any]) -> dict[str, Any] | None:
    """None if there is none: an event's usage is the answer's latest."""
    if not reported:
        return None
    usage = _counts(reported, _USAGE_COUNTS)
    of_prompt = fields(reported.get("prompt_tokens_details"))
    usage["prompt_tokens_details"] = _counts(of_prompt, ("cached_tokens",))
    of_output = fields(reported.get("completion_tokens_details"))
    usage["completion_tokens_details"] = _counts(of_output, ("reasoning_tokens",))
    return usage


def _valid_timings(reported: dict[str, Any]) -> dict[str, Any] | None:
    """None if there are none: an event's timings are the answer's latest."""
    if not reported:
        return None
    timings = _counts(reported, _TIMINGS_COUNTS)
    for name in _TIMINGS_MS:
        timings[name] = known_ms(reported.get(name))
    return timings


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= MOST_DIGITS else None


def _counts(reported: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: known_count(reported.get(name)) for name in names}
