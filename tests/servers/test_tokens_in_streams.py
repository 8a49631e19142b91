"""From the bytes of a stream to the tokens of its time: hidden reasoning, stop strings, blanks that
are held back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_load.run_folder.observed.record import OK
from tests.answer_pipeline import record_of

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
)
NS_PER_MS = 1e6


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def stream(deltas: list[dict[str, Any]], finish: str, **usage: Any) -> list[bytes]:
    """The reads of a stream, an event each (at 1 ns after another), with its usage."""
    pieces = [event(choices=[{"index": 0, "delta": delta}]) for delta in deltas]
    pieces.append(event(choices=[{"index": 0, "delta": {}, "finish_reason": finish}]))
    pieces.append(event(choices=[], usage={"prompt_tokens": 5, **usage}))
    return [HEAD, *pieces, b"data: [DONE]\n\n"]


def words(*texts: str) -> list[dict[str, Any]]:
    return [{"content": text} for text in texts]


@pytest.mark.parametrize(
    ("reads", "tokens"),
    [
        (stream(words("ab", " cd", " ef", " gh"), "length", completion_tokens=4), 3),
        (
            stream(words("ab", " cd", " ef"), "stop", completion_tokens=4),
            2,
        ),  # and an end token
        (
            stream(
                words("ab", " cd", " ef"),
                "stop",
                completion_tokens=8,
                completion_tokens_details={"reasoning_tokens": 4},
            ),
            2,
        ),
        (
            stream(
                words("<a>", "b", "c", "d"),
                "length",
                completion_tokens=4,
                completion_tokens_details={"reasoning_tokens": 2},
            ),
            3,
        ),
    ],
)
def test_the_time_of_a_stream_holds_the_tokens_of_its_events(
    reads: list[bytes], tokens: int
) -> None:
    """The n-th event comes n ns after the first."""
    record = record_of(reads)
    assert record.status == OK
    assert record.tpot_ms is not None
    assert record.e2el_ms is not None
    assert record.ttft_ms is not None
    assert record.tpot_ms * NS_PER_MS == pytest.approx(
        (record.e2el_ms - record.ttft_ms) * NS_PER_MS / tokens
    )


def test_an_answer_of_blanks_that_were_held_back_is_not_empty() -> None:
    """Eight tokens up to the limit, and no event has one: it has an end and no first token."""
    held = record_of(stream([], "length", completion_tokens=8))
    assert (held.status, held.ttft_ms, held.tpot_ms) == (OK, None, None)
    assert held.e2el_ms is not None
    assert record_of(stream([], "stop", completion_tokens=1)).status == "empty_answer"
    assert record_of(stream([], "length", completion_tokens=0)).status == "empty_answer"


def test_the_first_event_and_the_calls_have_their_sizes() -> None:
    record = record_of(stream(words(" ", "héllo", " you"), "stop", completion_tokens=4))
    assert (record.first_event_chars, record.first_event_bytes) == (5, 6)
    call = {
        "tool_calls": [
            {
                "index": 0,
                "id": "a",
                "function": {"name": "look", "arguments": '{"a": 1}'},
            }
        ]
    }
    record = record_of(stream([call], "tool_calls", completion_tokens=12))
    assert (record.call_chars, record.tool_calls, record.first_event_chars) == (
        12,
        1,
        None,
    )
