"""--until: its grammar, its arithmetic, and that the truth is in its intervals where requests wait
in a queue."""

from __future__ import annotations

import numpy as np
import pytest
from pytest import approx

from benchmarks.search import closed_queue, independent_runs, open_queue, until_runs
from llama_load.run_folder.arithmetic.in_flight import in_flight_at
from llama_load.run_folder.vocabulary.until import (
    Requests,
    UntilRule,
    batch_means,
    mean_within,
    next_look,
    parse_until,
    percentile_within,
)


def test_the_grammar() -> None:
    found = parse_until("p99_ttft:5%")
    assert (found.latency, found.percentile, found.within, found.figure) == (
        "ttft",
        99.0,
        0.05,
        "p99_ttft",
    )
    assert parse_until("median_e2el: 2.5 %").percentile == 50.0
    assert parse_until("mean_tpot:1%").percentile is None
    assert parse_until("throughput:2%").latency == ""
    for wrong in (
        "p99_ttft",
        "p99_ttft:5",
        "p99_itl:5%",
        "p0_ttft:5%",
        "mean_ttft:0%",
        "mean_ttft:100%",
    ):
        with pytest.raises(ValueError, match="--until takes"):
            parse_until(wrong)


def test_looks_are_few() -> None:
    looks = [300]
    while looks[-1] < 3000:
        looks.append(next_look(looks[-1]))
    assert looks == [300, 420, 588, 824, 1154, 1616, 2263, 3169]


def test_intervals_from_batch_means() -> None:
    """Batches of 2 with means 1 … 10: standard deviation 3.028, so 2.262 x 3.028 / sqrt(10) / 5.5 =
    39.4 %."""
    values = np.repeat(np.arange(1.0, 11.0), 2)
    assert batch_means(values).tolist() == list(range(1, 11))
    assert mean_within(values) == approx(2.262 * 3.0277 / np.sqrt(10) / 5.5, rel=1e-4)
    assert percentile_within(values, 99) is None  # 20 values do not reach beyond p99


def test_requests_in_flight_at_each_start() -> None:
    assert in_flight_at(
        np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 7.0]), np.array([0.0, 1.0, 5.0])
    ).tolist() == [0, 1, 0]


def test_an_open_loop_on_unknown_slots_is_not_ended() -> None:
    values = np.ones(1000) + np.linspace(0, 1e-6, 1000)
    requests = Requests(values, np.arange(1000.0), np.arange(1000.0) + values)
    rule = UntilRule(parse_until("mean_e2el:5%"), is_open=True, users=0, slots=None)
    look = rule.look(requests)
    assert look is not None
    assert "slots are not known" in look.obstacle
    known = UntilRule(parse_until("mean_e2el:5%"), is_open=True, users=0, slots=8)
    looks = [
        known.look(
            Requests(
                *(each[:count] for each in (values, requests.starts_s, requests.ends_s))
            )
        )
        for count in (300, 420)
    ]
    # two good looks in a row
    assert [look is not None and look.may_end for look in looks] == [False, True]


def test_intervals_hold_the_truth_in_queues_where_the_usual_rule_does_not() -> None:
    """M/M/32 at 0.7 and 64 users on 8 slots, 12 runs each (benchmarks/search.py has 200)."""
    draw = np.random.default_rng(3)
    for queue in (
        open_queue(0.7, 32, 10_000, 12, draw),
        closed_queue(64, 8, 8_000, 12, draw),
    ):
        ours = until_runs(queue, 99.0, 0.10)
        assert ours.ended >= 0.5
        assert ours.covered is not None
        assert ours.covered >= 0.92
    # planted: i.i.d. intervals, a look every 100 requests
    usual = independent_runs(queue, 50.0, 0.05)
    assert usual.ended == 1.0
    assert usual.covered is not None
    assert usual.covered < 0.6


def test_near_its_capacity_an_open_loop_is_not_ended() -> None:
    queue = open_queue(0.9, 32, 8_000, 20, np.random.default_rng(4))
    assert until_runs(queue, 99.0, 0.10).ended <= 0.05
