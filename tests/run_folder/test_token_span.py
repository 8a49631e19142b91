"""Tokens between the first and the last event of an answer: what TPOT divides by, where the truth
is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from llama_load.analysis.results.results import Results
from llama_load.run_folder.arithmetic.token_span import (
    AnswerCounts,
    all_in_events,
    end_tokens_counted,
    end_tokens_unknown,
    tokens_between,
)
from llama_load.run_folder.observed.record import RequestRecord
from tests.analysis.figures.test_two_sources import answers, bad, of
from tests.make_records import MS, record, table

GAP_MS = 10.0


def between(**changed: Any) -> float:
    return float(
        tokens_between(
            AnswerCounts(**{"tokens": 100.0, "events": 100.0, "chars": 400.0} | changed)
        ).likely
    )


def test_whether_the_end_token_is_in_the_last_event_is_not_known() -> None:
    """10 events of two tokens: 18 tokens are between them, or 17 and the end."""
    counts = AnswerCounts(tokens=20.0, events=10.0, chars=80.0, ends_itself=True)
    span = tokens_between(counts)
    assert (span.least, span.likely, span.most) == (17, 18, 18)
    assert tokens_between(replace(counts, ends_itself=False)).least == 18


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, 99),  # one token an event
        (
            {"events": 99, "ends_itself": True},
            98,
        ),  # the end token came after the last event
        # hidden reasoning of 8 tokens, and the end
        ({"events": 91, "reasoning": 8, "ends_itself": True}, 90),
        ({"events": 70, "reasoning": 30, "chars": 280}, 69),
        ({"reasoning": 60}, 99),  # a gateway that puts the reasoning into the text
        ({"events": 99, "reasoning": 99, "ends_itself": True}, 98),
        # in the text, in events of two tokens: 8 characters each
        ({"events": 50, "reasoning": 50, "chars": 400}, 98),
        (
            {"events": 50, "reasoning": 50, "chars": 200},
            49,
        ),  # hidden: 4 characters an event
        ({"events": 20}, 95),  # events of five tokens: the first has five
        # 60 in the first event: the rest says too little
        ({"events": 41, "first_chars": 240}, np.nan),
        (
            {"events": 61, "first_chars": 160},
            60,
        ),  # 40 tokens in the first event, then one by one
        ({"events": 40, "accepted": 60}, 99),  # drafts come after the first token
        ({"events": 90, "blanks": 10}, 89),
        (
            {"tokens": 10, "events": 10, "blanks": 1},
            9,
        ),  # a blank of a proxy is none of them
        ({"tokens": 2, "events": 1, "blanks": 1}, np.nan),
        ({"tokens": 60, "events": 1}, np.nan),
        ({"tokens": 10, "events": 12}, 9),  # tokens cut into pieces
        # usage came with every event
        ({"tokens": 11, "events": 4, "chars": 11, "first_tokens": 2}, 9),
        ({"tokens": 100, "events": 40, "first_tokens": 61, "reasoning": 60}, 39),
        (
            {"events": 91, "wide": 27, "first_wide": 0},
            99,
        ),  # characters of several tokens
        # one of these tokens may have ended the answer
        ({"events": 91, "wide": 27, "first_wide": 0, "may_have_end": True}, 98),
        ({"tokens": np.nan}, np.nan),
    ],
)
def test_tokens_between_the_first_and_the_last_event(
    changed: dict[str, Any], expected: float
) -> None:
    assert between(**changed) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("beyond", [0, 1, 2])
@pytest.mark.parametrize(
    "more",
    [{}, {"ends_itself": True}, {"ends_itself": True, "blanks": 1.0}, {"wide": 40.0}],
)
def test_the_short_way_gives_the_same(beyond: int, more: dict[str, Any]) -> None:
    counts = AnswerCounts(tokens=50.0 + beyond, events=50.0, chars=200.0, **more)
    short = all_in_events(counts)
    assert short is None or short == float(tokens_between(counts).likely)
    assert (short is None) == (
        beyond > 1
        or (beyond == 1 and (not more.get("ends_itself") or "blanks" in more))
    )


def streamed(number: int, events: int, *, tokens: int, **changed: Any) -> RequestRecord:
    """An answer with an event every 10 ms, 4 characters each."""
    own = record(number, start_ms=2000.0 * number, gaps_ms=(GAP_MS,) * (events - 1))
    fields = {
        "output_tokens": tokens,
        "output_chars": 4 * events,
        "output_bytes": 4 * events,
        "max_tokens": 400,
    }
    more = {
        "prompt_sha256": f"p{number}",
        "output_sha256": f"o{number}",
        "finish_reason": "stop",
        "prompt_chars": 40,
    }
    return replace(own, **fields | more | changed)


def mean_tpot_ms(found: Results) -> float | None:
    return found.total.distributions["tpot"].mean


@pytest.mark.parametrize("hidden", [8, 30, 60])
def test_hidden_reasoning_is_not_in_the_time_that_tpot_divides(hidden: int) -> None:
    """vLLM's formula gives 9.20 ms for 8 % hidden tokens, 6.90 for 30 %; a token takes 10 ms."""
    found = of(
        [
            streamed(n, 100 - hidden, tokens=101, reasoning_tokens=hidden)
            for n in range(20)
        ]
    )
    assert mean_tpot_ms(found) == pytest.approx(GAP_MS)
    assert found.total.by_vllm["tpot"].mean == pytest.approx(
        GAP_MS * (99 - hidden) / 100
    )
    assert bad(found) == {}
    notes = {check.name: check.text for check in found.verdict.checks}
    assert "where it is 10.00 ms" in notes["vllm_mean_tpot_ms"]


