"""The steady part of a run, on simulated queues."""

from __future__ import annotations

import numpy as np
import pytest

from llama_load.analysis.topics.steady.steady_part import (
    NONE,
    STEADY,
    TOO_SHORT,
    SteadyPart,
    steady_part,
)
from tests.queue_runs import QueueRun, Slowdown, closed_loop, open_loop

S = 1_000_000_000


def part_of(run: QueueRun, concurrency: int | None = None) -> SteadyPart:
    return steady_part(
        run.started_ns,
        run.ended_ns,
        run.tpot_ms,
        scheduled_ns=run.scheduled_ns,
        concurrency=concurrency,
    )


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("users", "law"),
    [(2, "deterministic"), (4, "exponential"), (8, "lognormal"), (16, "exponential")],
)
def test_a_constant_server_is_steady_from_the_second_round_on(
    users: int, law: str
) -> None:
    """Only the users' first requests, which met an idle server, are warm-up (deterministic: the
    rounds of two slots mix)."""
    run = closed_loop(rng(), 600, users, law)
    part = part_of(run, users)
    assert (part.reason, part.shift_ns) == (STEADY, None)
    assert part.end_ns == run.started_ns.max()
    assert part.requests == int(part.holds(run.started_ns).sum()) >= 600 * 0.9
    assert (
        run.started_ns[run.started_ns < part.begin_ns].max()
        < part.begin_ns
        <= run.started_ns[3 * users]
    )


def test_a_slow_start_is_warm_up() -> None:
    """Six times as slow for 60 of about 195 s: about 40 of 600 requests."""
    part = part_of(closed_loop(rng(), 600, 4, changes=[Slowdown(0, 60, 6)]), 4)
    assert part.is_steady
    assert part.begin_ns is not None
    assert abs(part.begin_ns / S - 60) < 15
    assert part.shift_ns is None


def test_a_warm_up_shorter_than_two_slices_is_left_out() -> None:
    """The first 20 of 400 requests, two buckets, at 30 ms a token instead of 20."""
    started = np.arange(400) * S
    tpot = np.where(np.arange(400) < 20, 30.0, 20.0) * rng().lognormal(0, 0.01, 400)
    part = steady_part(started, started + S, tpot, concurrency=1)
    assert (part.reason, part.begin_ns, part.requests) == (STEADY, 20 * S, 380)


@pytest.mark.parametrize(("factor", "at_s"), [(10, 80), (1.5, 80), (0.5, 120)])
def test_a_change_of_the_server_ends_the_part(factor: float, at_s: float) -> None:
    """In the second half of the time; twice as fast for the last quarter, which has 40 % of the
    requests."""
    run = closed_loop(
        rng(), 5000, 4, changes=[Slowdown(at_s, 1e7, factor)], until_s=160
    )
    part = part_of(run, 4)
    assert part.is_steady
    assert part.shift_ns is not None
    assert abs(part.shift_ns / S - at_s) < 10
    assert part.end_ns is not None
    assert part.end_ns < part.shift_ns


def test_a_slow_middle_ends_the_part() -> None:
    part = part_of(closed_loop(rng(), 600, 4, changes=[Slowdown(60, 120, 3)]), 4)
    assert part.is_steady
    assert part.shift_ns is not None
    assert abs(part.shift_ns / S - 60) < 10


def test_a_server_that_slows_down_all_the_time_was_never_steady() -> None:
    """TPOT from 20 to 40 ms, evenly; a constant one beside it is steady."""
    started = np.arange(400) * S
    rising = np.linspace(20, 40, 400) * rng().lognormal(0, 0.02, 400)
    assert steady_part(started, started + S, rising, concurrency=1).reason == NONE
    assert (
        steady_part(started, started + S, np.full(400, 20.0), concurrency=1).reason
        == STEADY
    )


def test_a_queue_that_grows_is_not_steady_although_tpot_is_constant() -> None:
    assert part_of(open_loop(rng(), 1000, 1.4)).reason == NONE
    assert part_of(open_loop(rng(), 1000, 0.7)).reason == STEADY


def test_few_requests_are_too_few() -> None:
    """10 buckets of two rounds of 16 users are 320 requests after the first 16."""
    assert part_of(closed_loop(rng(), 300, 16), 16).reason == TOO_SHORT
    assert part_of(closed_loop(rng(), 3, 2), 2).reason == TOO_SHORT
    nothing = np.zeros(0, dtype=np.int64)
    assert steady_part(nothing, nothing, np.zeros(0)) == SteadyPart(
        TOO_SHORT, "no requests"
    )


def test_answers_without_tpot_are_judged_by_their_latency() -> None:
    """One token an answer: TPOT is unknown. E2EL of 1 s, then of 3 s from 100 s on."""
    started = np.cumsum(np.concatenate(([0], np.full(100, S), np.full(99, 3 * S))))
    ended = np.append(started[1:], started[-1] + 3 * S)
    part = steady_part(started, ended, np.full(200, np.nan), concurrency=1)
    assert part.is_steady
    assert part.shift_ns is not None
    assert abs(part.shift_ns / S - 100) < 15


def test_failed_requests_have_no_tpot_and_do_not_disturb() -> None:
    run = closed_loop(rng(), 600, 4)
    tpot = run.tpot_ms
    tpot[::7] = np.nan
    assert steady_part(run.started_ns, run.ended_ns, tpot, concurrency=4).is_steady
