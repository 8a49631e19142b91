"""Events that came together, in one read or in reads that followed at once, and how late the last of
them came."""

from __future__ import annotations

import numpy as np

from llama_load.analysis.statistics.together import together
from llama_load.run_folder.observed.records import Records
from tests.analysis.figures.test_verdict import bad, verdict
from tests.make_records import record, table

USUAL = (20.0,) * 8


def records(*gaps_ms: tuple[float, ...]) -> Records:
    return table(*(record(number, gaps_ms=each) for number, each in enumerate(gaps_ms)))


def test_events_of_two_reads_at_once_came_together() -> None:
    """A proxy writes each two events after one another, 50 us apart."""
    pairs = (0.05, 40.0) * 4
    made = records(USUAL, pairs, (*USUAL, 0.05))
    assert together(made).events.tolist() == [0, 4, 1]
    assert together(made).is_first.tolist() == [False, True, False]


def test_events_of_a_burst_are_written_one_by_one() -> None:
    """A gateway holds 20 tokens back and writes each by itself, 20 to 190 us apart; a small model
    takes 10 ms for each token, between stalls of 2 s."""
    draw = np.random.default_rng(3)
    burst = (*draw.uniform(0.02, 0.19, 19), 400.0, *draw.uniform(0.02, 0.19, 19))
    stalls = (*(10.0,) * 12, 2000.0, *(10.0,) * 12, 2000.0)
    made = records(burst, stalls)
    assert together(made).in_bursts.tolist() == [38, 0]
    assert together(made).is_first_in_burst.tolist() == [True, False]
    several = [record(number, gaps_ms=burst) for number in range(40)]
    assert "buffered_ratio" in bad(verdict(*several))


def test_exponential_gaps_are_below_the_limit() -> None:
    draw = np.random.default_rng(2)
    made = [
        record(number, gaps_ms=tuple(draw.exponential(20.0, 60)))
        for number in range(100)
    ]
    assert together(table(*made)).events.sum() < 0.01 * 6000


def test_last_events_that_waited_for_one_another_came_late() -> None:
    """A packet was lost: three events came after 200 ms instead of 60. One that came alone, and a
    server that sends two at a time, are on time."""
    lost = (*USUAL, 200.0, 0.0, 0.0)
    two_at_a_time = (40.0, 0.0) * 5
    made = records(lost, USUAL, two_at_a_time, (20.0, 100.0, 0.0))
    late_ms = together(made).late_end_ms
    assert np.allclose(late_ms, [140.0, 0.0, 0.0, 0.0], atol=1e-3)


def test_late_ends_spoil_what_they_move() -> None:
    """All answers end 140 ms late, of 500: E2EL and TPOT are as wrong as ITL is."""
    lost = (*USUAL, 200.0, 0.0, 0.0)
    several = [record(number, gaps_ms=lost, merged_events=2) for number in range(40)]
    found = verdict(*several)
    (check,) = [each for each in found.checks if each.name == "merged_ratio"]
    assert "merged_ratio" in bad(found)
    assert {"ITL", "E2EL", "TPOT"} <= set(check.spoils)
    assert "make mean E2EL 30% larger" in check.text
