"""Streams that were held back or stretched on their way are named; speculative decoding and a fast client are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llama_load.observed.record import RequestRecord
from tests.make_records import MS, record
from tests.metrics.test_two_sources import GAP_MS, TOKENS, answers, bad, of

SERVER = {"url": "http://h", "backend": "llama-server", "slots": 4}


@pytest.mark.parametrize("together_ms", [0.0, 0.02])
def test_a_beginning_that_was_held_back_is_named(together_ms: float) -> None:
    """16 of 80 tokens come together in a third of 60 answers."""
    held = {"ttft_ms": 475.0, "itl_ms": [together_ms] * 15 + [GAP_MS] * (TOKENS - 16)}
    found = bad(of([*answers(20, **held), *answers(60)[20:]]))
    assert "in 20 of 60 answers the first 16 events came together" in found["held_back_ratio"]


def test_tokens_of_one_step_are_not_held_back() -> None:
    """Speculation sends four at a time, after the first one alone."""
    speculative = {"itl_ms": [90.0, *[0.0, 0.0, 0.0, 90.0] * 19, 0.0, 0.0]}
    assert "held_back_ratio" not in bad(of(answers(**speculative)))
    with_the_first = {"itl_ms": [*[0.0, 0.0, 0.0, 90.0] * 19, 0.0, 0.0, 0.0]}
    assert "held_back_ratio" not in bad(of(answers(**with_the_first)))


def test_streams_that_take_longer_than_the_server_are_named() -> None:
    took_ms = GAP_MS * (TOKENS - 1)
    stretched = bad(of(answers(server_prompt_ms=95.0, server_predict_ms=took_ms / 2)))
    assert (
        f"took {took_ms:.1f} ms from the first token to the last, the server {took_ms / 2:.1f} ms"
        in stretched["stretched_stream_ratio"]
    )
    assert bad(of(answers(server_prompt_ms=95.0, server_predict_ms=took_ms - 4))) == {}


def test_time_before_the_first_token_is_judged_against_ttft() -> None:
    """80 of 180 ms of TTFT are nobody's: 4 % of E2EL."""
    rows = [_proxied(row) for row in answers(ttft_ms=180.0, server_prompt_ms=95.0, server_predict_ms=GAP_MS * (TOKENS - 1))]
    assert "of the mean TTFT" in bad(of(rows, targets=[SERVER]))["unexplained_ratio"]


def test_tokens_that_the_server_generated_and_did_not_send_are_its_own_time() -> None:
    """llama-server sends no blanks before JSON: 10 of 90 tokens, and a tenth of its time, are before the first event. A proxy that
    holds the first token back as long sends all 90."""
    own_ms = GAP_MS * (TOKENS + 9)
    times = {"ttft_ms": 345.0, "server_prompt_ms": 95.0, "server_predict_ms": own_ms, "max_tokens": 200}
    hidden = [_proxied(row, 345) for row in answers(**times, output_tokens=TOKENS + 10)]
    found = of(hidden, targets=[SERVER])
    assert "unexplained_ratio" not in bad(found)
    (text,) = [check.text for check in found.verdict.checks if check.name == "unexplained_ratio"]
    assert "are of tokens that the server generated and did not send" in text

    held = [_proxied(row, 345) for row in answers(**times)]
    assert "a proxy" in bad(of(held, targets=[SERVER]))["unexplained_ratio"]


@pytest.mark.parametrize(("form", "where_ms", "is_known"), [("grammar", 84.0, False), ("grammar", 5.0, True), (None, 84.0, True)])
def test_time_before_the_prompt_may_be_the_preparation_of_a_form(form: str | None, where_ms: float, is_known: bool) -> None:
    """80 ms that nobody explains, before the headers or after them."""
    times = {"ttft_ms": 180.0, "server_prompt_ms": 95.0, "server_predict_ms": GAP_MS * (TOKENS - 1), "answer_form": form}
    rows = [replace(_proxied(row), queue_ms=where_ms) for row in answers(**times)]
    found = of(rows, targets=[SERVER])
    (check,) = [check for check in found.verdict.checks if check.name == "unexplained_ratio"]
    assert check.ok is not is_known
    assert ("a proxy" in check.text) is is_known
    assert ("also prepares the form" in check.text) is not is_known


def _proxied(row: RequestRecord, ttft_ms: int = 180) -> RequestRecord:
    """The answer with its first token this long after its start."""
    first_ns = row.started_mono_ns + ttft_ms * MS
    last_ns = first_ns + round(GAP_MS * (TOKENS - 1)) * MS
    e2el_ms = ttft_ms + GAP_MS * (TOKENS - 1)
    return replace(
        row, first_token_mono_ns=first_ns, last_token_mono_ns=last_ns, ended_mono_ns=last_ns, e2el_ms=e2el_ms, queue_ms=5.0
    )


def test_tokens_that_the_server_generated_before_the_first_event_are_explained() -> None:
    """80 of 180 ms of TTFT are the server's own: it generated eight tokens of markup first. The same time without such tokens
    is nobody's."""
    own_ms = GAP_MS * (TOKENS - 1)
    rows = [_proxied(row) for row in answers(ttft_ms=180.0, server_prompt_ms=95.0, server_predict_ms=own_ms + 80)]
    server = {"url": "http://h", "backend": "llama-server", "slots": 4}
    hidden = [replace(row, output_tokens=TOKENS + 8, finish_reason="tool_calls") for row in rows]
    assert "unexplained_ratio" not in bad(of(hidden, targets=[server]))
    assert "unexplained_ratio" in bad(of(rows, targets=[server]))


def test_answers_that_a_time_limit_ended_are_named() -> None:
    """Answers of 8 to 79 tokens, 25 ms apart, all of which say that they ended by themselves: a limit of 1 s ends half of them.
    Uncut ones, answers of one length, and many equal texts are no such thing."""

    def ended(number: int, tokens: int, **changed: Any) -> RequestRecord:
        row = record(number, start_ms=2500.0 * number, gaps_ms=(25.0,) * (tokens - 1))
        return replace(row, finish_reason="stop", output_sha256=f"o{number}", prompt_sha256=f"p{number}", **changed)

    lengths = [8 + 7 * number % 72 for number in range(60)]
    cut = [ended(number, min(41, length)) for number, length in enumerate(lengths)]
    found = bad(of(cut))["clipped_answer_ratio"]
    assert "33 answers of 60 ended 975 to 1000 ms after their first token, the longest of all: a time limit ended them" in found
    assert "clipped_answer_ratio" not in bad(of([ended(number, length) for number, length in enumerate(lengths)]))
    assert "clipped_answer_ratio" not in bad(of([ended(number, 41) for number in range(60)]))
    canned = [replace(row, output_sha256="refused") if row.token_events == 41 else row for row in cut]
    assert "clipped_answer_ratio" not in bad(of(canned))
