"""Forms of answers: the events of a stream, and how many tokens each has."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MODEL = "simulated"
# What the completions API cannot send: it has texts only.
CHAT_ONLY = (
    "role_first",
    "reasoning",
    "reasoning_field",
    "tool_call",
    "thoughts_beside",
    "content_parts",
)
# All whose events have a token each and whose usage is right. No server merges the tokens of some
# requests only, and a client may take that for wrong usage.
IN_TURN = (
    "plain",
    "role_first",
    "empty_events",
    "comments",
    "usage_every",
    "usage_first",
    "reasoning",
    "reasoning_field",
    "tool_call",
    "utf8",
    "cut_events",
)
MERGED = 3  # tokens of an event of the shape "merged"
ACCENTS = (" né", " süß", " 😀", " 日本")  # words of 2, 3 and 4 bytes a letter
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """What an answer depends on: the request's number, the tokens asked for, its prompt's tokens,
    its digest where the log has one, the choices, whether usage and ignore_eos were asked for, and
    the API."""

    number: int
    tokens: int
    prompt_tokens: int
    prompt_sha256: str = ""
    choices: int = 1
    usage: bool = False
    ignore_eos: bool = False
    chat: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """What is sent at one instant of the schedule: bytes with `tokens` new tokens. `early`: sent
    halfway to the first token. `pieces`: sends into which it is cut."""

    data: bytes
    tokens: int = 0
    early: bool = False
    pieces: int = 1


def word(number: int, place: int) -> str:
    """A token's text. The first is the request's number, so that a client that keeps the text can
    be matched with the log."""
    if place == 0:
        return f" {number}"
    return " tok"


def event(value: Any) -> bytes:
    """A server-sent event with this JSON."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chunk(asked: Asked, delta: dict[str, Any], **further: Any) -> dict[str, Any]:
    """A chunk of the chat API, or of the completions API, which has texts only."""
    index = further.pop("index", 0)
    finish = further.pop("finish", None)
    choice: dict[str, Any] = {"index": index, "finish_reason": finish}
    if asked.chat:
        choice["delta"] = delta
    else:
        choice["text"] = delta.get("content") or ""
    base = "chatcmpl" if asked.chat else "cmpl"
    kind = "chat.completion.chunk" if asked.chat else "text_completion"
    return {
        "id": f"{base}-{asked.number}",
        "object": kind,
        "created": 0,
        "model": MODEL,
        "choices": [choice],
        **further,
    }


