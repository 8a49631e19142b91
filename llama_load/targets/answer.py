"""What the events of an answer mean: which are tokens, how it ended, what it cost.

Covers the streams of llama-server, vLLM, llama-cpp-python and whatever else speaks OpenAI's: role events with
`content` null or empty, reasoning under two names, the finish on an event of its own or on the last token, usage with and
without `choices`, llama-server's `timings`, error events, `[DONE]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from llama_load.targets.failures import Count, context_numbers, describe_error, event_failure, http_failure

if TYPE_CHECKING:
    from llama_load.wire.exchange import Exchange

DONE = b"[DONE]"
_NOTHING = {b"null", b"[]", b"{}", b'""'}
# Ends of an answer that the server gave up: vLLM's and llama-server's engines, routers whose provider broke off.
GIVEN_UP = {"abort", "error"}


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw(b"null")
    function_call: msgspec.Raw = msgspec.Raw(b"null")


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: Count | None = None


class Usage(msgspec.Struct):
    """What a request cost in tokens, as OpenAI's API tells it."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None


class Timings(msgspec.Struct):
    """What llama-server tells of a request's time, ms."""

    cache_n: Count | None = None
    prompt_n: Count | None = None
    prompt_ms: float | None = None
    predicted_n: Count | None = None
    predicted_ms: float | None = None
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Event).decode


class AnswerReader:
    """Reads one streamed answer; hand it to `Hub.begin`. After `settle`: texts, token stamps, usage, timings, `failure`."""

    __slots__ = (
        "bad_event",
        "done",
        "error",
        "finish_reason",
        "first_answer_ns",
        "pieces",
        "timings",
        "token_ns",
        "usage",
    )

    streams = True

    def __init__(self) -> None:
        self.token_ns: list[int] = []
        self.pieces: list[str] = []  # answer and reasoning, in order
        self.first_answer_ns: int | None = None
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.timings: Timings | None = None
        self.error: str | None = None
        self.bad_event: str | None = None
        self.done = False

    def event(self, data: bytes, at_ns: int) -> bool:
        """One event of the stream. True if it was a token event: one that carries generated content."""
        if data == DONE:
            self.done = True
            return False
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if self.bad_event is None:
                self.bad_event = str(error)
            return False
        if event.usage is not None:
            self.usage = event.usage
        if event.timings is not None:
            self.timings = event.timings
        if (told := bytes(event.error)) not in _NOTHING:
            self.error = describe_error(b'{"error":' + told + b"}")
        if not event.choices:
            return False
        choice = event.choices[0]
        if choice.finish_reason is not None:
            self.finish_reason = choice.finish_reason
        delta = choice.delta
        if delta is None:
            text = choice.text
            if not text:
                return False
        else:
            text = delta.content
            if not text:
                return self._unspoken(delta, at_ns)
        if self.first_answer_ns is None:
            self.first_answer_ns = at_ns
        self.pieces.append(text)
        self.token_ns.append(at_ns)
        return True

    def _unspoken(self, delta: _Delta, at_ns: int) -> bool:
        """A delta without content: a token event if it carries reasoning or a tool call."""
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self.pieces.append(thought)
        elif bytes(delta.tool_calls) not in _NOTHING or bytes(delta.function_call) not in _NOTHING:
            if self.first_answer_ns is None:
                self.first_answer_ns = at_ns
        else:
            return False
        self.token_ns.append(at_ns)
        return True

    # ------------------------------------------------------------------ afterwards

    def settle(self, exchange: Exchange) -> None:
        """The exchange is over. (A stream has been read by then.)"""

    @property
    def text(self) -> str:
        """Everything that was generated, reasoning included."""
        return "".join(self.pieces)

    def refused_prompt_tokens(self, exchange: Exchange) -> int | None:
        """How many tokens the prompt had, if it was refused because of them and the server says so."""
        return context_numbers(bytes(exchange.body))[0] if exchange.status == 400 else None

    def prompt_tokens(self) -> tuple[int | None, str | None]:
        """How many tokens the prompt had, and who says so: "usage", else llama-server's "timings" (processed and cached). Some
        servers fill in 0 for what they have not counted."""
        if self.usage is not None and self.usage.prompt_tokens:
            return self.usage.prompt_tokens, "usage"
        if self.timings is not None and (known := (self.timings.prompt_n or 0) + (self.timings.cache_n or 0)):
            return known, "timings"
        return None, None

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens that came from the server's cache."""
        if self.usage is not None and self.usage.prompt_tokens_details is not None:
            return self.usage.prompt_tokens_details.cached_tokens
        return self.timings.cache_n if self.timings is not None else None

    def output_tokens(self) -> tuple[int | None, str | None]:
        """How many tokens were generated, and who says so: "usage", else "timings", else the counted "events". 0 is none of theirs
        where there is an answer."""
        least = 1 if self.token_ns or self.pieces else 0
        told = self.usage.completion_tokens if self.usage is not None else None
        if told is not None and told >= least:
            return told, "usage"
        told = self.timings.predicted_n if self.timings is not None else None
        if told is not None and told >= least:
            return told, "timings"
        return (len(self.token_ns), "events") if self.token_ns else (None, None)

    def failure(self, exchange: Exchange) -> tuple[str, str] | None:
        """Class and sentence of the failure, None if this was a valid, complete answer."""
        if exchange.failure is not None:
            if exchange.failure.kind == "cut_off" and self.error is not None:
                return event_failure(self.error)
            return exchange.failure.kind, exchange.failure.text
        status = exchange.status or 0
        if not 200 <= status < 300:
            return http_failure(status, bytes(exchange.body), exchange.headers)
        if self.error is not None:
            return event_failure(self.error)
        if self.finish_reason in GIVEN_UP:
            return event_failure(f"the server gave the answer up (finish_reason {self.finish_reason})")
        return self._incomplete(exchange)

    def _incomplete(self, exchange: Exchange) -> tuple[str, str] | None:
        """What is wrong with an answer that came through well."""
        if self.bad_event is not None:
            return "bad_event", f"an event of the stream is no valid chunk: {self.bad_event}"
        content_type = exchange.headers.get("content-type", "")
        encoding = exchange.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            return "no_stream", f"the answer came {encoding}-compressed although plain was asked for; switch that off in the proxy"
        if not content_type.lower().startswith("text/event-stream"):
            return "no_stream", f"the answer is {content_type or 'of no named type'}, not an event stream"
        if self.finish_reason is None:
            if not self.token_ns and not self.done:
                return "empty_answer", "the stream was empty (llama-cpp-python answers so when a prompt exceeds the context)"
            return "cut_off", "the stream ended without a finish_reason"
        if not self.token_ns:
            return "empty_answer", f"no token was generated (finish_reason {self.finish_reason})"
        return None
