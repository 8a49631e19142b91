"""Streams that were held back or stretched on their way are named; speculative decoding and a fast
client are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes
from tests.analysis.figures.test_two_sources import (
    GAP_MS,
    REQUESTS,
    TOKENS,
    answers,
    bad,
    of,
)
from tests.make_records import MS, record

SERVER = {"url": "http://h", "backend": "llama-server", "slots": 4}


@pytest.mark.parametrize("together_ms", [0.0, 0.02])
def test_a_beginning_that_was_held_back_is_named(together_ms: float) -> None:
    """16 of 80 tokens come together in a third of 60 answers."""
    held = {"ttft_ms": 475.0, "itl_ms": [together_ms] * 15 + [GAP_MS] * (TOKENS - 16)}
    found = bad(of([*answers(20, **held), *answers(60)[20:]]))
    assert (
        "in 20 of 60 answers the first 16 events came together"
        in found["held_back_ratio"]
    )


def test_tokens_of_one_step_are_not_held_back() -> None:
    """Speculation sends four at a time, after the first one alone."""
    speculative = {"itl_ms": [90.0, *[0.0, 0.0, 0.0, 90.0] * 19, 0.0, 0.0]}
    assert "held_back_ratio" not in bad(of(answers(**speculative)))
    with_the_first = {"itl_ms": [*[0.0, 0.0, 0.0, 90.0] * 19, 0.0, 0.0, 0.0]}
    assert "held_back_ratio" not in bad(of(answers(**with_the_first)))


def test_ends_that_come_long_after_the_rest_are_named() -> None:
    """A guardrail reads the answer for 300 ms before its last sentence, in 6 of 20; a scheduler
    that stalls each answer once, at any place, does not."""
    late = {"itl_ms": [*[GAP_MS] * (TOKENS - 2), 300.0]}
    found = bad(of([*answers(6, **late), *answers()[6:]]))["held_back_ratio"]
    assert (
        "in 6 of 20 answers the last events came 300 ms after the others (median)"
        in found
    )
    stalled = []
    for number, each in enumerate(answers()):
        gaps_ms = [GAP_MS] * (TOKENS - 1)
        gaps_ms[(number * 4 + 2) % (TOKENS - 1)] = 300.0
        stalled.append(replace(each, itl_ms=gaps_ms))
    assert "held_back_ratio" not in bad(of(stalled))


def test_ends_within_several_long_gaps_in_a_row_are_not_held_back() -> None:
    """Prompts of others take four steps in a row, each of 50 ms, at any place: where an answer ends
    with the first of them, its last gap is long, and those before it are not."""
    chunked = []
    for number, each in enumerate(answers()):
        gaps_ms = [GAP_MS] * (TOKENS - 1)
        begin = TOKENS - 2 - number % 20
        for place in range(max(0, begin), min(TOKENS - 1, begin + 4)):
            gaps_ms[place] = 5 * GAP_MS
        chunked.append(replace(each, itl_ms=gaps_ms))
    several = [replace(each, request_id=f"x{each.request_id}") for each in chunked]
    assert "held_back_ratio" not in bad(of([*chunked, *several]))


def test_ends_that_wait_for_the_prompts_of_others_are_not_held_back() -> None:
    """Two users in step: the prompt of one takes 275 ms, between the last two tokens of the
    other."""
    gaps_ms = [*[GAP_MS] * (TOKENS - 2), 275.0]
    made = []
    for number, each in enumerate(answers()):
        start_ms = number * round(sum(gaps_ms))
        made.append(_at(each, start_ms, gaps_ms))
    assert "held_back_ratio" not in bad(of(made))


def _at(row: RequestRecord, start_ms: int, gaps_ms: list[float]) -> RequestRecord:
    """The answer at another time, 275 ms before its first token."""
    first_ns = (start_ms + 275) * MS
    last_ns = first_ns + round(sum(gaps_ms) * MS)
    return replace(
        row,
        started_mono_ns=start_ms * MS,
        first_token_mono_ns=first_ns,
        last_token_mono_ns=last_ns,
        ended_mono_ns=last_ns,
        ttft_ms=275.0,
        e2el_ms=275.0 + sum(gaps_ms),
        itl_ms=gaps_ms,
    )


def test_what_paces_a_stream_is_not_known_without_the_servers_times() -> None:
    """The statement about other programs then has no ✓."""
    (check,) = [
        check
        for check in of(answers()).verdict.checks
        if check.name == "stretched_stream_ratio"
    ]
    assert check.ok
    assert check.mark == "?"
    assert check.is_main


def test_streams_that_take_longer_than_the_server_are_named() -> None:
    took_ms = GAP_MS * (TOKENS - 1)
    stretched = bad(of(answers(server_prompt_ms=95.0, server_predict_ms=took_ms / 2)))
    assert (
        f"took {took_ms:.1f} ms from the first token to the last, the server {took_ms / 2:.1f} ms"
        in stretched["stretched_stream_ratio"]
    )
    assert bad(of(answers(server_prompt_ms=95.0, server_predict_ms=took_ms - 4))) == {}


def test_streams_that_are_delayed_by_different_times_are_named() -> None:
    """Half of them take 200 ms longer than the server, half 200 ms less: the means agree. Where the
    server's time includes the step of a token that ends the answer, nothing is apart."""
    own_ms = GAP_MS * (TOKENS - 1)
    rows = answers(server_prompt_ms=95.0)
    apart = []
    for number, row in enumerate(rows):
        server_ms = own_ms + (200.0 if number % 2 else -200.0)
        apart.append(replace(row, server_predict_ms=server_ms))
    found = of(apart)
    text = bad(found)["stretched_stream_ratio"]
    assert "apart by 200.0 ms in single answers (median)" in text
    assert found.verdict.words == ["BLURRED"]

    ended = answers(
        server_prompt_ms=95.0,
        server_predict_ms=GAP_MS * TOKENS,
        output_tokens=TOKENS + 1,
        max_tokens=2 * TOKENS,
        finish_reason="stop",
    )
    assert "stretched_stream_ratio" not in bad(of(ended))


