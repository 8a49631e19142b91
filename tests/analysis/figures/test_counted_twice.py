"""Two sources of a count that are one: chunks counted as tokens, cached tokens left out, a counter
that nobody compares."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from llama_load.analysis.checks.counter_sums import COMPARISONS
from llama_load.analysis.figures.text_density import shortage, shortage_of_turns
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes
from llama_load.run_folder.observed.speculation import Speculation
from tests.analysis.figures.test_two_sources import REQUESTS, TOKENS, answers, bad, of


def unstreamed(**changed: Any) -> list[RequestRecord]:
    """Answers in one body: no events, no latencies of tokens."""
    nothing = dict.fromkeys(
        ["first_token_mono_ns", "last_token_mono_ns", "ttft_ms", "tpot_ms"]
    )
    return answers(**nothing | {"itl_ms": [], "token_events": 0} | changed)


@pytest.mark.parametrize("confirmed", [False, True])
def test_chunks_that_a_gateway_counts_as_tokens_are_named(confirmed: bool) -> None:
    """480 of 2400 tokens: five tokens of 4 characters in each chunk, and usage says one. The
    server's own counter would confirm it."""
    rows = answers(
        output_tokens=16,
        token_events=16,
        max_tokens=200,
        finish_reason="stop",
        output_chars=320,
        output_bytes=320,
    )
    counters = ServerCounters(output_tokens=16 * REQUESTS) if confirmed else None
    found = bad(of(rows, counters=counters))
    assert ("uncounted_ratio" in found) is not confirmed
    if not confirmed:
        assert found["uncounted_ratio"].startswith("80% of the tokens were not counted")


