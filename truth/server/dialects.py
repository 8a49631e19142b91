"""Dialects of gateways: answers that are right in another form, and failures in other frames.

Public reports of each form are in tests/wild/answers of llama-load's repository.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from truth.server.shapes import (
    DONE,
    SHAPES,
    Asked,
    Step,
    chunk,
    ended,
    event,
    finish,
    last_usage,
    role,
    texts,
    usage,
    word,
)

# Of other APIs, for the same two ends.
OTHER_WORDS = ("end_turn", "eos_token", "MAX_TOKENS", "COMPLETE")
BURST = 5  # tokens of the first event of the shape "burst_first"
FAILED = {"message": "no worker is free", "type": "server_error", "code": 503}


def with_finish(asked: Asked, unfinished: str) -> list[Step]:
    """An event per token, whose finish_reason is this text in place of null."""
    words = [word(asked.number, place) for place in range(asked.tokens)]
    steps = [
        Step(event(chunk(asked, {"content": text}, finish=unfinished)), 1)
        for text in words
    ]
    return ended(steps, finish(asked) + last_usage(asked))


def finish_null_text(asked: Asked) -> list[Step]:
    """The text "null" with every event."""
    return with_finish(asked, "null")


def finish_empty(asked: Asked) -> list[Step]:
    """An empty text with every event."""
    return with_finish(asked, "")


def finish_other(asked: Asked) -> list[Step]:
    """A word of another API at the end, another for each request."""
    reason = OTHER_WORDS[asked.number % len(OTHER_WORDS)]
    return ended(_tokens(asked), finish(asked, reason) + last_usage(asked))


def end_finish(asked: Asked) -> list[Step]:
    """finish_reason and the end of the body: neither usage nor [DONE]."""
    return _with_tail(_tokens(asked), finish(asked))


def end_done(asked: Asked) -> list[Step]:
    """[DONE] and the end of the body: no finish_reason."""
    return ended(_tokens(asked), last_usage(asked))


def end_usage(asked: Asked) -> list[Step]:
    """Usage and the end of the body: neither finish_reason nor [DONE]."""
    return _with_tail(_tokens(asked), last_usage(replace(asked, usage=True)))


def end_unended(asked: Asked) -> list[Step]:
    """finish_reason and [DONE]; the connection is closed before the last chunk."""
    return ended(_tokens(asked), finish(asked) + last_usage(asked))


def no_blank(asked: Asked) -> list[Step]:
    """No blank after the colon of `data:`."""
    return _changed(SHAPES["plain"](asked), b"data: ", b"data:")


def crlf(asked: Asked) -> list[Step]:
    """Lines that end with CR LF."""
    return _changed(SHAPES["plain"](asked), b"\n", b"\r\n")


def named_events(asked: Asked) -> list[Step]:
    """Events with a name, and pings with another, which have data and are no tokens."""
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    steps = _changed(_tokens(asked), b"data: ", b"event: message\ndata: ")
    steps = [replace(step, data=ping + step.data) for step in steps]
    return [Step(ping, early=True), *ended(steps, finish(asked) + last_usage(asked))]


def odd_lines(asked: Asked) -> list[Step]:
    """Lines `id` and `retry`, and events whose data is empty."""
    steps = [
        replace(step, data=b"id: %d\nretry: 3000\n" % place + step.data + b"data:\n\n")
        for place, step in enumerate(_tokens(asked))
    ]
    return ended(steps, finish(asked) + last_usage(asked))


def no_choices(asked: Asked) -> list[Step]:
    """Events whose list of choices is empty, before the first token and after the last."""
    whole = chunk(asked, {})
    whole |= {"id": "", "model": "", "choices": [], "prompt_filter_results": []}
    empty = event(whole)
    steps = [Step(empty, early=True), *_tokens(asked)]
    return ended(steps, empty + finish(asked) + last_usage(asked))


def data_lines(asked: Asked) -> list[Step]:
    """The JSON of an event on several lines `data:`."""
    steps = _changed(_tokens(asked), b', "', b',\ndata: "')
    return ended(steps, finish(asked) + last_usage(asked))


def usage_zeros(asked: Asked) -> list[Step]:
    """Usage with every event, zeros until the last."""
    zeros = usage(replace(asked, prompt_tokens=0), 0)
    words = [word(asked.number, place) for place in range(asked.tokens)]
    steps = [
        Step(event(chunk(asked, {"content": text}, usage=zeros)), 1) for text in words
    ]
    return ended(steps, finish(asked) + last_usage(replace(asked, usage=True)))


def usage_parts(asked: Asked) -> list[Step]:
    """The tokens of the prompt before the first, those of the answer at the end."""
    parts: list[bytes] = []
    for name, count in (("prompt", asked.prompt_tokens), ("completion", asked.tokens)):
        whole = chunk(asked, {})
        whole |= {"choices": [], "usage": {f"{name}_tokens": count}}
        parts.append(event(whole))
    steps = [Step(parts[0], early=True), *_tokens(asked)]
    return ended(steps, finish(asked) + parts[1])


def thoughts_beside(asked: Asked) -> list[Step]:
    """The first half are thoughts, which completion_tokens does not count, but the total does."""
    thought = asked.tokens // 2
    steps: list[Step] = []
    for place in range(asked.tokens):
        is_thought = place < thought
        text = word(asked.number, place if is_thought else place - thought)
        key = "reasoning_content" if is_thought else "content"
        steps.append(Step(event(chunk(asked, {key: text})), 1))

    whole = chunk(asked, {})
    counts: dict[str, Any] = usage(asked, asked.tokens)
    counts["completion_tokens"] = asked.tokens - thought
    counts["completion_tokens_details"] = {"reasoning_tokens": thought}
    whole |= {"choices": [], "usage": counts}
    return ended(steps, finish(asked) + event(whole))


def content_parts(asked: Asked) -> list[Step]:
    """Content as a list of parts."""
    steps: list[Step] = []
    for place in range(asked.tokens):
        parts = [{"type": "text", "text": word(asked.number, place)}]
        steps.append(Step(event(chunk(asked, {"content": parts})), 1))
    return ended(steps, finish(asked) + last_usage(asked))


def burst_first(asked: Asked) -> list[Step]:
    """Several tokens in the first event, then one in each."""
    first = min(BURST, asked.tokens)
    words = [word(asked.number, place) for place in range(asked.tokens)]
    groups = ["".join(words[:first]), *words[first:]]
    steps = [Step(event(chunk(asked, {"content": text})), 1) for text in groups]
    steps[0] = replace(steps[0], tokens=first)
    return ended(steps, finish(asked) + last_usage(asked))


def _tokens(asked: Asked) -> list[Step]:
    """The role with the first token, an event per token."""
    steps = [Step(data, 1) for data in texts(asked)]
    steps[0] = replace(steps[0], data=role(asked) + steps[0].data)
    return steps


def _with_tail(steps: Sequence[Step], tail: bytes) -> list[Step]:
    last = replace(steps[-1], data=steps[-1].data + tail)
    return [*steps[:-1], last]


def _changed(steps: Sequence[Step], old: bytes, new: bytes) -> list[Step]:
    return [replace(step, data=step.data.replace(old, new)) for step in steps]


DIALECTS: dict[str, Callable[[Asked], list[Step]]] = {
    "finish_null_text": finish_null_text,
    "finish_empty": finish_empty,
    "finish_other": finish_other,
    "end_finish": end_finish,
    "end_done": end_done,
    "end_usage": end_usage,
    "end_unended": end_unended,
    "no_blank": no_blank,
    "crlf": crlf,
    "named_events": named_events,
    "odd_lines": odd_lines,
    "no_choices": no_choices,
    "data_lines": data_lines,
    "usage_zeros": usage_zeros,
    "usage_parts": usage_parts,
    "thoughts_beside": thoughts_beside,
    "content_parts": content_parts,
    "burst_first": burst_first,
}
FORMS = SHAPES | DIALECTS
UNENDED = ("end_unended",)  # the body has no last chunk

_FAILED_CHOICE = {"index": 0, "delta": {}, "finish_reason": "error", "error": FAILED}
_BROKEN_CHOICE = {"index": 0, "delta": {}, "finish_reason": "network_error"}
# Faults after which the body ends properly, and what stands before its end.
TAILS = {
    "no_finish": b"",
    "error_event": event({"error": FAILED}),
    "error_named": b"event: error\ndata: " + json.dumps(FAILED).encode() + b"\n\n",
    "error_bare": json.dumps({"error": FAILED}).encode() + b"\n",
    "error_choice": event({"choices": [_FAILED_CHOICE]}) + DONE,
    "finish_error": event({"choices": [_BROKEN_CHOICE]}) + DONE,
}
