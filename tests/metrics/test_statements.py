"""The checks by the six statements: what holds, what fails with limit and remedy, and which evidence is missing."""

from __future__ import annotations

from llama_load.metrics.check import information, limited
from llama_load.metrics.statements import arranged, remarks
from llama_load.metrics.verdict_words import ASKED, COUNTED, SAME, SEEN, STATEMENTS
from llama_load.reports.check_lines import check_lines, statements_json

CHECKS = [
    limited("short_answer_ratio", 0.5, "1 of 2 answers ended before the requested length"),
    limited("dropped_ratio", 0.0, "none was dropped"),
    limited("changed_ratio", None, "too few requests to see whether latencies grow"),
    limited("core_busy", 0.1, "busiest client process: 10% of a core"),
    limited("loop_lag_p99_ms", None, "the client's event loop lag was not measured"),
    information("retries", 3, "3 requests were sent again"),
]


def test_each_statement_holds_fails_or_lacks_evidence() -> None:
    """One failed check is enough to fail; one with evidence is enough to hold; none is unknown."""
    found = {statement.name: statement for statement in arranged(CHECKS)}
    assert list(found) == list(STATEMENTS)
    assert {name: each.ok for name, each in found.items() if each.checks} == {SAME: None, ASKED: False, SEEN: True}
    assert (found[COUNTED].ok, found[COUNTED].mark) == (None, "?")
    assert found[SEEN].missing == ["the client's event loop lag was not measured"]
    assert [check.name for check in remarks(CHECKS)] == ["retries"]


def test_a_failed_check_is_shown_with_its_limit_and_what_to_do() -> None:
    lines = list(check_lines(CHECKS, 80))
    failed = lines.index("  ✗ 1 of 2 answers ended before the requested length")
    assert lines[failed - 1].startswith("✗ Asked: ")
    assert lines[failed + 1 : failed + 3] == ["    limit 0.01; add --ignore-eos", "  ✓ none was dropped"]
    assert "  ? too few requests to see whether latencies grow" in lines
    assert lines[-2:] == ["  Notes", "    3 requests were sent again"]


def test_programs_read_the_statements_from_summary_json() -> None:
    found = {each["name"]: each for each in statements_json(CHECKS)}
    assert (found[ASKED]["ok"], found[ASKED]["failed"]) == (False, ["short_answer_ratio"])
    assert (found[SAME]["ok"], found[SAME]["missing"]) == (None, ["too few requests to see whether latencies grow"])