def test_half_of_the_tokens_without_a_stream_are_named() -> None:
    assert "uncounted_ratio" in bad(
        of(unstreamed(output_tokens=TOKENS // 2, finish_reason="stop"))
    )
    assert "uncounted_ratio" not in bad(of(unstreamed()))


@pytest.mark.parametrize(
    "clean",
    [
        {"output_chars": 120, "output_bytes": 360},  # Chinese, 1.5 characters a token
        {"output_chars": 40, "output_bytes": 160},  # emoji of two tokens
        {"output_chars": 2 * TOKENS, "output_bytes": 2 * TOKENS},  # code
        {"output_chars": 260, "output_bytes": 480},  # German, Chinese and code
        {"output_chars": 6 * TOKENS, "output_bytes": 6 * TOKENS},  # long words
        {"output_chars": 250, "output_bytes": 500},  # Russian, 3 characters a token
        {"draft_tokens": 80, "draft_accepted": 50, "token_events": 30},
    ],
)
@pytest.mark.parametrize("make", [answers, unstreamed])
def test_texts_of_all_kinds_have_their_tokens(make: Any, clean: dict[str, int]) -> None:
    events = {"token_events": 0} if make is unstreamed else {}
    found = bad(of(make(**clean | events)))
    assert not {
        "uncounted_ratio",
        "uncounted_prompt_ratio",
        "count_gap_ratio",
        "tpot_bounds_ratio",
    } & set(found)


def test_one_answer_that_is_a_row_of_dashes_is_no_wrong_count() -> None:
    """64 characters in a token, in one of 20 answers; of the others a factor of two does not
    show."""
    rows = [
        replace(each, output_chars=200, output_bytes=200) if n == 3 else each
        for n, each in enumerate(answers())
    ]
    assert "uncounted_ratio" not in bad(of(rows))


def test_every_third_answer_counted_in_chunks_is_named() -> None:
    short = {"output_tokens": 16, "token_events": 16, "finish_reason": "stop"}
    rows = [
        replace(each, **short) if n % 3 == 0 else each
        for n, each in enumerate(answers())
    ]
    assert "uncounted_ratio" in bad(of(rows))


def test_prompt_tokens_without_the_cached_ones_are_named() -> None:
    """10,228 of 24,562, by an estimate that alone would expect a third."""
    rows = answers(
        prompt_tokens=511,
        planned_prompt_tokens=1228,
        cached_tokens=717,
        prompt_chars=4912,
    )
    found = bad(of(rows, tokenizer="estimate", cache_meant=True))
    assert "leaves out the 14340 cached ones" in found["uncounted_prompt_ratio"]
    clean = answers(
        prompt_tokens=1228,
        planned_prompt_tokens=1228,
        cached_tokens=717,
        prompt_chars=4912,
    )
    assert "uncounted_prompt_ratio" not in bad(
        of(clean, tokenizer="estimate", cache_meant=True)
    )


def counters(**changed: Any) -> ServerCounters:
    times = ServerTimes(REQUESTS, *[0.0] * 5)
    counts = {
        "requests": REQUESTS,
        "output_tokens": REQUESTS * TOKENS,
        "prompt_tokens": REQUESTS * 50,
        "cache_hits": 0,
    }
    return ServerCounters(**counts | {"times": times} | changed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt_tokens": 2 * REQUESTS * 50},
        {"output_tokens": REQUESTS * TOKENS // 2},
        {"cache_hits": REQUESTS * 25},
        {"speculation": Speculation(REQUESTS * 80, REQUESTS * 10)},
    ],
)
def test_every_counter_is_compared_with_the_sum_of_the_answers(
    wrong: dict[str, Any],
) -> None:
    rows = answers(draft_tokens=40, draft_accepted=10, server_predict_ms=25.0 * TOKENS)
    right = counters(speculation=Speculation(REQUESTS * 40, REQUESTS * 10))
    assert "counter_gap_ratio" not in bad(of(rows, counters=right))
    assert (
        "one of both is wrong"
        in bad(of(rows, counters=replace(right, **wrong)))["counter_gap_ratio"]
    )


def test_no_counter_is_read_without_being_compared() -> None:
    about = {"started_s", "read_s", "errors"}
    assert set(COMPARISONS) == {item.name for item in fields(ServerCounters)} - about
    assert all(row.judged_by or row.column for row in COMPARISONS.values())


def test_another_client_is_not_a_wrong_count() -> None:
    found = bad(
        of(
            answers(),
            counters=counters(
                requests=2 * REQUESTS, output_tokens=2 * REQUESTS * TOKENS
            ),
        )
    )
    assert "other_client_ratio" in found
    assert "counter_gap_ratio" not in found


def test_clean_texts_are_named_as_rarely_as_stated() -> None:
    """Characters per token of runs and of their answers differ by factors of 1.2 and 1.3 (standard
    deviations of the logarithm of 0.17 and 0.25): 0.5 % of clean runs are named at most, and 99 %
    of those whose chunks of three tokens count as one."""
    draws = np.random.default_rng(5)
    named = found = 0
    for _ in range(1000):
        usual = 4.0 * np.exp(draws.normal(0, 0.17))
        tokens = draws.integers(32, 400, 24).astype(float)
        chars = np.rint(tokens * usual * np.exp(draws.normal(0, 0.25, 24)))
        named += shortage(tokens, chars, chars).ratio > 0.02
        found += shortage(tokens / 3, chars, chars).ratio > 0.02
    assert named <= 5
    assert found >= 0.99 * 1000


def test_a_history_that_was_not_counted_shows_in_later_turns() -> None:
    """Twelve conversations of three turns, 400 tokens each, a template of 200: the history is
    dropped, or its answers have other characters per token than the questions."""
    names: list[str | None] = [f"c{number}" for number in range(12) for _ in range(3)]
    turns = np.tile([1.0, 2.0, 3.0], 12)
    tokens = 200.0 + 400.0 * turns
    chars = 1600.0 * turns
    dropped = np.full(36, 600.0)
    short = shortage_of_turns(names, turns, dropped, chars, chars)
    assert short is not None and set(turns[short.rows]) == {2.0, 3.0}
    assert short.expected == pytest.approx(tokens[turns > 1].sum())
    denser = np.where(turns > 1, 1.3 * chars, chars)
    assert shortage_of_turns(names, turns, tokens, denser, denser) is None
    few = slice(6)
    assert (
        shortage_of_turns(names[few], turns[few], dropped[few], chars[few], chars[few])
        is None
    )
