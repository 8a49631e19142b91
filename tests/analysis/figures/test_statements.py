"""The checks by the six statements: what holds, what fails with limit and remedy, and which
evidence is missing."""

from __future__ import annotations

from llama_load.analysis.checks.statements import arranged, remarks
from llama_load.analysis.figures.check import information, limited
from llama_load.analysis.figures.spoiled import (
    ALL,
    COMPARISON,
    COUNTS,
    E2EL,
    RATES,
    UPPER,
    spoiled_keys,
    spoiled_latencies,
)
from llama_load.analysis.reports.check_lines import check_lines, statements_json
from llama_load.run_folder.vocabulary.verdict_words import (
    ASKED,
    COUNTED,
    SAME,
    SEEN,
    STATEMENTS,
)

WORDS = ("mean", "median", "std", "p99")
CHECKS = [
    limited(
        "short_answer_ratio", 0.5, "1 of 2 answers ended before the requested length"
    ),
    limited("dropped_ratio", 0.0, "none was dropped"),
    limited("changed_ratio", None, "too few requests to see whether latencies grow"),
    limited("core_busy", 0.1, "busiest client process: 10% of a core"),
    limited(
        "own_delay_p99_ms", None, "the client's own delay before sending is not known"
    ),
    information("retries", 3, "3 requests were sent again"),
]


def test_each_statement_holds_fails_or_lacks_evidence() -> None:
    """One failed check is enough to fail; one with evidence is enough to hold, unless a main check
    is unknown."""
    found = {statement.name: statement for statement in arranged(CHECKS)}
    assert list(found) == list(STATEMENTS)
    assert {name: each.ok for name, each in found.items() if each.checks} == {
        SAME: None,
        ASKED: False,
        SEEN: True,
    }
    assert (found[COUNTED].ok, found[COUNTED].mark) == (None, "?")
    assert found[SEEN].missing == ["the client's own delay before sending is not known"]
    assert [check.name for check in remarks(CHECKS)] == ["retries"]


def test_a_failed_check_is_shown_with_its_limit_and_what_to_do() -> None:
    lines = list(check_lines(CHECKS, 80))
    failed = lines.index("  ✗ 1 of 2 answers ended before the requested length")
    assert lines[failed - 1].startswith("✗ Asked: ")
    assert lines[failed + 1 : failed + 3] == [
        "    limit 0.01; add --ignore-eos",
        "  ✓ none was dropped",
    ]
    assert "  ? too few requests to see whether latencies grow" in lines
    assert lines[-2:] == ["  Notes", "    3 requests were sent again"]


def test_programs_read_the_statements_from_summary_json() -> None:
    found = {each["name"]: each for each in statements_json(CHECKS)}
    assert (found[ASKED]["ok"], found[ASKED]["failed"]) == (
        False,
        ["short_answer_ratio"],
    )
    assert (found[SAME]["ok"], found[SAME]["missing"]) == (
        None,
        ["too few requests to see whether latencies grow"],
    )


def test_a_main_check_that_is_unknown_leaves_its_statement_open() -> None:
    """The lag of the event loop was not measured: that the client was in time is not known,
    whatever else passed."""
    lag = limited(
        "loop_lag_p99_ms", None, "the client's event loop lag was not measured"
    )
    found = {statement.name: statement for statement in arranged([*CHECKS, lag])}
    assert (found[SEEN].ok, found[SEEN].mark) == (None, "?")
    assert found[SEEN].open_questions == [lag]


def test_a_check_passes_only_if_it_would_have_seen_a_flaw_that_matters() -> None:
    """A change of 1.3 x matters: a run that shows 1.2 x passes, one that shows 2.1 x is unknown,
    and says so."""
    seen, blind = (
        limited("changed_ratio", 1.0, "text", detects=detects) for detects in (1.2, 2.1)
    )
    assert (seen.mark, seen.passed, blind.mark, blind.passed, blind.ok) == (
        "✓",
        True,
        "?",
        False,
        True,
    )
    (same, *_) = arranged([blind])
    assert (same.ok, same.missing) == (None, ["text"])


def test_a_failed_check_that_spoils_some_figures_leaves_the_run_comparable() -> None:
    part = limited("cut_shift", 0.2, "6 of 217 requests were cut", spoils=(E2EL,))
    whole = limited(
        "cut_shift", 0.2, "160 of 217 requests were cut", spoils=(E2EL, COMPARISON)
    )
    assert (part.word, whole.word) == ("BLURRED", "NOT COMPARABLE")
    assert spoiled_keys(part.spoils, [99.0]) == [
        f"{word}_{key}_ms"
        for key in ("e2el", "scheduled_e2el", "e2el_per_token")
        for word in WORDS
    ]
    assert spoiled_keys((UPPER,), [50.0, 99.0])[0] == "p99_ttft_ms"
    assert spoiled_keys((ALL,), [99.0]) == []
    # what makes tokens per second uncertain does the same to characters per second
    assert {"output_throughput", "output_chars_per_s"} <= set(
        spoiled_keys((RATES,), [99.0])
    )


def test_wrong_counts_spoil_the_latency_per_token_everywhere() -> None:
    """In goodput and in comparisons, too: both ask for latencies, and not for keys."""
    assert spoiled_latencies((COUNTS,)) == ("e2el_per_token",)
    keys = spoiled_keys((COUNTS,), [99.0])
    assert {"p99_e2el_per_token_ms", "total_output_tokens"} <= set(keys)