def test_reasoning_in_the_text_leaves_tpot_as_it_is() -> None:
    found = of([streamed(n, 100, tokens=101, reasoning_tokens=60) for n in range(20)])
    assert mean_tpot_ms(found) == pytest.approx(GAP_MS)
    assert found.total.distributions["tpot"].count == 20
    assert bad(found) == {}


def call(number: int, events: int, tokens: int, **changed: Any) -> RequestRecord:
    """A tool call and nothing else."""
    only = {
        "output_chars": 0,
        "output_bytes": 0,
        "output_sha256": None,
        "call_chars": 4 * events,
        "tool_calls": 1,
    }
    return streamed(
        number, events, tokens=tokens, finish_reason="tool_calls", **only | changed
    )


def test_markup_of_tool_calls_is_known_from_calls_of_different_lengths() -> None:
    """12 tokens around calls of 20 to 96 tokens: vLLM's formula divides by them, too."""
    found = of([call(n, 20 + 4 * n, 20 + 4 * n + 12 + n % 2) for n in range(20)])
    assert mean_tpot_ms(found) == pytest.approx(GAP_MS)
    assert bad(found) == {}
    assert (
        "the markup of the calls"
        in {check.name: check.text for check in found.verdict.checks}["tool_call_gap"]
    )


@pytest.mark.parametrize("length", [0, 4])
def test_a_share_of_the_tokens_of_tool_calls_makes_tpot_uncertain(length: int) -> None:
    """1.4 times the tokens: a wrong count, or events of several tokens. In calls of one length it
    may be markup, too."""
    rows = [call(n, 40 + length * n, round(1.4 * (40 + length * n))) for n in range(20)]
    assert bad(of(rows))["tpot_bounds_ratio"].startswith("mean TPOT is between 7.")


def test_the_servers_own_time_places_the_tokens_of_a_call() -> None:
    """60 tokens in 600 ms by the server's timings, of which 40 have an event: TPOT 10 ms."""
    rows = [
        call(n, 40, 61, server_predict_ms=600.0, token_source="timings")
        for n in range(20)
    ]
    found = of(rows)
    assert mean_tpot_ms(found) == pytest.approx(GAP_MS)
    assert bad(found) == {}


def test_a_text_before_a_call_has_its_markup_in_the_middle() -> None:
    rows = [
        replace(call(n, 40, 56), output_chars=80, output_bytes=80, call_chars=80)
        for n in range(20)
    ]
    assert "tpot_bounds_ratio" in bad(of(rows))


