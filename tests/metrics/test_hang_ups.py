"""What users who hang up make of the figures of the others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llama_load.metrics.checks.hang_ups_felt import censored, slots_freed
from llama_load.metrics.evidence import Evidence
from llama_load.metrics.hang_up_figures import hang_up_figures
from llama_load.metrics.summary import summarize
from llama_load.observed.hang_up_check import HangUpCheck
from llama_load.observed.record import RequestRecord
from llama_load.observed.records import Records
from llama_load.run.hang_ups_watcher import IDLE_EVERY_S, IDLE_WITHIN_S, HangUpsWatcher
from llama_load.run.run_clock import RunClock
from tests.make_records import MS, record, table


def given_up(index: int, after_ms: float, *, start_ms: float = 0, first_ms: float | None = 100) -> RequestRecord:
    """A request whose user hung up, with 3 tokens if it had a first one."""
    start = round(start_ms * MS)
    none = {"ttft_ms": None, "tpot_ms": None, "e2el_ms": None, "finish_reason": None, "last_token_mono_ns": None}
    first = None if first_ms is None else start + round(first_ms * MS)
    tokens = 0 if first is None else 3
    ended = start + round(after_ms * MS)
    changed = {"first_token_mono_ns": first, "ended_mono_ns": ended, "output_tokens": tokens, "itl_ms": []} | none
    return record(index, start_ms=start_ms, status="aborted", **changed)


def evidence(records: Records) -> Evidence:
    return Evidence(records=records, figures=summarize(records))


def test_requests_given_up_are_in_no_figure_of_the_others() -> None:
    """Ten answers of 140 ms and 3 tokens, five given up: failed 0, throughput of the ten alone, 15 tokens wasted."""
    records = table(*(record(index) for index in range(10)), *(given_up(10 + index, 130) for index in range(5)))
    figures = summarize(records)
    assert (figures.completed, figures.failed, figures.aborted, figures.wasted_tokens) == (10, 0, 5, 15)
    assert figures.failure_ratio == 0
    assert (figures.distributions["ttft"].count, figures.total_output_tokens) == (10, 30)


def test_giving_up_slow_requests_is_censoring_and_giving_up_early_is_not() -> None:
    """30 answers of 140 ms. 30 more were given up right after their first token, which says nothing of their length: with
    140 ms for all, mean and median stay. 30 that were given up after 10 s were slower than all answers: the mean, at least
    (140 + 10000) / 2, grows 36-fold."""
    answers = [record(index) for index in range(30)]
    (early,) = censored(evidence(table(*answers, *(given_up(30 + index, 101) for index in range(30)))))
    assert (early.ok, early.value) == (True, pytest.approx(0.0))
    (late,) = censored(evidence(table(*answers, *(given_up(30 + index, 10_000) for index in range(30)))))
    assert not late.ok
    assert late.word == "NOT COMPARABLE"
    assert list(censored(evidence(table(*answers)))) == []


def test_gaps_of_neighbours_are_told_apart_by_the_time_after_a_hang_up() -> None:
    """A neighbour from 0 ms, first token at 100, gaps of 20 ms; one of 300 ms ends at 440, 40 ms after a hang-up at 400. Gaps that
    ended before 400 (120, 140) and after 900 (none) are others; those at 440 and 460 are near."""
    neighbour = record(0, gaps_ms=(20, 20, 300, 20))
    figures = hang_up_figures(table(neighbour, given_up(1, 400)))
    assert figures is not None
    assert (figures.near_gaps, figures.near_longest_ms, figures.other_median_ms) == (2, 300.0, 20.0)
    assert (figures.median_ttft_ms, figures.median_waited_ms, figures.wasted_tokens) == (100.0, 400.0, 3)
    without = hang_up_figures(table(neighbour, given_up(1, 400, first_ms=None)))
    assert without is not None
    assert (without.before_first_token, without.median_ttft_ms, without.wasted_tokens) == (1, None, 0)
    assert hang_up_figures(table(neighbour)) is None


@pytest.mark.parametrize("frees_after_s", [0.0, 0.5, None])
def test_a_slot_that_is_never_freed_is_reported(frees_after_s: float | None) -> None:
    """One slot works for a user who hung up, with nothing in flight: while the run goes on (a look every second), and after its end
    for 10 s if it is never freed. Sleeping moves the clock."""
    now_s, end_s = 0.0, 2.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def busy(_: object) -> int:
        return int(frees_after_s is None or now_s < end_s + frees_after_s)

    clock = RunClock(lambda: round(now_s * 1e9), sleep, lambda *_: None)
    target = SimpleNamespace(address=SimpleNamespace(url="http://h"))
    run = SimpleNamespace(clock=clock, dispatcher=SimpleNamespace(ledger=SimpleNamespace(requests_under_way=list)), end_reason=None)
    watcher = HangUpsWatcher(run, [target], busy, lambda _: True)
    for _ in range(2):
        watcher.look()
        sleep(1.0)
    watcher.stop()
    writer = SimpleNamespace(manifest=SimpleNamespace())
    watcher.facts(writer)
    (check,) = writer.manifest.hang_ups
    (judged,) = slots_freed(Evidence(records=table(record()), figures=summarize(table(record())), hang_ups=[check]))
    assert (check.orphans, check.freed_within_ms) == (1, 1000.0)
    if frees_after_s is None:
        assert (check.busy, check.idle_after_ms, judged.ok) == (1, None, False)
        assert now_s == pytest.approx(end_s + IDLE_WITHIN_S, abs=2 * IDLE_EVERY_S)
    else:
        assert (check.busy, judged.ok) == (0, True)
        assert check.idle_after_ms == pytest.approx(frees_after_s * 1e3, abs=2e3 * IDLE_EVERY_S)


def test_a_server_that_says_nothing_of_its_slots_is_not_passed_silently() -> None:
    records = table(record())
    unknown, dead = (
        next(slots_freed(Evidence(records=records, figures=summarize(records), hang_ups=[check])))
        for check in (HangUpCheck(host="http://h", healthy=True), HangUpCheck(host="http://h", busy=0, healthy=False))
    )
    assert "does not report" in unknown.text
    assert not dead.ok
