"""scripts/find_flaky.py: every test that failed once is listed."""

from __future__ import annotations

from scripts.find_flaky import listed

PASSED = '<testcase classname="tests.test_a" name="test_one"/>'
FAILED = '<testcase classname="tests.test_a" name="test_one"><failure message=""/></testcase>'
BROKEN = '<testcase classname="tests.test_b" name="test_two[x]"><error message=""/></testcase>'
SKIPPED = '<testcase classname="tests.test_b" name="test_three"><skipped message=""/></testcase>'


def report(*cases: str) -> str:
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"


def test_what_failed_or_could_not_begin_is_listed_most_often_first() -> None:
    runs = [report(PASSED, BROKEN), report(FAILED, BROKEN, SKIPPED)]
    assert listed(runs) == [
        "2 of 2  tests.test_b::test_two[x]",
        "1 of 2  tests.test_a::test_one",
    ]
    assert listed([report(PASSED, SKIPPED)]) == []
