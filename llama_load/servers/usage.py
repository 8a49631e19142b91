"""The numbers that servers add to an answer.

OpenAI's `usage`, llama-server's `timings`, vLLM's `metrics`.

All of them are optional. An invalid one (a string, a negative number, one beyond 2**53) counts as
unknown, and the answer stays valid (see `servers.odd_events`).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from llama_load.servers.server_errors import Count

Milliseconds = Annotated[float, msgspec.Meta(ge=0)]
MOST = 2**53


# gc=False: they hold no cycles, and vLLM sends one with every token (437 instead of 409 ns per
# event).
class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: Count | None = None


class Usage(msgspec.Struct, gc=False):
    """Tokens of a request, as in OpenAI's API.

    DeepSeek and Moonshot have the cached ones under names of their own.
    """

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    total_tokens: Count | None = None
    prompt_cache_hit_tokens: Count | None = None
    cached_tokens: Count | None = None

    @property
    def cached(self) -> int | None:
        """The cached tokens of the prompt."""
        details = self.prompt_tokens_details
        for number in (
            None if details is None else details.cached_tokens,
            self.prompt_cache_hit_tokens,
            self.cached_tokens,
        ):
            if number is not None:
                return number
        return None

    @property
    def reasoning(self) -> int | None:
        """The tokens of the reasoning."""
        details = self.completion_tokens_details
        return None if details is None else details.reasoning_tokens

    @property
    def thoughts_beside(self) -> int:
        """Tokens of reasoning that completion_tokens does not hold, as xAI counts: the total is
        prompt, answer and these."""
        reasoning = self.reasoning
        if not reasoning or not self.prompt_tokens or not self.total_tokens:
            return 0
        parts = self.prompt_tokens + (self.completion_tokens or 0)
        return reasoning if self.total_tokens - parts == reasoning else 0


def merged_usage(before: Usage, after: Usage) -> Usage:
    """Two reports of one answer: what a later one does not say, or fills with 0, stays, and output
    tokens do not become fewer, because reports count up.

    Prompts are counted again: the later number counts.
    """
    usage = usage_of(
        later_count(before.prompt_tokens, after.prompt_tokens),
        _most(before.completion_tokens, after.completion_tokens),
        later_count(before.cached, after.cached),
        _most(before.reasoning, after.reasoning),
    )
    usage.total_tokens = later_count(before.total_tokens, after.total_tokens)
    return usage


def later_count(before: int | None, after: int | None) -> int | None:
    """The later of two numbers, unless it is unknown or a 0 that fills a gap."""
    return after if after or before is None else before


def _most(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


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
        known_ms(known.queue_time_ms),
        known_ms(known.time_to_first_token_ms),
        known_ms(known.generation_time_ms),
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


def known_count(value: object) -> int | None:
    """A whole number from 0 to 2**53, also one written as a float, else None."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= MOST
    ):
        return None
    return int(value) if value == int(value) else None


def known_ms(value: object) -> float | None:
    """A finite duration >= 0, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MOST else None