@pytest.mark.parametrize(
    ("share", "what"), [(0.5, "ms for them"), (3.0, "something waited for tokens")]
)
def test_streams_are_held_against_vllms_own_times(share: float, what: str) -> None:
    """The server took half of the time, or three times as long, though each token has an event.
    Histograms of more requests than ours, and tokens without an event, prove nothing."""
    took_ms = GAP_MS * (TOKENS - 1)
    vllm = {"url": "http://h", "backend": "vllm"}

    def found(own_ms: float, requests: int = 20, **changed: Any) -> dict[str, str]:
        times = ServerTimes(requests, *[0.0] * 4, decode_ms=requests * own_ms)
        tokens = requests * changed.get("output_tokens", TOKENS)
        counted = ServerCounters(requests=requests, output_tokens=tokens, times=times)
        return bad(of(answers(**changed), targets=[vllm], counters=counted))

    text = found(share * took_ms)["stretched_stream_ratio"]
    assert f"took {took_ms:.1f} ms" in text
    assert what in text
    assert "stretched_stream_ratio" not in found(took_ms + 4)
    assert "stretched_stream_ratio" not in found(share * took_ms, requests=24)
    if share > 1:
        hidden = found(share * took_ms, output_tokens=2 * TOKENS)
        assert "stretched_stream_ratio" not in hidden


def test_a_first_event_before_its_token_is_named_by_the_servers_time() -> None:
    """A gateway sends the first event when the prompt begins, behind a queue that hides it: 150 of
    2100 ms from it to the last event are no time of vLLM's decoding, and lie before the second."""
    own_ms = GAP_MS * (TOKENS - 1)
    gaps_ms = [GAP_MS + 150.0, *[GAP_MS] * (TOKENS - 2)]
    rows = []
    for number, each in enumerate(answers(ttft_ms=2000.0)):
        first_ns = (2500 * number + 2000) * MS
        last_ns = first_ns + round(sum(gaps_ms)) * MS
        changed = {"first_token_mono_ns": first_ns, "last_token_mono_ns": last_ns}
        ends = {"ended_mono_ns": last_ns, "e2el_ms": 2000.0 + sum(gaps_ms)}
        rows.append(replace(each, itl_ms=gaps_ms, **changed, **ends))
    times = ServerTimes(REQUESTS, *[0.0] * 4, decode_ms=REQUESTS * own_ms)
    counted = ServerCounters(
        requests=REQUESTS, output_tokens=REQUESTS * TOKENS, times=times
    )
    vllm = {"url": "http://h", "backend": "vllm"}
    found = bad(of(rows, targets=[vllm], counters=counted))
    assert "before the second event" in found["early_first_ratio"]
    assert "stretched_stream_ratio" not in found


