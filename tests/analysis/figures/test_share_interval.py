"""Intervals of shares hold the truth as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llama_load.analysis.statistics.statistics import share_interval
from llama_load.lab.search.search_probe import ProbeResult


def test_known_intervals() -> None:
    """R's binom.test."""
    assert share_interval(37, 37) == pytest.approx((0.9051094, 1.0))
    assert share_interval(0, 18) == pytest.approx((0.0, 0.1853020))
    assert share_interval(30, 31) == pytest.approx((0.8329781, 0.9991836), abs=1e-5)


@pytest.mark.parametrize("count", [1, 2, 5, 20, 37, 150])
def test_the_truth_is_inside_of_95_percent_whatever_it_is(count: int) -> None:
    """Of independent trials: the chance of each outcome is known, so nothing is drawn."""
    intervals = [share_interval(good, count) for good in range(count + 1)]
    for truth in np.linspace(0.005, 0.995, 100):
        held = 0.0
        for good, (low, high) in enumerate(intervals):
            if low <= truth <= high:
                chosen = math.comb(count, good)
                held += chosen * truth**good * (1 - truth) ** (count - good)
        assert held >= 0.95


def neighbours_alike(
    draw: np.random.Generator, count: int, share: float
) -> ProbeResult:
    """Half of the requests meet the objectives, or not, as the one before them did."""
    good = np.empty(count, dtype=np.bool_)
    last = draw.random() < share
    for place, is_new in enumerate(draw.random(count) < 0.5):
        if is_new:
            last = draw.random() < share
        good[place] = last
    return ProbeResult(1.0, good, count)


@pytest.mark.parametrize(("count", "share"), [(37, 0.9), (150, 0.9), (37, 0.99)])
def test_a_probe_whose_neighbours_are_alike(count: int, share: float) -> None:
    """The scatter of ten batches alone held 0.99 in 15 of 100 probes."""
    draw = np.random.default_rng(5)
    held = 0
    for _ in range(300):
        interval = neighbours_alike(draw, count, share).interval
        assert interval is not None
        held += interval[0] <= share <= interval[1]
    assert held / 300 >= 0.85


def test_probes_in_which_all_or_none_are_good_are_not_sure() -> None:
    good = np.ones(37, dtype=np.bool_)
    assert ProbeResult(1.0, good, 37).interval == pytest.approx((0.9051, 1), abs=1e-4)
    assert ProbeResult(1.0, ~good, 37).interval == pytest.approx((0, 0.0949), abs=1e-4)
