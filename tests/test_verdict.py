"""The verdict: each word for its reason."""

from __future__ import annotations

from typing import Any

import pytest

from llama_load.metrics.summary import totals
from llama_load.metrics.verdict import LIMITS, Verdict, WorkerHealth, judge
from llama_load.record import RequestRecord
from tests.records import failed, record, table

WELL = WorkerHealth("local", 1.0, 2.0, 0.2)


def verdict(*records: RequestRecord, planned: int | None = None, health: WorkerHealth = WELL, **more: Any) -> Verdict:
    rows = table(*records)
    return judge(rows, totals(rows), len(records) if planned is None else planned, [health], **more)


def bad(found: Verdict) -> list[str]:
    return [check.name for check in found.checks if not check.ok]


def test_a_clean_run_is_valid() -> None:
    found = verdict(*(record(i) for i in range(5)))
    assert (found.word, bad(found)) == ("VALID", [])


@pytest.mark.parametrize(
    ("word", "check", "found"),
    [
        ("INCOMPLETE", "missing_records", lambda: verdict(record(), planned=2)),
        ("INCOMPLETE", "missing_records", lambda: verdict(record(), record(1, status="cancelled"))),
        ("CLIENT-BOUND", "own_delay_p99_ms", lambda: verdict(record(own_delay_ms=9.0))),
        ("CLIENT-BOUND", "loop_lag_p99_ms", lambda: verdict(record(), health=WorkerHealth("w", 7.0, 9.0, 0.1))),
        ("CLIENT-BOUND", "core_busy", lambda: verdict(record(), health=WorkerHealth("w", 1.0, 1.0, 0.95))),
        ("CLIENT-BOUND", "stolen_ratio", lambda: verdict(record(), health=WorkerHealth("w", 1.0, 1.0, 0.1, 0.2))),
        ("NOT COMPARABLE", "failure_ratio", lambda: verdict(record(), failed(1))),
        ("NOT COMPARABLE", "cached_prompt_ratio", lambda: verdict(record(cached_tokens=9))),
        ("NOT COMPARABLE", "cut_by_context_ratio", lambda: verdict(record(max_tokens=64))),
        ("NOT COMPARABLE", "buffered_ratio", lambda: verdict(record(gaps_ms=(0,) * 15, merged_events=15))),
        ("BLURRED", "merged_ratio", lambda: verdict(record(merged_events=1))),
    ],
)
def test_each_fault_has_its_word(word: str, check: str, found: Any) -> None:
    assert found().word == word
    assert check in bad(found())
    assert LIMITS[check].word == word


def test_the_first_word_of_the_order_wins() -> None:
    assert verdict(failed(), failed(1), planned=3).word == "INCOMPLETE"


def test_an_interrupted_run_without_a_planned_number_is_incomplete() -> None:
    rows = table(record())
    assert judge(rows, totals(rows), None, [WELL], interrupted=True).word == "INCOMPLETE"
    assert judge(rows, totals(rows), None, [WELL]).word == "VALID"


def test_cached_prompts_that_were_asked_for_are_no_fault() -> None:
    assert verdict(record(cached_tokens=9), cache_meant=True).word == "VALID"


def test_the_head_of_a_chat_template_in_the_cache_is_no_fault() -> None:
    assert verdict(record(prompt_tokens=40, cached_tokens=6)).word == "VALID"


def test_a_shared_template_head_does_not_count_as_a_cached_prompt() -> None:
    """Head of 25 tokens, prompt of 35 in all: 25 cached is the head, 34 is the prompt."""
    assert verdict(record(prompt_tokens=35, cached_tokens=25), head_tokens=25).word == "VALID"
    assert verdict(record(prompt_tokens=35, cached_tokens=34), head_tokens=25).word == "NOT COMPARABLE"


def test_a_run_that_measured_nothing_is_incomplete_and_fails_its_gate() -> None:
    rows = table(record(status="cancelled", ttft_ms=None, itl_ms=[]))
    figures = totals(rows)
    assert judge(rows, figures, None, [WELL]).word == "INCOMPLETE"
    assert (figures.failure_ratio, figures.max_output_tokens_per_s, figures.total_input_tokens) == (None, None, None)


def test_a_finish_by_length_is_a_full_context_only_where_that_is_known() -> None:
    """Without max_tokens llama-server goes on to the context's end; counted events are fewer than tokens."""
    assert verdict(record(max_tokens=None), length_means_full=True).word == "NOT COMPARABLE"
    assert verdict(record(max_tokens=None)).word == "VALID"
    assert verdict(record(max_tokens=64, token_source="events")).word == "VALID"


def test_a_run_in_which_everything_failed_has_a_verdict() -> None:
    assert verdict(failed(), failed(1)).word == "NOT COMPARABLE"


def test_user_space_stamps_are_told_without_changing_the_word() -> None:
    found = verdict(record(clock_source="user"))
    assert found.word == "VALID"
    assert any("user space" in check.text for check in found.checks)