@pytest.mark.parametrize("is_invented", [False, True])
def test_first_gaps_and_the_servers_time_are_compared_in_each_answer(
    is_invented: bool,
) -> None:
    """In half of the answers the first gap is 100 ms longer. Something invents their first events,
    or they waited for the prompts of others, which is the server's own time, and what took 60 ms
    longer are other answers: in the mean both are much of the 30 or 50 ms."""
    own_ms = GAP_MS * (TOKENS - 1)
    rows = []
    for number, each in enumerate(answers(server_prompt_ms=95.0)):
        gaps_ms = [GAP_MS] * (TOKENS - 1)
        server_ms = own_ms
        if number % 2:
            gaps_ms[0] += 100.0
            server_ms += 0.0 if is_invented else 100.0
        elif not is_invented:
            for place in range(TOKENS // 2, TOKENS - 1):
                gaps_ms[place] += 60.0 / (TOKENS - 1 - TOKENS // 2)
        rows.append(
            replace(_at(each, 5000 * number, gaps_ms), server_predict_ms=server_ms)
        )
    found = bad(of(rows))
    assert ("early_first_ratio" in found) is is_invented


def test_time_before_the_first_token_is_judged_against_ttft() -> None:
    """80 of 180 ms of TTFT are nobody's: 4 % of E2EL."""
    rows = [
        _proxied(row)
        for row in answers(
            ttft_ms=180.0,
            server_prompt_ms=95.0,
            server_predict_ms=GAP_MS * (TOKENS - 1),
        )
    ]
    assert "of the mean TTFT" in bad(of(rows, targets=[SERVER]))["unexplained_ratio"]


def test_generated_tokens_that_were_not_sent_are_the_servers_time() -> None:
    """llama-server sends no blanks before JSON: 10 of 90 tokens, and a tenth of its time, are
    before the first event. A proxy that holds the first token back as long sends all 90."""
    own_ms = GAP_MS * (TOKENS + 9)
    times = {
        "ttft_ms": 345.0,
        "server_prompt_ms": 95.0,
        "server_predict_ms": own_ms,
        "max_tokens": 200,
    }
    hidden = [_proxied(row, 345) for row in answers(**times, output_tokens=TOKENS + 10)]
    found = of(hidden, targets=[SERVER])
    assert "unexplained_ratio" not in bad(found)
    (text,) = [
        check.text
        for check in found.verdict.checks
        if check.name == "unexplained_ratio"
    ]
    assert "are of tokens that the server generated before its first event" in text

    # vLLM's parser of tool calls: 90 tokens in 30 events
    called = [replace(row, token_events=TOKENS // 3) for row in hidden]
    assert "unexplained_ratio" not in bad(of(called, targets=[SERVER]))

    held = [_proxied(row, 345) for row in answers(**times)]
    assert "a proxy" in bad(of(held, targets=[SERVER]))["unexplained_ratio"]


@pytest.mark.parametrize(
    ("form", "where_ms", "is_known"),
    [("grammar", 84.0, False), ("grammar", 5.0, True), (None, 84.0, True)],
)
def test_time_before_the_prompt_may_be_the_preparation_of_a_form(
    form: str | None, where_ms: float, is_known: bool
) -> None:
    """80 ms that nobody explains, before the headers or after them."""
    times = {
        "ttft_ms": 180.0,
        "server_prompt_ms": 95.0,
        "server_predict_ms": GAP_MS * (TOKENS - 1),
        "answer_form": form,
    }
    rows = [replace(_proxied(row), queue_ms=where_ms) for row in answers(**times)]
    found = of(rows, targets=[SERVER])
    (check,) = [
        check for check in found.verdict.checks if check.name == "unexplained_ratio"
    ]
    assert check.ok is not is_known
    assert ("a proxy" in check.text) is is_known
    assert ("also prepares the form" in check.text) is not is_known


def _proxied(row: RequestRecord, ttft_ms: int = 180) -> RequestRecord:
    """The answer with its first token this long after its start."""
    first_ns = row.started_mono_ns + ttft_ms * MS
    last_ns = first_ns + round(GAP_MS * (TOKENS - 1)) * MS
    e2el_ms = ttft_ms + GAP_MS * (TOKENS - 1)
    return replace(
        row,
        first_token_mono_ns=first_ns,
        last_token_mono_ns=last_ns,
        ended_mono_ns=last_ns,
        e2el_ms=e2el_ms,
        queue_ms=5.0,
    )


def test_tokens_generated_before_the_first_event_are_explained() -> None:
    """80 of 180 ms of TTFT are the server's own: it generated eight tokens of markup first. The
    same time without such tokens is nobody's."""
    own_ms = GAP_MS * (TOKENS - 1)
    rows = [
        _proxied(row)
        for row in answers(
            ttft_ms=180.0, server_prompt_ms=95.0, server_predict_ms=own_ms + 80
        )
    ]
    server = {"url": "http://h", "backend": "llama-server", "slots": 4}
    hidden = [
        replace(row, output_tokens=TOKENS + 8, finish_reason="tool_calls")
        for row in rows
    ]
    assert "unexplained_ratio" not in bad(of(hidden, targets=[server]))
    assert "unexplained_ratio" in bad(of(rows, targets=[server]))


def test_answers_that_a_time_limit_ended_are_named() -> None:
    """Answers of 8 to 79 tokens, 25 ms apart, all of which say that they ended by themselves: a
    limit of 1 s ends half of them. Uncut ones, answers of one length, and many equal texts are no
    such thing."""

    def ended(number: int, tokens: int, **changed: Any) -> RequestRecord:
        row = record(number, start_ms=2500.0 * number, gaps_ms=(25.0,) * (tokens - 1))
        return replace(
            row,
            finish_reason="stop",
            output_sha256=f"o{number}",
            prompt_sha256=f"p{number}",
            **changed,
        )

    lengths = [8 + 7 * number % 72 for number in range(60)]
    cut = [ended(number, min(41, length)) for number, length in enumerate(lengths)]
    found = bad(of(cut))["clipped_answer_ratio"]
    assert (
        "33 answers of 60 ended 975 to 1000 ms after their first token, the longest of all: a time limit ended them"
        in found
    )
    assert "clipped_answer_ratio" not in bad(
        of([ended(number, length) for number, length in enumerate(lengths)])
    )
    assert "clipped_answer_ratio" not in bad(
        of([ended(number, 41) for number in range(60)])
    )
    canned = [
        replace(row, output_sha256="refused") if row.token_events == 41 else row
        for row in cut
    ]
    assert "clipped_answer_ratio" not in bad(of(canned))


def test_answers_that_a_limit_of_characters_ended_are_named() -> None:
    """Answers of 8 to 79 tokens of 3 to 6 characters, cut after 200 characters: as many end there
    as nowhere else, after different times. Whole answers are no such thing."""

    def ended(number: int, tokens: int, most: int) -> RequestRecord:
        of_token = 3 + number % 4
        tokens = min(tokens, most // of_token)
        row = record(number, start_ms=2500.0 * number, gaps_ms=(25.0,) * (tokens - 1))
        return replace(
            row,
            finish_reason="stop",
            max_tokens=400,
            output_chars=of_token * tokens,
            output_sha256=f"o{number}",
            prompt_sha256=f"p{number}",
        )

    lengths = [8 + 7 * number % 72 for number in range(60)]
    cut = [ended(number, length, 200) for number, length in enumerate(lengths)]
    text = bad(of(cut))["clipped_answer_ratio"]
    assert "characters, the most of all: a limit of characters ended them" in text
    all_cut = [ended(number, 79, 200) for number in range(60)]
    text = bad(of(all_cut))["clipped_answer_ratio"]
    assert "60 answers of 60 have 198 to 200 characters" in text
    # 40 to 45 tokens: no two times as long, as the characters are
    alike = []
    for number in range(60):
        tokens = 40 + number % 6
        row = ended(number, tokens, 9999)
        alike.append(replace(row, output_chars=200 - number % 5))
    text = bad(of(alike))["clipped_answer_ratio"]
    assert "60 answers of 60 have 196 to 200 characters" in text
    one_form = [replace(row, output_chars=200, output_bytes=200) for row in all_cut]
    assert "clipped_answer_ratio" not in bad(of(one_form))
    whole = [ended(number, length, 9999) for number, length in enumerate(lengths)]
    assert "clipped_answer_ratio" not in bad(of(whole))
