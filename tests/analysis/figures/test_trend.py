"""Tests for trends and shifts: known values, and error rates on correlated series."""

from __future__ import annotations

import numpy as np
import pytest

from llama_load.analysis.statistics.changes import STEADY, find_trend
from llama_load.analysis.statistics.slices import Slices
from llama_load.analysis.statistics.trend import (
    autocorrelation_time,
    mann_kendall,
    pettitt,
    slope_interval,
    theil_sen,
)


def ar1(
    rng: np.random.Generator, n: int, r: float, count: int = 1
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Rows of an autoregressive series with variance 1."""
    rows = np.empty((count, n))
    rows[:, 0] = rng.standard_normal(count)
    for at in range(1, n):
        rows[:, at] = r * rows[:, at - 1] + np.sqrt(1 - r * r) * rng.standard_normal(
            count
        )
    return rows


def test_the_slope_is_the_median_of_all_pairs() -> None:
    """y = 3 + 2 x with one outlier."""
    x = np.arange(20.0)
    y = 3 + 2 * x
    y[7] = 1000
    assert theil_sen(x, y) == (2.0, 3.0)
    assert theil_sen(np.zeros(3), np.array([1.0, 2.0, 4.0])) == (0.0, 2.0)


def test_mann_kendall_of_a_rising_series() -> None:
    """1 … 10: S = 45, variance 10 x 9 x 25 / 18 = 125, z = 44 / sqrt(125)."""
    trend = mann_kendall(np.arange(1.0, 11.0))
    assert trend.z == pytest.approx(44 / 125**0.5)
    assert trend.change == pytest.approx(9.0)
    assert mann_kendall(np.ones(12)).z == 0


def test_values_that_rise_one_by_one_are_a_trend_on_any_curve() -> None:
    """From 20 to 80 ms, fast and then slowly: the distance from the line looks like correlation, in
    which Mann-Kendall's test sees nothing. Waits in a queue may rise so by chance."""
    curve = 20 + 60 * np.linspace(0, 1, 24) ** 0.5
    slices = Slices(0, 24_000, 24)
    assert not mann_kendall(curve).is_significant
    assert mann_kendall(curve).tau == 1 and mann_kendall(curve[::-1]).tau == -1
    change = find_trend(slices, curve)
    assert change is not None and change.factor > 2
    assert find_trend(slices, curve, has_waits=True) is None


def test_correlated_series_seldom_rise_one_by_one() -> None:
    """AR(1), r = 0.6: of 3000 series of 12 values 0.4 %, of 24 none."""
    few = ar1(np.random.default_rng(0), 12, 0.6, 600)
    more = ar1(np.random.default_rng(0), 24, 0.6, 600)
    assert np.mean([abs(mann_kendall(row).tau) >= STEADY for row in few]) <= 0.01
    assert not any(abs(mann_kendall(row).tau) >= STEADY for row in more)


def test_correlated_series_have_few_false_trends_and_shifts() -> None:
    """AR(1), r = 0.6, 30 values, level 1 %: trends about 3 %, shifts about 7 %; without the wider
    variance over 20 %."""
    rows = ar1(np.random.default_rng(0), 30, 0.6, 300)
    assert np.mean([mann_kendall(row).is_significant for row in rows]) <= 0.05
    assert np.mean([pettitt(row).is_significant for row in rows]) <= 0.10
    independent = ar1(np.random.default_rng(1), 30, 0.0, 300)
    assert np.mean([mann_kendall(row).is_significant for row in independent]) <= 0.02
    assert np.mean([pettitt(row).is_significant for row in independent]) <= 0.02


def test_a_shift_is_placed() -> None:
    y = np.concatenate((np.full(12, 20.0), np.full(8, 30.0))) + np.random.default_rng(
        0
    ).normal(0, 1, 20)
    shift = pettitt(y)
    assert (shift.at, shift.is_significant) == (12, True)
    assert shift.change == pytest.approx(0.5, abs=0.1)
    assert not pettitt(y[:5]).is_significant


def test_autocorrelation_times() -> None:
    """Independent: 1. AR(1) with r = 0.8: (1 + r) / (1 - r) = 9. A constant: 1."""
    rng = np.random.default_rng(0)
    assert autocorrelation_time(rng.standard_normal(4000)) == pytest.approx(1, abs=0.3)
    assert autocorrelation_time(ar1(rng, 4000, 0.8)[0]) == pytest.approx(9, rel=0.3)
    assert autocorrelation_time(np.full(100, 0.1)) == 1


def test_the_interval_of_a_slope_holds_the_truth_on_correlated_noise() -> None:
    """100 slices, slope 0.02, AR(1) noise with r = 0.5: at least 83 % of 30 runs (95 % stated;
    benchmarks/steadiness.py has more)."""
    x = np.arange(100.0)
    rows = ar1(np.random.default_rng(0), 100, 0.5, 30) + 0.02 * x
    intervals = [slope_interval(x, row, resamples=200) for row in rows]
    assert np.mean([low < 0.02 < high for low, high in intervals]) >= 0.83


def test_slices_weigh_values_by_time() -> None:
    """10 s in two slices: a value of 1 from 0 to 5 s, of 3 from 0 to 10 s."""
    slices = Slices(0, 10, 2)
    begin, end = np.array([0, 0]), np.array([5, 10])
    assert slices.mean(np.array([1.0, 3.0]), begin, end).tolist() == [2.0, 3.0]
    assert slices.amount(np.array([5.0, 10.0]), begin, end).tolist() == [10.0, 5.0]
    assert slices.number(np.array([1, 6, 7])).tolist() == [1.0, 2.0]
    assert np.isnan(slices.mean(np.array([1.0]), np.array([0]), np.array([4]))[1])
    assert (slices.edge_ns(1), slices.seconds) == (5, 5e-9)
