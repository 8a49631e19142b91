"""Several runs of a case as one verdict."""

from __future__ import annotations

from truth.cases import read_cases
from truth.finding import Finding, Level
from truth.judge import Verdict
from truth.repeats import merged, misses

CASE = read_cases()[0]


def verdict(p50: float, p99: float, level: Level = Level.RIGHT) -> Verdict:
    finding = Finding("TTFT", "100", "", "1", level, values=(p50, p99), unit="*")
    return Verdict(CASE, [finding], level, bound_ms=p50 / 10, late_ms=p99 / 10)


def test_medians_with_the_lowest_and_highest_value_and_the_lowest_level() -> None:
    """Of p50 1, 2, 4 and p99 10, 30, 20: medians 2 and 20; one run of three is wrong."""
    runs = [verdict(1, 10), verdict(2, 30, Level.WRONG), verdict(4, 20)]
    found = merged(runs)
    (finding,) = found.findings
    assert finding.seen == "2.0 (1.0 to 4.0) / 20.0 (10.0 to 30.0)*"
    assert finding.repeats == ((1, 10), (2, 30), (4, 20))
    assert (found.level, found.runs) == (Level.WRONG, 3)
    assert (found.bound_ms, found.late_ms) == (0.4, 3.0)


def test_a_void_run_does_not_count_and_a_failed_one_fails_the_case() -> None:
    void = Verdict(CASE, void="late")
    found = merged([void, verdict(1, 10), verdict(3, 10)])
    assert (found.word, found.runs, found.void_runs) == ("right", 2, 1)
    assert found.findings[0].seen.startswith("2.0 (1.0 to 3.0)")
    assert merged([void, void]).word == "void"
    assert merged([verdict(1, 10), Verdict(CASE, failed="exit")]).word == "failed"


def of_capacity(low: float, high: float, truth: float = 7) -> Verdict:
    holds = low <= truth <= high
    level = Level.RIGHT if holds else Level.WRONG
    values = (low, low, high)
    finding = Finding("users", "7", "", "1", level, values, holds=holds)
    return Verdict(CASE, [finding], level)


def test_of_many_intervals_a_share_may_miss_the_truth() -> None:
    """Of 40 of 95 % two miss on average; seven or more do once in 300 times."""
    assert [misses(runs) for runs in (2, 5, 40)] == [1, 2, 6]
    runs = [of_capacity(6, 8)] * 34
    right = merged([*runs, *[of_capacity(8, 9)] * 6])
    assert right.word == "right"
    assert "held by 34 of 40 intervals" in right.findings[0].seen
    assert merged([*runs, *[of_capacity(8, 9)] * 7]).word == "wrong"
    assert merged([of_capacity(8, 9)]).word == "wrong"


def test_one_run_keeps_its_words() -> None:
    (finding,) = merged([verdict(1, 10)]).findings
    assert finding.seen == "" and finding.repeats == ((1, 10),)