def usage(asked: Asked, completion: int) -> dict[str, Any]:
    """The tokens of prompt and answer."""
    return {
        "prompt_tokens": asked.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": asked.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def role(asked: Asked) -> bytes:
    """The event that only names the role; nothing in the completions API."""
    if not asked.chat:
        return b""
    return event(chunk(asked, {"role": "assistant", "content": ""}))


def finish(asked: Asked, reason: str = "length") -> bytes:
    """An event per choice that names the reason of its end."""
    choices = range(asked.choices)
    return b"".join(
        event(chunk(asked, {}, finish=reason, index=choice)) for choice in choices
    )


def last_usage(asked: Asked, completion: int | None = None) -> bytes:
    """The usage chunk at the end, where it was asked for."""
    if not asked.usage:
        return b""
    tokens = asked.tokens if completion is None else completion
    whole = chunk(asked, {})
    whole["choices"] = []
    whole["usage"] = usage(asked, tokens)
    return event(whole)


def texts(asked: Asked, key: str = "content") -> list[bytes]:
    """An event per token."""
    words = [word(asked.number, place) for place in range(asked.tokens)]
    return [event(chunk(asked, {key: text})) for text in words]


def ended(steps: list[Step], tail: bytes) -> list[Step]:
    """The steps, with `tail` and [DONE] after the last."""
    last = steps[-1]
    data = last.data + tail + DONE
    return [*steps[:-1], Step(data, last.tokens, last.early, last.pieces)]


def plain(asked: Asked) -> list[Step]:
    """The role with the first token, an event per token, usage where it was asked for."""
    steps = [Step(data, 1) for data in texts(asked)]
    steps[0] = Step(role(asked) + steps[0].data, 1)
    return ended(steps, finish(asked) + last_usage(asked))


def role_first(asked: Asked) -> list[Step]:
    """The role halfway to the first token."""
    steps = [Step(role(asked), 0, early=True)]
    steps += [Step(data, 1) for data in texts(asked)]
    return ended(steps, finish(asked) + last_usage(asked))


def empty_events(asked: Asked) -> list[Step]:
    """An event without text halfway to the first token, and one after every token."""
    empty = event(chunk(asked, {"content": ""}))
    steps = [Step(role(asked) + empty, 0, early=True)]
    steps += [Step(data + empty, 1) for data in texts(asked)]
    return ended(steps, finish(asked) + last_usage(asked))


def comments(asked: Asked) -> list[Step]:
    """Comment lines, as servers send them to keep a connection open."""
    comment = b": ping\n\n"
    steps = [Step(comment, 0, early=True)]
    steps += [Step(comment + data, 1) for data in texts(asked)]
    return ended(steps, finish(asked) + last_usage(asked))


def merged(asked: Asked) -> list[Step]:
    """Several tokens in an event, as vLLM sends them under load."""
    steps: list[Step] = []
    for begin in range(0, asked.tokens, MERGED):
        places = range(begin, min(begin + MERGED, asked.tokens))
        text = "".join(word(asked.number, place) for place in places)
        steps.append(Step(event(chunk(asked, {"content": text})), len(places)))
    return ended(steps, finish(asked) + last_usage(asked))


def usage_every(asked: Asked) -> list[Step]:
    """Usage so far in every chunk."""
    steps: list[Step] = []
    for place in range(asked.tokens):
        so_far = usage(asked, place + 1)
        delta = {"content": word(asked.number, place)}
        steps.append(Step(event(chunk(asked, delta, usage=so_far)), 1))
    return ended(steps, finish(asked) + last_usage(asked))


def usage_first(asked: Asked) -> list[Step]:
    """The final usage with the first token, and none at the end."""
    steps = [Step(data, 1) for data in texts(asked)]
    delta = {"content": word(asked.number, 0)}
    final = usage(asked, asked.tokens)
    steps[0] = Step(event(chunk(asked, delta, usage=final)), 1)
    return ended(steps, finish(asked))


def usage_missing(asked: Asked) -> list[Step]:
    """No usage, although it was asked for."""
    steps = [Step(data, 1) for data in texts(asked)]
    return ended(steps, finish(asked))


def usage_wrong(asked: Asked) -> list[Step]:
    """Usage with twice the tokens that were sent."""
    steps = [Step(data, 1) for data in texts(asked)]
    return ended(steps, finish(asked) + last_usage(asked, 2 * asked.tokens))


def reasoning(asked: Asked) -> list[Step]:
    """The first half as reasoning_content, as llama.cpp and others send it."""
    return _half(asked, "reasoning_content")


def reasoning_field(asked: Asked) -> list[Step]:
    """The first half as `reasoning`, as newer vLLM sends it."""
    return _half(asked, "reasoning")


def _half(asked: Asked, key: str) -> list[Step]:
    thought = asked.tokens // 2
    steps: list[Step] = []
    for place in range(asked.tokens):
        name = key if place < thought else "content"
        text = word(asked.number, place if place < thought else place - thought)
        steps.append(Step(event(chunk(asked, {name: text})), 1))
    return ended(steps, finish(asked) + last_usage(asked))


def tool_call(asked: Asked) -> list[Step]:
    """An answer that is one call of a tool, its arguments a token per event."""
    steps: list[Step] = []
    for place in range(asked.tokens):
        function: dict[str, Any] = {"arguments": word(asked.number, place)}
        call: dict[str, Any] = {"index": 0, "function": function}
        if place == 0:
            call["id"] = f"call-{asked.number}"
            call["type"] = "function"
            function["name"] = "look_up"
        steps.append(Step(event(chunk(asked, {"tool_calls": [call]})), 1))
    return ended(steps, finish(asked, "tool_calls") + last_usage(asked))


def utf8(asked: Asked) -> list[Step]:
    """Letters of several bytes, each event sent byte by byte in its middle."""
    steps: list[Step] = []
    for place in range(asked.tokens):
        text = word(asked.number, 0) if place == 0 else ACCENTS[place % len(ACCENTS)]
        steps.append(Step(event(chunk(asked, {"content": text})), 1, pieces=12))
    return ended(steps, finish(asked) + last_usage(asked))


def cut_events(asked: Asked) -> list[Step]:
    """Every event in pieces, cut at places that move."""
    steps = [
        Step(data, 1, pieces=2 + place % 7) for place, data in enumerate(texts(asked))
    ]
    return ended(steps, finish(asked) + last_usage(asked))


def many_choices(asked: Asked) -> list[Step]:
    """`n` choices, one after the other in each step; usage is of all of them."""
    steps: list[Step] = []
    for place in range(asked.tokens):
        delta = {"content": word(asked.number, place)}
        choices = range(asked.choices)
        events = [event(chunk(asked, delta, index=choice)) for choice in choices]
        steps.append(Step(b"".join(events), asked.choices))
    return ended(steps, finish(asked) + last_usage(asked, asked.tokens * asked.choices))


def in_turn(asked: Asked) -> list[Step]:
    """Another of these forms for each request, by its number. The completions API gets plain
    answers in place of those that it does not have."""
    name = IN_TURN[asked.number % len(IN_TURN)]
    if name in CHAT_ONLY and not asked.chat:
        name = "plain"
    return SHAPES[name](asked)


SHAPES: dict[str, Callable[[Asked], list[Step]]] = {
    "plain": plain,
    "role_first": role_first,
    "empty_events": empty_events,
    "comments": comments,
    "merged": merged,
    "usage_every": usage_every,
    "usage_first": usage_first,
    "usage_missing": usage_missing,
    "usage_wrong": usage_wrong,
    "reasoning": reasoning,
    "reasoning_field": reasoning_field,
    "tool_call": tool_call,
    "utf8": utf8,
    "cut_events": cut_events,
    "many_choices": many_choices,
    "in_turn": in_turn,
}


def cut(data: bytes, pieces: int) -> Sequence[bytes]:
    """`data` in about as many parts, the last one the rest."""
    if pieces < 2:
        return [data]
    size = max(1, len(data) // pieces)
    return [data[place : place + size] for place in range(0, len(data), size)]