def test_what_stop_strings_hold_back_is_no_disagreement() -> None:
    """Of 100 tokens eight share an event with the next one, because each may begin the stop string;
    four are cut off, one ends."""
    rows = [streamed(n, 87, tokens=100, stop_bytes=4) for n in range(20)]
    assert "count_gap_ratio" not in bad(of(rows))
    assert "count_gap_ratio" in bad(
        of([replace(each, stop_bytes=None) for each in rows])
    )


def test_blanks_that_a_forced_form_holds_back_are_no_lost_events() -> None:
    """11 tokens, one event: the server's timings confirm the count."""
    form = answers(tokens=11, token_events=1, output_chars=11, output_bytes=11)
    one = [
        replace(each, answer_form="json_schema", server_predict_ms=50.0)
        for each in form
    ]
    assert "count_gap_ratio" not in bad(of(one))
    assert "count_gap_ratio" in bad(
        of([replace(each, answer_form=None) for each in one])
    )


def test_latencies_of_an_answer_that_began_with_blanks() -> None:
    """Ten tokens, 25 ms apart, the first a blank at 100 ms: text from 125 to 325 ms."""
    rows = [
        replace(
            record(n, start_ms=1000 * n, first_ms=125, gaps_ms=(25.0,) * 8),
            output_tokens=10, max_tokens=10, blank_events=1, first_blank_mono_ns=(1000 * n + 100) * MS,
        )
        for n in range(5)
    ]  # fmt: skip
    assert mean_tpot_ms(of(rows)) == pytest.approx(25.0)


@pytest.mark.parametrize("blanks", [0, 2])
def test_one_further_token_in_each_answer_of_wide_characters_ended_it(
    blanks: int,
) -> None:
    """Chinese answers of 20 to 60 tokens, each with a token more than events: the end token, not a
    character of two tokens."""
    rows = [
        record(
            number,
            gaps_ms=(20.0,) * (19 + 4 * number),
            output_tokens=21 + 4 * number + blanks,
            blank_events=blanks,
            output_chars=20 + 4 * number,
            output_bytes=3 * (20 + 4 * number),
            finish_reason="stop",
        )
        for number in range(10)
    ]
    assert end_tokens_counted(table(*rows)).all()
    some = [
        replace(row, output_tokens=row.output_tokens + number % 3)
        for number, row in enumerate(rows)
    ]
    assert not end_tokens_counted(table(*some)).any()


@pytest.mark.parametrize("has_end", [True, False])
def test_short_answers_of_wide_characters_have_bounds_for_tpot(has_end: bool) -> None:
    """Answers of 12 to 21 tokens with three emoji of three tokens each: the end token, if there is
    one, looks like a token of these. Of answers without emoji beside them, it is known."""
    rows = [
        record(
            number,
            start_ms=1000 * number,
            gaps_ms=(20.0,) * (5 + number),
            output_tokens=12 + number + has_end,
            output_chars=20 + 4 * number,
            output_bytes=29 + 4 * number,
            finish_reason="stop",
        )
        for number in range(10)
    ]
    assert end_tokens_unknown(table(*rows)).all()
    assert "tpot_bounds_ratio" in bad(of(rows))

    plain = [
        replace(
            row,
            request_id=f"plain {row.request_id}",
            output_tokens=row.token_events + has_end,
            output_bytes=row.output_chars,
        )
        for row in rows
    ]
    assert not end_tokens_unknown(table(*rows, *plain)).any()
    assert "tpot_bounds_ratio" not in bad(of([*rows, *plain]))


@pytest.mark.parametrize(
    ("first", "longest", "between"), [(25, 25, 35), (5, 25, 39), (15, 15, None)]
)
def test_tokens_without_an_event_are_in_the_event_that_is_as_long(
    first: int, longest: int, between: float | None
) -> None:
    """40 tokens in 36 events of five characters a token: the first has five of them, or the longest
    has. One of three tokens explains two of the four."""
    of = AnswerCounts(
        tokens=40.0,
        events=36.0,
        chars=35 * 5.0 + max(first, longest),
        first_chars=float(first),
        longest_chars=float(longest),
    )
    span = tokens_between(of)
    if between is None:
        assert float(span.unplaced) == 4
    else:
        assert (float(span.likely), float(span.unplaced)) == (between, 0)
