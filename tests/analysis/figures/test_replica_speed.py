"""Replicas of equal speed behind queues are rarely called different; a slow one nearly always
is."""

from __future__ import annotations

import numpy as np
import pytest

from llama_load.analysis.statistics.replica_speed import (
    ReplicaDifference,
    replica_difference,
    replica_lengths,
)
from tests.make_records import record, table
from tests.queueing import waits_s

HOSTS = ["http://a", "http://b", "http://c"]
SLOTS = 4


def is_found(seed: int, load: float, slow: float, count: int = 240) -> bool:
    """Whether the slow one is called different."""
    found = difference(seed, load, slow, count)
    return found is not None and found.is_sure and found.size > 1.25


def difference(
    seed: int, load: float, slow: float, count: int = 240
) -> ReplicaDifference | None:
    """An open loop over three replicas of four slots, in turns; service times exponential with mean
    1 s, the third's `slow` s. The time per token is proportional to the number of busy slots when
    the request gets one."""
    draws = np.random.default_rng(seed)
    arrivals = np.cumsum(draws.exponential(1 / (len(HOSTS) * SLOTS * load), count))
    rows = []
    for number, host in enumerate(HOSTS):
        own = arrivals[number::3]
        service = draws.exponential(slow if number == 2 else 1.0, len(own))
        waits = waits_s(own, service, SLOTS)
        begun = own + waits
        for arrival, wait, at in zip(own, waits, begun, strict=True):
            busy = int(((begun <= at) & (begun + service > at)).sum())
            tpot = 10 * busy * draws.lognormal(sigma=0.2) * (slow if number == 2 else 1)
            rows.append(
                record(
                    start_ms=1000 * arrival,
                    host=host,
                    ttft_ms=1000 * wait + 100,
                    tpot_ms=tpot,
                    itl_ms=[],
                )
            )
    return replica_difference(table(*rows).ok(), HOSTS)


@pytest.mark.parametrize("runs", [10, pytest.param(100, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("load", [0.5, 0.7, 0.9])
def test_equal_replicas_are_seldom_called_different(load: float, runs: int) -> None:
    assert sum(is_found(seed, load, 1.0) for seed in range(runs)) <= runs // 100


@pytest.mark.parametrize("runs", [20, pytest.param(400, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("count", [54, 80])
def test_few_answers_of_equal_replicas_are_seldom_called_different(
    count: int, runs: int
) -> None:
    """18 and 26 answers of each: six and eight slices."""
    assert sum(is_found(seed, 0.7, 1.0, count) for seed in range(runs)) <= runs // 100


def test_few_answers_show_a_replica_of_a_quarter_of_the_speed() -> None:
    found = [difference(seed, 0.1, 4.0, 80) for seed in range(20)]
    assert all(
        each is not None and (each.is_sure or each.detects > 4) for each in found
    )
    assert sum(each is not None and each.is_sure for each in found) >= 5


def test_a_replica_of_half_the_speed_is_found() -> None:
    assert sum(is_found(seed, 0.4, 2.0) for seed in range(10)) >= 9


def test_a_replica_that_differs_by_the_detection_limit_is_found() -> None:
    """At 30 % load, where more work in flight does not add to a slow replica's time."""
    limits = [
        found.detects
        for seed in range(6)
        if (found := difference(seed, 0.3, 1.0)) is not None
    ]
    assert len(limits) == 6
    found = [difference(50 + seed, 0.3, limit) for seed, limit in enumerate(limits)]
    assert sum(each is not None and each.is_sure for each in found) >= 5


def _lengths(of_third: float, seed: int = 0, count: int = 90) -> float:
    """Answers of exponential lengths of mean 100, those of the third replica so many times as long:
    the difference that is found, 1 where none is."""
    draws = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        mean = 100 * (of_third if number % 3 == 2 else 1.0)
        tokens = 1 + round(draws.exponential(mean))
        host = HOSTS[number % 3]
        rows.append(record(number, start_ms=number, host=host, output_tokens=tokens))
    found = replica_lengths(table(*rows).ok(), HOSTS)
    assert found is None or found.host == HOSTS[2]
    return 1.0 if found is None else found.size


def test_a_replica_whose_answers_have_another_length_is_named() -> None:
    assert _lengths(0.05) > 10
    assert [_lengths(1.0, seed) for seed in range(50)] == [1.0] * 50
