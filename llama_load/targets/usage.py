"""The numbers that servers add to an answer.

OpenAI's `usage`, llama-server's `timings`, vLLM's `metrics`.

All of them are optional. An invalid one (a string, a negative number, one beyond 2**53) counts as
unknown, and the answer stays valid. Events are first decoded strictly, which is fast;
`without_odd_values` is for events where that fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import msgspec

from llama_load.targets.json_fields import fields
from llama_load.targets.server_errors import Count

Milliseconds = Annotated[float, msgspec.Meta(ge=0)]
MOST = 2**53
# More digits than any count or index has; Python refuses to read numbers of thousands of digits.
MOST_DIGITS = 20


# gc=False: they hold no cycles, and vLLM sends one with every token (437 instead of 409 ns per
# event).
class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: Count | None = None


class Usage(msgspec.Struct, gc=False):
    """Tokens of a request, as in OpenAI's API."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    total_tokens: Count | None = None


def usage_of(
    prompt: int | None,
    output: int | None,
    cached: int | None = None,
    reasoning: int | None = None,
) -> Usage:
    """Counts of another API, in OpenAI's layout."""
    usage = Usage(prompt, output)
    if cached is not None:
        usage.prompt_tokens_details = _PromptDetails(cached)
    if reasoning is not None:
        usage.completion_tokens_details = _OutputDetails(reasoning)
    return usage


class Timings(msgspec.Struct, gc=False):
    """llama-server's counts and times (ms) of a request."""

    cache_n: Count | None = None
    prompt_n: Count | None = None
    prompt_ms: Milliseconds | None = None
    predicted_n: Count | None = None
    predicted_ms: Milliseconds | None = None
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class Speculated(msgspec.Struct, gc=False):
    """vLLM's counts of speculative decoding for a request of one choice.

    It sends them with --per-request-spec-decode-metrics. A step is a draft that was verified;
    `acceptance_histogram[j]` counts the steps that accepted j tokens.
    """

    num_draft_tokens: Count | None = None
    num_accepted_draft_tokens: Count | None = None
    num_spec_steps: Count | None = None
    acceptance_histogram: list[Count] | None = None


class _Metrics(msgspec.Struct, gc=False):
    """vLLM's, with --enable-per-request-metrics: the time in its queue, from there to the first
    token, and from the first token to the last."""

    speculative_decoding: Speculated | None = None
    queue_time_ms: object = None
    time_to_first_token_ms: object = None
    generation_time_ms: object = None


_decode_metrics = msgspec.json.Decoder(_Metrics).decode


class ServerTimes(NamedTuple):
    """The server's own times of a request, ms; None: not reported."""

    queue_ms: float | None = None
    prompt_ms: float | None = None
    predict_ms: float | None = None


def server_times(timings: Timings | None, metrics: bytes | None) -> ServerTimes:
    """By llama-server's `timings`, else by vLLM's `metrics`."""
    if timings is not None:
        return ServerTimes(None, timings.prompt_ms, timings.predicted_ms)
    known = _valid_metrics(metrics)
    if known is None:
        return ServerTimes()
    return ServerTimes(
        _ms(known.queue_time_ms),
        _ms(known.time_to_first_token_ms),
        _ms(known.generation_time_ms),
    )


def speculated(metrics: bytes | None) -> Speculated | None:
    """What an answer's `metrics` say of speculative decoding; None if nothing valid."""
    known = _valid_metrics(metrics)
    return None if known is None else known.speculative_decoding


def _valid_metrics(metrics: bytes | None) -> _Metrics | None:
    if metrics is None:
        return None
    try:
        return _decode_metrics(metrics)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_USAGE_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_TIMINGS_COUNTS = ("cache_n", "prompt_n", "predicted_n", "draft_n", "draft_n_accepted")
_TIMINGS_MS = ("prompt_ms", "predicted_ms")


def without_odd_values(data: bytes) -> bytes:
    """The JSON event or answer with null for invalid numbers in `usage`, `timings` and `index`.

    `completion_tokens: 2.0` becomes 2, `prompt_n: -1` and `"12"` null. Raises ValueError (or
    RecursionError) if it is not JSON.
    """
    document = json.loads(data.decode(), parse_int=_integer)
    if isinstance(document, dict):
        document["usage"] = _valid_usage(fields(document.get("usage")))
        document["timings"] = _valid_timings(fields(document.get("timings")))
        choices = document.get("choices")
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, dict):
                    choice["index"] = known_count(choice.get("index")) or 0
    return msgspec.json.encode(document)


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
        timings[name] = _ms(reported.get(name))
    return timings


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= MOST_DIGITS else None


def _counts(reported: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: known_count(reported.get(name)) for name in names}


def known_count(value: object) -> int | None:
    """A whole number from 0 to 2**53, also one written as a float, else None."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= MOST
    ):
        return None
    return int(value) if value == int(value) else None


def _ms(value: object) -> float | None:
    """A finite duration >= 0, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MOST else None
