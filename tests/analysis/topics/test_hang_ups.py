"""What users who hang up make of the figures of the others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from llama_load.analysis.checks.hang_ups_felt import censored, slots_freed
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.topics.hang_ups.hang_up_figures import hang_up_figures
from llama_load.loadgen.run.hang_ups_watcher import (
    IDLE_EVERY_S,
    IDLE_WITHIN_S,
    HangUpsWatcher,
)
from llama_load.loadgen.run.run_clock import RunClock
from llama_load.run_folder.arithmetic.freeing_times import Look, Spans, freeing_times
from llama_load.run_folder.observed.hang_up_check import FreeingTimes, HangUpCheck
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.records import Records
from llama_load.servers.work_counts import WorkCount
from tests.make_records import MS, record, table


def given_up(
    index: int, after_ms: float, *, start_ms: float = 0, first_ms: float | None = 100
) -> RequestRecord:
    """A request whose user hung up, with 3 tokens if it had a first one."""
    start = round(start_ms * MS)
    none = {
        "ttft_ms": None,
        "tpot_ms": None,
        "e2el_ms": None,
        "finish_reason": None,
        "last_token_mono_ns": None,
    }
    first = None if first_ms is None else start + round(first_ms * MS)
    tokens = 0 if first is None else 3
    ended = start + round(after_ms * MS)
    changed = {
        "first_token_mono_ns": first,
        "ended_mono_ns": ended,
        "output_tokens": tokens,
        "itl_ms": [],
    } | none
    return record(index, start_ms=start_ms, status="aborted", **changed)


def evidence(records: Records) -> Evidence:
    return Evidence(records=records, figures=summarize(records))


def test_requests_given_up_are_in_no_figure_of_the_others() -> None:
    """Ten answers of 140 ms and 3 tokens, five given up: failed 0, throughput of the ten alone, 15
    tokens wasted."""
    records = table(
        *(record(index) for index in range(10)),
        *(given_up(10 + index, 130) for index in range(5)),
    )
    figures = summarize(records)
    assert (
        figures.completed,
        figures.failed,
        figures.aborted,
        figures.wasted_tokens,
    ) == (10, 0, 5, 15)
    assert figures.failure_ratio == 0
    assert (figures.distributions["ttft"].count, figures.total_output_tokens) == (
        10,
        30,
    )


def test_giving_up_slow_requests_is_censoring_and_giving_up_early_is_not() -> None:
    """30 answers of 140 ms. 30 more were given up right after their first token, which says nothing
    of their length: with 140 ms for all, mean and median stay. 30 that were given up after 10 s
    were slower than all answers: the mean, at least (140 + 10000) / 2, grows 36-fold."""
    answers = [record(index) for index in range(30)]
    (early,) = censored(
        evidence(table(*answers, *(given_up(30 + index, 101) for index in range(30))))
    )
    assert (early.ok, early.value) == (True, pytest.approx(0.0))
    (late,) = censored(
        evidence(
            table(*answers, *(given_up(30 + index, 10_000) for index in range(30)))
        )
    )
    assert not late.ok
    assert late.word == "NOT COMPARABLE"
    assert list(censored(evidence(table(*answers)))) == []


def test_giving_up_after_a_number_of_tokens_chooses_no_slow_requests() -> None:
    """Eight of 40 by lot, each after its third token: that their first tokens took longer is
    chance, and spoils nothing. One without a first token was not given up after tokens."""
    rows = [record(index) for index in range(32)] + [
        given_up(32 + index, 190, first_ms=150) for index in range(8)
    ]
    chosen = replace(evidence(table(*rows)), aborts_by_tokens=True)
    (check,) = censored(chosen)
    assert (check.ok, check.value) == (True, 0.0)
    waiting = replace(
        evidence(table(*rows, given_up(40, 10_000, first_ms=None))),
        aborts_by_tokens=True,
    )
    assert not next(censored(waiting)).ok


def test_first_tokens_of_requests_given_up_are_known() -> None:
    """30 answers after 100 ms; 30 users had their first token after 900 ms and hung up then, as
    people do at a slow server. With them the mean is 500 ms instead of 100: 4 times more."""
    slow = (given_up(30 + index, 901, first_ms=900) for index in range(30))
    (check,) = censored(evidence(table(*(record(index) for index in range(30)), *slow)))
    assert not check.ok
    assert check.value == pytest.approx(4.0)


def test_gaps_of_neighbours_are_told_apart_by_the_time_after_a_hang_up() -> None:
    """A neighbour from 0 ms, first token at 100, gaps of 20 ms; one of 300 ms ends at 440, 40 ms
    after a hang-up at 400. Gaps that ended before 400 (120, 140) and after 900 (none) are others;
    those at 440 and 460 are near."""
    neighbour = record(0, gaps_ms=(20, 20, 300, 20))
    figures = hang_up_figures(table(neighbour, given_up(1, 400)))
    assert figures is not None
    assert (figures.near_gaps, figures.near_longest_ms, figures.other_median_ms) == (
        2,
        300.0,
        20.0,
    )
    assert (
        figures.median_ttft_ms,
        figures.median_waited_ms,
        figures.wasted_tokens,
    ) == (100.0, 400.0, 3)
    elsewhere = hang_up_figures(
        table(neighbour, replace(given_up(1, 400), host="http://other"))
    )
    assert elsewhere is not None
    assert (elsewhere.near_gaps, elsewhere.other_longest_ms) == (
        0,
        300.0,
    )  # no neighbour
    without = hang_up_figures(table(neighbour, given_up(1, 400, first_ms=None)))
    assert without is not None
    assert (
        without.before_first_token,
        without.median_ttft_ms,
        without.wasted_tokens,
    ) == (1, None, 0)
    assert hang_up_figures(table(neighbour)) is None


def look(at_ms: float, at_work: int, *, is_all: bool = True) -> Look:
    """A count that was asked for and answered within 2 ms."""
    return Look(round(at_ms * MS), round((at_ms + 2) * MS), at_work, is_all)


def times(
    sent_ms: list[float], ended_ms: list[float], given_up_ms: list[float], *looks: Look
) -> FreeingTimes:
    instants = (
        np.sort(np.round(np.array(ms) * MS).astype(np.int64))
        for ms in (sent_ms, ended_ms, given_up_ms)
    )
    return freeing_times(Spans(*instants), looks)


def test_a_slot_is_free_at_the_first_look_that_surely_shows_it() -> None:
    """Two requests in flight until 900 ms, one of three given up at 100 ms. At work: 3 at 120 ms
    and 170 ms, 2 at 220 ms: answered at 222 ms, so free after 122 ms, and busy until 170 ms: the
    resolution is 52 ms."""
    seen = times(
        [0, 0, 0],
        [100, 900, 900],
        [100],
        look(60, 3),
        look(120, 3),
        look(170, 3),
        look(220, 2),
        look(270, 2),
    )
    assert (seen.freed, seen.median_ms, seen.longest_ms, seen.resolution_ms) == (
        1,
        122.0,
        122.0,
        52.0,
    )
    assert (
        seen.unknown,
        seen.stuck,
        seen.most_at_work,
        seen.p99_ms,
        seen.looks,
        seen.look_ms,
    ) == (0, 0, 1, None, 5, 2.0)


def test_a_request_that_the_server_has_not_counted_yet_hides_no_slot() -> None:
    """A user hangs up at 100 ms and sends the next request at 101 ms. At 105 ms the server counts
    one: the old or the new. At 155 ms it has surely counted the new one, so the count of two shows
    the old one, and that of one at 205 ms that it is gone."""
    seen = times([0, 101], [100, 900], [100], look(105, 1), look(155, 2), look(205, 1))
    assert (seen.freed, seen.median_ms, seen.resolution_ms) == (1, 107.0, 52.0)


def test_what_no_count_shows_is_unknown() -> None:
    """Without the number of waiting requests, two busy slots of two say nothing: 1.5 s later it is
    too late to know. A user who hung up after the last look is unknown too."""
    seen = times(
        [0, 0, 101],
        [100, 2000, 2000],
        [100],
        *(look(ms, 2, is_all=False) for ms in range(120, 1600, 50)),
        look(1610, 2),
    )
    assert (seen.freed, seen.unknown, seen.stuck) == (0, 1, 0)
    assert times([0], [100], [100], look(50, 1)).unknown == 1


def test_users_who_hung_up_first_are_free_first() -> None:
    """Two of three hang up at 100 and 130 ms; at work: 3, 2 and 1 at 145, 190 and 240 ms. Free
    after 92 and 112 ms. A third who hangs up at 300 ms, when the last one has ended at 290 ms, is
    at work for good: 5 s at the last look."""
    looks = (
        look(145, 3),
        look(190, 2),
        look(240, 1),
        *(look(ms, 1) for ms in range(310, 5301, 10)),
    )
    seen = times([0, 0, 0, 250], [100, 130, 290, 300], [100, 130, 300], *looks)
    assert (seen.freed, seen.median_ms, seen.longest_ms) == (2, 102.0, 112.0)
    assert (seen.stuck, seen.stuck_ms, seen.most_at_work, seen.unknown) == (
        1,
        5000.0,
        2,
        0,
    )


def test_a_probe_is_no_request_that_was_given_up() -> None:
    """One request, given up at 100 ms; at 120 and 5000 ms the server works on one, which may be the
    probe in flight."""
    without = times([0], [100], [100], look(120, 1), look(5000, 1))
    assert (without.stuck, without.most_at_work) == (1, 1)
    seen = times(
        [0], [100], [100], *(look(ms, 1)._replace(probes=1) for ms in (120, 5000))
    )
    assert (seen.stuck, seen.most_at_work, seen.unknown) == (0, 0, 1)


@pytest.mark.parametrize("frees_after_s", [0.0, 0.5, None])
def test_a_slot_that_is_never_freed_is_reported(frees_after_s: float | None) -> None:
    """A user hung up at 1 s, and its slot is freed some time after the last request ended at 2 s,
    or never: the check ends after 10 s. Sleeping moves the clock."""
    now_s, end_s = 0.0, 2.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def work(_: object) -> WorkCount:
        return WorkCount(
            int(frees_after_s is None or now_s < end_s + frees_after_s), True
        )

    clock = RunClock(lambda: round(now_s * 1e9), sleep, lambda *_: None)
    target = SimpleNamespace(address=SimpleNamespace(url="http://h"))
    run = SimpleNamespace(
        clock=clock,
        dispatcher=SimpleNamespace(ledger=SimpleNamespace(requests_under_way=list)),
        end_reason=None,
    )
    watcher = HangUpsWatcher(run, [target], lambda _: True, work, lambda _: True)
    watcher.add_record(given_up(0, 1000))
    for _ in range(20):
        watcher.look()
        sleep(0.1)  # of virtual time
    watcher.stop()
    writer = SimpleNamespace(manifest=SimpleNamespace())
    watcher.facts(writer)
    (check,) = writer.manifest.hang_ups
    (judged,) = slots_freed(
        Evidence(
            records=table(record()),
            figures=summarize(table(record())),
            hang_ups=[check],
        )
    )
    if frees_after_s is None:
        assert (check.busy, check.idle_after_ms, judged.ok) == (1, None, False)
        assert now_s == pytest.approx(end_s + IDLE_WITHIN_S, abs=2 * IDLE_EVERY_S)
        assert (
            "still works on 1 request 10 s after the last request ended, and 11 s after the first of their users"
            in judged.text
        )
    else:
        assert (check.busy, judged.ok) == (0, True)
        assert check.idle_after_ms == pytest.approx(
            frees_after_s * 1e3, abs=2e3 * IDLE_EVERY_S
        )
        assert check.freeing.longest_ms == pytest.approx(
            1000 + frees_after_s * 1e3, abs=2e3 * IDLE_EVERY_S
        )


def test_a_slot_that_was_freed_late_is_not_passed() -> None:
    check = HangUpCheck(
        host="http://h",
        busy=0,
        healthy=True,
        freeing=FreeingTimes(freed=3, longest_ms=12_000.0, late=1),
    )
    (judged,) = slots_freed(
        Evidence(
            records=table(record()),
            figures=summarize(table(record())),
            hang_ups=[check],
        )
    )
    assert not judged.ok
    assert "worked on 1 request for more than 10 s after" in judged.text


def test_a_server_that_says_nothing_of_its_slots_is_not_passed_silently() -> None:
    records = table(record())
    unknown, dead = (
        next(
            slots_freed(
                Evidence(records=records, figures=summarize(records), hang_ups=[check])
            )
        )
        for check in (
            HangUpCheck(host="http://h", healthy=True),
            HangUpCheck(host="http://h", busy=0, healthy=False),
        )
    )
    assert "does not report" in unknown.text
    assert not dead.ok
