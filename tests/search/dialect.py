"""An answer as bytes: the chunks of a streamed chat, in the words of the servers."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from tests.search.answers import CALL_BEGIN, CONTENT, TOOL_CALL, Answer, Piece, Reported
from tests.search.case import LLAMA_SERVER, Case

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
# From the start of a request until headers of servers that do not hold them.
HEADERS_NS = 1_000_000


def reads_of(case: Case, answer: Answer) -> list[tuple[int, bytes]]:
    """What the client reads, each with its arrival time: the headers, an event for each piece, the
    end."""
    if answer.status != 200:
        return [(answer.tail_ns, refusal(answer.status))]
    headers_ns = answer.headers_ns or _headers_ns(case, answer)
    events = [(headers_ns, role_event(answer.model))]
    so_far = 0
    for piece in answer.pieces:
        so_far += piece.tokens
        usage = Reported(answer.prompt_tokens, so_far) if answer.usage_each else None
        events.append((piece.at_ns, event_of(piece, usage)))
    events += answer.extra_events
    if not answer.is_cut_off:
        events += [(answer.tail_ns, data) for data in _tail(case, answer)]
    events.sort(key=lambda event: event[0])
    reads = [(at_ns, chunk(data)) for at_ns, data in events]
    first_ns, first = reads[0]
    if answer.is_cut_off:
        return [(first_ns, HEAD + first), *reads[1:]]
    return [
        (first_ns, HEAD + first),
        *reads[1:-1],
        (reads[-1][0], reads[-1][1] + LAST_CHUNK),
    ]


def _headers_ns(case: Case, answer: Answer) -> int:
    if case.server == LLAMA_SERVER:
        return answer.begin_ns
    return answer.start_ns + HEADERS_NS


def refusal(status: int) -> bytes:
    """A refused request."""
    body = b'{"error": {"message": "the server is busy"}}'
    return (
        b"HTTP/1.1 %d Busy\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (status, len(body), body)
    )


def chunk(data: bytes) -> bytes:
    """A chunk of the transfer encoding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(document: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


@lru_cache(maxsize=64)
def role_event(model: str) -> bytes:
    """The first event of a chat, which has the role alone."""
    delta = {"role": "assistant", "content": None}
    return event(
        {
            "object": "chat.completion.chunk",
            "model": model,
            "choices": [{"index": 0, "delta": delta}],
        }
    )


def event_of(piece: Piece, usage: Reported | None) -> bytes:
    """The event of a piece of the answer."""
    if usage is None:
        return _plain_event(piece.text, piece.field, piece.choice)
    return event(
        {
            "choices": [
                {"index": piece.choice, "delta": _delta(piece.text, piece.field)}
            ],
            "usage": _usage(usage),
        }
    )


@lru_cache(maxsize=4096)
def _plain_event(text: str, name: str, choice: int) -> bytes:
    return event(
        {
            "object": "chat.completion.chunk",
            "choices": [{"index": choice, "delta": _delta(text, name)}],
        }
    )


def _delta(text: str, name: str) -> dict[str, Any]:
    if name == CALL_BEGIN:
        call = {
            "index": 0,
            "id": "call_1",
            "type": "function",
            "function": {"name": "look_up", "arguments": text},
        }
        return {TOOL_CALL: [call]}
    if name == TOOL_CALL:
        return {TOOL_CALL: [{"index": 0, "function": {"arguments": text}}]}
    return {name or CONTENT: text}


def _usage(reported: Reported) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": reported.prompt,
        "completion_tokens": reported.output,
    }
    if reported.cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": reported.cached}
    if reported.reasoning is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": reported.reasoning}
    if reported.total is not None:
        usage["total_tokens"] = reported.total
    return usage


def _tail(case: Case, answer: Answer) -> list[bytes]:
    """finish_reason, usage or timings, [DONE]."""
    choices = sorted({piece.choice for piece in answer.pieces})
    finish: dict[str, Any] = {
        "choices": [
            {"index": each, "delta": {}, "finish_reason": answer.finish}
            for each in choices
        ]
    }
    events = [finish]
    if answer.reported is not None:
        events.append({"choices": [], "usage": _usage(answer.reported)})
    if case.server == LLAMA_SERVER:
        events[-1]["timings"] = {
            "prompt_n": answer.prompt_tokens - answer.cached,
            "cache_n": answer.cached,
            "prompt_ms": answer.server_prompt_ms,
            "predicted_n": len(answer.words),
            "predicted_ms": answer.server_predict_ms,
        }
        if answer.drafted is not None:
            events[-1]["timings"] |= {
                "draft_n": answer.drafted,
                "draft_n_accepted": answer.accepted,
            }
    return [*(event(document) for document in events), b"data: [DONE]\n\n"]
