"""How a stream ends: every order and omission of what ends it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.answer_pipeline import exchange_of

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
TEXT = "text"
KNOWN = "known"
UNKNOWN = "unknown"
NOTHING = "nothing"
USAGE = "usage"
DONE = "done"
NOISE = "noise"


def chunk(text: str | None, finish: str | None) -> str:
    delta = {} if text is None else {"content": text}
    return json.dumps({"choices": [{"delta": delta, "finish_reason": finish}]})


EVENTS = {
    TEXT: [chunk(" a", None), chunk(" a", "null")],
    KNOWN: [chunk(None, "stop"), chunk("", "MAX_TOKENS"), chunk(None, "eos_token")],
    UNKNOWN: [chunk(None, "load"), chunk("", "7")],
    NOTHING: [chunk(None, "null"), chunk("", "None"), chunk(None, "")],
    USAGE: ['{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}'],
    DONE: ["[DONE]", "[DONE] "],
    NOISE: ["", ": comment", '{"type":"ping"}', "null", "{}", '{"choices":[]}'],
}
an_event = st.sampled_from(sorted(EVENTS)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.sampled_from(EVENTS[kind]))
)


def is_complete(kinds: list[str], *, has_body_end: bool, ends_by_reason: bool) -> bool:
    """Two signs of three, by what stands in the table of docs/targets.md."""
    after_text = kinds[len(kinds) - kinds[::-1].index(TEXT) :]
    marks = (DONE in kinds) + (USAGE in after_text)
    last_reason = [kind for kind in kinds if kind in (KNOWN, UNKNOWN)][-1:]
    has_reason = KNOWN in after_text and last_reason == [KNOWN]
    if has_reason:
        return marks > 0 or has_body_end
    if last_reason:
        return marks > 0
    return has_body_end and marks > ends_by_reason


@given(st.lists(an_event, min_size=1, max_size=9), st.booleans(), st.booleans())
def test_two_signs_of_three_end_an_answer_in_any_order(
    events: list[tuple[str, str]], has_body_end: bool, ends_by_reason: bool
) -> None:
    """Text comes first; then in any order more of it, finish reasons, usage, `[DONE]` and what
    means nothing. A reason that is not known needs a mark beside it, and is one with it."""
    events = [(TEXT, EVENTS[TEXT][0]), *events]
    kinds = [kind for kind, _ in events]
    reads = [HEAD]
    for _, data in events:
        block = f"data: {data}\n\n".encode()
        reads.append(b"%x\r\n%b\r\n" % (len(block), block))
    if has_body_end:
        reads.append(b"0\r\n\r\n")

    exchange, reader = exchange_of(reads)
    reader.settle(exchange)
    failure = reader.failure(exchange, ends_by_reason=ends_by_reason)
    assert len(reader.token_ns) == kinds.count(TEXT)
    complete = is_complete(
        kinds, has_body_end=has_body_end, ends_by_reason=ends_by_reason
    )
    assert (failure is None) == complete, failure
    if failure is not None:
        assert failure[0] == "cut_off"
