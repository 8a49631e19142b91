"""The events of a streamed answer: which are tokens, how the answer ended, how many tokens it used.

Covers the streams of llama-server, vLLM, llama-cpp-python and other OpenAI-compatible servers: role
events with `content` null or empty, reasoning under two names, the finish on a separate event or on
the last token, several choices (`n`), usage with and without `choices`, usage on every event,
llama-server's `timings`, error events, `[DONE]`. What else is sent in the wild is in
`tests/wild/answers`; how an answer ends, in `servers.answer_end`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import msgspec

from llama_load.ground.failure_kind import FailureKind
from llama_load.servers.answer_end import EndSigns
from llama_load.servers.choice_text import (
    NULL,
    Choice,
    ChoiceText,
    Delta,
    is_something,
    is_visible,
)
from llama_load.servers.finish_reasons import GIVEN_UP
from llama_load.servers.odd_events import decoded_json, without_odd_values
from llama_load.servers.server_errors import (
    context_numbers,
    describe_error,
    event_failure,
    has_error,
    http_failure,
    sounds_like_error,
)
from llama_load.servers.usage import Timings, Usage, merged_usage

if TYPE_CHECKING:
    from llama_load.servers.ended_exchange import EndedExchange

T = TypeVar("T")

DONE = b"[DONE]"
# How else servers write it.
_DONE_WORDS = {b"[DONE]", b"DONE", b"[END]", b"EOF"}
# An answer that breaks off so may have come whole before.
_BREAKS = {
    FailureKind.CUT_OFF,
    FailureKind.RESET,
    FailureKind.PROTOCOL,
    FailureKind.TOKEN_TIMEOUT,
}
# More texts without JSON than these are no words about a fault but an answer.
_MOST_STRAY_TEXTS = 2
MOST_TEXT_BYTES = 2000
# A longer body of status 200 is no error.
MOST_ERROR_BYTES = 16 * 1024


class _Beside(msgspec.Struct, gc=False):
    usage: Usage | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    metrics: msgspec.Raw = NULL
    error: msgspec.Raw = NULL
    x_groq: _Beside | None = None


_decode = msgspec.json.Decoder(_Event).decode


class AnswerReader(ChoiceText):
    """Reads one streamed answer; pass it to `Transport.begin`. After `settle`: texts, token times,
    usage, timings, `failure`.

    The inherited fields are the first choice; further choices (`n` above 1) are in `others`, by
    index.
    """

    streams = True
    generates = True  # a text; else results, which have no output tokens

    def __init__(self) -> None:
        super().__init__()
        self.token_ns: list[int] = []
        self.blank_ns: list[int] = []  # events with blanks alone before the first token
        # completion tokens so far, of token events that carry usage (vLLM's continuous one)
        self.counted: list[int | None] = []
        self.others: dict[int, ChoiceText] = {}
        self.first_answer_ns: int | None = None
        # that answered, with its fingerprint, by the first event that names it
        self.model: str | None = None
        self.usage: Usage | None = None
        self.timings: Timings | None = None
        self.metrics: bytes | None = None  # vLLM's, which are in the last event alone
        self.error: str | None = None
        self._error_body = b""
        self.bad_event: str | None = None
        self.stray_texts = 0  # events that are no JSON
        self._stray_text = b""  # the last of them
        self.done = False
        self._has_mark = False  # the server said that it is done
        # token events when usage came without text
        self._counted_at = 0

    def event(self, data: bytes, at_ns: int) -> bool:
        """Read one event. True if it is a token event: one with generated content.

        The first one has text or reasoning that a reader could see, or a tool call.
        """
        if data == DONE:
            self.end()
            return False
        event = self.decoded(_decode, data)
        if event is None:
            return False
        usage = event.usage
        if usage is None and event.x_groq is not None:
            usage = event.x_groq.usage
        if usage is not None:
            before = self.usage
            # The common case: the first, or one that counts on.
            if before is None or (
                usage.prompt_tokens == before.prompt_tokens
                and (usage.completion_tokens or 0) > (before.completion_tokens or 0)
                and before.prompt_tokens_details is None
            ):
                self.usage = usage
            else:
                self.keep_usage(usage)
        if self.model is None and event.model is not None:
            self.model = event.model
            if event.system_fingerprint:
                self.model += f" ({event.system_fingerprint})"
        if event.timings is not None:
            self.keep_timings(event.timings)
        if event.metrics is not NULL:
            self.metrics = bytes(event.metrics)
        if event.error is not NULL:
            self.fail(event.error)
        choices = event.choices
        if not choices:
            if usage is not None:
                self.note_usage(usage, is_alone=True)
            elif choices is None:
                self._take_object(data)
            return False
        choice = choices[0]
        if len(choices) > 1 or choice.index:
            return self._choices_event(choices, usage, at_ns)
        delta = choice.delta
        thought = None
        if delta is None:
            text = choice.text
        else:
            text = delta.content
            thought = delta.thought
            if thought:
                self.thoughts.append(thought)
        if text:
            if self.first_answer_ns is None and is_visible(text):
                self.first_answer_ns = at_ns
            self.pieces.append(text)
        elif not thought:
            return self._choices_event(choices, usage, at_ns)

        # The common case: text of the only choice.
        if choice.finish_reason:
            self.finish(choice.finish_reason)
        if (
            not self.token_ns
            and self.first_answer_ns is None
            and not is_visible(thought)
        ):
            self.blank_ns.append(at_ns)
            return False
        self.token_ns.append(at_ns)
        if usage is not None:
            self.counted.append(usage.completion_tokens)
        return True

    def _choices_event(
        self, choices: Sequence[Choice], usage: Usage | None, at_ns: int
    ) -> bool:
        """Read an event with several choices, with another than the first, or without text.

        True if one of them has text, reasoning or a tool call.
        """
        generated = False
        answers = False
        visible = False
        for choice in choices:
            if choice.usage is not None:
                usage = choice.usage
                self.keep_usage(usage)
            text, thought, is_call = self.take(choice, choice.delta or choice.message)
            generated |= bool(text or thought or is_call)
            answers |= is_call or (self.first_answer_ns is None and is_visible(text))
            visible |= not self.token_ns and is_visible(thought)
        if answers and self.first_answer_ns is None:
            self.first_answer_ns = at_ns
        if not generated or not self.is_token(at_ns, visible=answers or visible):
            if usage is not None:
                self.note_usage(usage, is_alone=False)
            return False
        if usage is not None:
            self.counted.append(usage.completion_tokens)
        return True

    def take(
        self, choice: Choice, delta: Delta | None
    ) -> tuple[str | None, str | None, bool]:
        """Keep what is new of one choice: its text, its reasoning, and whether it has a call."""
        kept: ChoiceText = self
        if choice.index > 0:
            kept = self.others.setdefault(choice.index, ChoiceText())
        kept.appeared = True
        if choice.error is not NULL:
            self.fail(choice.error)
        text = choice.text
        thought = None
        is_call = False
        if delta is not None:
            text = delta.content
            thought = delta.thought
            is_call = delta.is_call
            if is_something(delta.tool_calls):
                kept.call_pieces.append(bytes(delta.tool_calls))
        if thought:
            kept.thoughts.append(thought)
        if text:
            kept.pieces.append(text)
        if choice.finish_reason:
            kept.finish(choice.finish_reason)
        return text, thought, is_call

    def is_token(self, at_ns: int, *, visible: bool) -> bool:
        """Keep the time of an event with generated content.

        False: it has blanks alone (not `visible`), and there was no token before it.
        """
        if self.token_ns or visible:
            self.token_ns.append(at_ns)
            return True
        self.blank_ns.append(at_ns)
        return False

    def end(self) -> None:
        """The server says that this was the last event."""
        self.done = True
        self._has_mark = True

    def keep_usage(self, usage: Usage) -> None:
        """A later report, or a part of one."""
        self.usage = usage if self.usage is None else merged_usage(self.usage, usage)

    def keep_timings(self, timings: Timings) -> None:
        """Timings count up; a later report with fewer tokens is a part of one."""
        before = self.timings
        if before is None or (timings.predicted_n or 0) >= (before.predicted_n or 0):
            self.timings = timings

    def note_usage(self, usage: Usage, *, is_alone: bool) -> None:
        """Usage in an event without text ends the answer, unless each event has it and this one has
        choices, too."""
        if usage.completion_tokens and (is_alone or not self.counted):
            self._counted_at = len(self.token_ns)
            # A server may keep the connection open and send no [DONE].
            self.done |= self._has_reasons

    def decoded(self, decode: Callable[[bytes], T], data: bytes) -> T | None:
        """A JSON event or answer, also one with odd values; None if it is none.

        `bad_event` then says why, unless it is no JSON object at all (see `_take_text`).
        """
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._decoded_oddly(decode, data, str(error))

    def _decoded_oddly(
        self, decode: Callable[[bytes], T], data: bytes, why: str
    ) -> T | None:
        # Shimmy puts each frame into a frame.
        data = data.strip().removeprefix(b"data:").strip()
        try:
            document = decoded_json(data)
        except (ValueError, RecursionError):
            self._take_text(data, why)
            return None
        if isinstance(document, str):
            self._take_text(document.encode("utf-8", "replace"), why)
        if isinstance(document, list) and document and has_error(document[0]):
            self.fail_with(data)
        if not isinstance(document, dict):
            return None

        try:
            return decode(without_odd_values(document))
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, too
            self.bad_event = self.bad_event or why
            return None

    def _take_text(self, data: bytes, why: str) -> None:
        """An event that is no JSON: nothing that keeps a stream alive, an end, a broken chunk, or
        words."""
        text = data.strip()
        if not text or text.startswith(b":"):
            return
        if text.strip(b"\"' ").upper() in _DONE_WORDS:
            self.end()
        elif text.startswith(b"{") and not text.startswith(b"{'"):
            self.bad_event = self.bad_event or why
        elif sounds_like_error(text[:MOST_TEXT_BYTES].decode("utf-8", "replace")):
            self.fail_with(text[:MOST_TEXT_BYTES])
        else:
            self.stray_texts += 1
            self._stray_text = text[:MOST_TEXT_BYTES]

    def _take_object(self, data: bytes) -> None:
        """An event without anything that a chunk has: an error under another name, or something
        else."""
        try:
            document = decoded_json(data)
        except (ValueError, RecursionError):
            return
        if has_error(document):
            self.fail_with(data)

    def fail(self, error: msgspec.Raw) -> None:
        """Keep the error of an event, if it has one."""
        if is_something(error):
            self.fail_with(b'{"error":' + bytes(error) + b"}")

    def fail_with(self, body: bytes) -> None:
        """Keep an error in any layout."""
        self._error_body = body
        self.error = describe_error(body)

    # ------------------------------------------------------------------ afterwards

    def settle(self, exchange: EndedExchange) -> None:
        """Called when the exchange is over, after all events of a stream.

        An answer of blanks alone begins with its first event.
        """
        if not self.token_ns and self.blank_ns and (self.done or self.finish_reason):
            self.token_ns = self.blank_ns
            self.blank_ns = []
            self.first_answer_ns = self.token_ns[0]

    @property
    def choices(self) -> list[ChoiceText]:
        """The choices that appeared, by their index."""
        choices: list[ChoiceText] = []
        if self.appeared or self.pieces or self.thoughts or not self.others:
            choices.append(self)
        for index in sorted(self.others):
            choices.append(self.others[index])
        return choices

    @property
    def generated(self) -> str:
        """All generated text: each choice's reasoning, then its answer."""
        return "".join(choice.reasoning + choice.text for choice in self.choices)

    def refused_prompt_tokens(self, exchange: EndedExchange) -> int | None:
        """The prompt's tokens, if it was refused because of its length and the server tells."""
        if exchange.status != 400:
            return None
        prompt_tokens, _ = context_numbers(bytes(exchange.body))
        return prompt_tokens

    def event_tokens(self, output_tokens: int | None) -> list[int]:
        """Tokens of each token event, where each event has usage; else empty.

        Differences of the completion tokens so far. Tokens counted after the last event (end of
        text) are added to it, so the sum is `output_tokens`. So far 3, 5, 6, and 7 in total: [3, 2,
        2].
        """
        counted = [count for count in self.counted if count is not None]
        if not counted or self.others or output_tokens is None:
            return []
        if len(counted) != len(self.token_ns):
            return []

        steps = [later - earlier for earlier, later in pairwise((0, *counted))]
        rest = output_tokens - counted[-1]
        # Some servers repeat the same count with every event, or count each event alone.
        if min(steps) < 0 or not 0 <= rest <= counted[-1]:
            return []
        steps[-1] += rest
        return steps

    def failure(
        self, exchange: EndedExchange, *, ends_by_reason: bool = False
    ) -> tuple[str, str] | None:
        """Class and message of the failure, None for a valid, complete answer. `ends_by_reason`:
        whole answers of its server have a finish_reason."""
        broken = exchange.failure
        status = exchange.status or 0
        is_success = 200 <= status < 300
        if broken is not None and not (is_success and broken.kind in _BREAKS):
            return broken.kind, broken.text
        if not is_success:
            return http_failure(status, bytes(exchange.body), exchange.headers)

        if error := self._error_of(exchange):
            return event_failure(error, generated=bool(self.token_ns))
        for choice_text in self.choices:
            if choice_text.finish_reason in GIVEN_UP:
                return self._given_up(choice_text.finish_reason)
        return self._incomplete(exchange, ends_by_reason=ends_by_reason)

    def _error_of(self, exchange: EndedExchange) -> bytes:
        """The error that the server sent in any frame; empty: none."""
        if self._error_body:
            return self._error_body
        if exchange.error_frame:
            return exchange.error_frame
        body = bytes(exchange.other_lines or exchange.body[: MOST_ERROR_BYTES + 1])
        if len(body) > MOST_ERROR_BYTES:
            return b""
        try:
            return body if body and has_error(decoded_json(body)) else b""
        except (ValueError, RecursionError):
            return b""

    def _given_up(self, reason: str) -> tuple[str, str]:
        """Of an answer whose finish_reason says so. koboldcpp has the reason as its text."""
        said = self.generated[:MOST_TEXT_BYTES]
        words = f"the server aborted the answer (finish_reason {reason})"
        if said.lstrip().lower().startswith("error"):
            words = said
        return event_failure(words.encode("utf-8", "replace"), generated=False)

    def _incomplete(
        self, exchange: EndedExchange, *, ends_by_reason: bool
    ) -> tuple[str, str] | None:
        """Class and message of the failure of an answer that was received; None if it is valid."""
        if self.bad_event is not None:
            return (
                FailureKind.BAD_EVENT,
                f"an event of the stream is not a valid chunk: {self.bad_event}",
            )
        if not exchange.is_stream:
            return self._not_streamed(exchange)

        signs = self._signs(exchange)
        if signs.are_enough(ends_by_reason=ends_by_reason):
            if self.token_ns or self._was_held_back():
                return None
            return (
                FailureKind.EMPTY_ANSWER,
                f"no token was generated (finish_reason {self.finish_reason})",
            )
        if words := self._last_words(exchange):
            return event_failure(words, generated=bool(self.token_ns))
        if exchange.failure is not None:
            return exchange.failure.kind, exchange.failure.text
        if not self.token_ns:
            return FailureKind.EMPTY_ANSWER, "the stream was empty"
        return FailureKind.CUT_OFF, signs.missing(len(self.choices))

    def _not_streamed(self, exchange: EndedExchange) -> tuple[str, str]:
        encoding = exchange.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            return (
                FailureKind.NO_STREAM,
                f"the answer is {encoding}-compressed against the request; turn compression off "
                "in the proxy",
            )
        if exchange.failure is not None:
            return exchange.failure.kind, exchange.failure.text
        content_type = exchange.headers.get("content-type", "")
        text = f"the answer is {content_type or 'without a Content-Type'}, not an event stream"
        body = bytes(exchange.body[:MOST_TEXT_BYTES])
        if b'"choices"' in body:
            text += ": the server does not stream; --no-stream asks for whole answers"
        elif sounds_like_error(body.decode("utf-8", "replace")):
            kind, words = event_failure(body, generated=False)
            text += f": {words}"
            if kind != FailureKind.ERROR_EVENT:
                return kind, text
        return FailureKind.NO_STREAM, text

    def _signs(self, exchange: EndedExchange) -> EndSigns:
        """Which signs of its end the answer has."""
        choices = self.choices
        marks = self._has_mark + (0 < self._counted_at == len(self.token_ns))
        ended = 0
        for choice_text in choices:
            # Another sign confirms a reason that is not known, or that came with every event.
            is_confirmed = marks > 0 and choice_text.finish_reason is not None
            ended += choice_text.has_end or is_confirmed
        return EndSigns(
            reasons=ended,
            without_reason=len(choices) - ended,
            marks=marks,
            body=exchange.has_body_end,
        )

    @property
    def _has_reasons(self) -> bool:
        return all(choice_text.has_end for choice_text in self.choices)

    def _last_words(self, exchange: EndedExchange) -> bytes:
        """What the server sent that is neither an event nor JSON, where it may be about a fault."""
        if exchange.other_lines:
            return exchange.other_lines
        if 0 < self.stray_texts <= _MOST_STRAY_TEXTS:
            return self._stray_text
        return b""

    def end_note(self, exchange: EndedExchange) -> str | None:
        """What was odd about a complete answer; None: nothing."""
        if not exchange.is_stream:
            return None
        notes = self._signs(exchange).notes()
        content_type = exchange.headers.get("content-type", "")
        if not content_type.lower().startswith("text/event-stream"):
            notes.append(f"events came as {content_type or 'no Content-Type'}")
        if self.stray_texts or exchange.other_lines:
            notes.append("texts that are no events came among them")
        return "; ".join(notes) or None

    def _was_held_back(self) -> bool:
        """Whether tokens were generated, up to the limit, and none of them was sent.

        A server does so with blanks at the end of a forced form.
        """
        generated = self.usage.completion_tokens if self.usage is not None else None
        return self.finish_reason == "length" and bool(generated)


class PartReader(AnswerReader):
    """Reads one answer whose parts come one by one.

    So it is in other APIs than OpenAI's chat and text completions.
    """

    def token(
        self,
        at_ns: int,
        *,
        text: str | None = None,
        thought: str | None = None,
        call: bool = False,
    ) -> bool:
        """A part of the answer, of the reasoning before it, or of a tool call.

        True if there is anything in it.
        """
        if thought:
            self.thoughts.append(thought)
        if text:
            self.pieces.append(text)
        if self.first_answer_ns is None and (call or is_visible(text)):
            self.first_answer_ns = at_ns
        if not text and not thought and not call:
            return False
        visible = self.first_answer_ns is not None or is_visible(thought)
        return self.is_token(at_ns, visible=visible)
