"""Student's t, Welch's interval and Holm's adjustment, against tables and closed forms."""

from __future__ import annotations

import math
import random

import pytest

from llama_load.analysis.comparison.change_intervals import (
    LEAST_SPREAD,
    Ratio,
    RatioWithZeros,
    holm,
    ratio_of,
)
from llama_load.run_folder.arithmetic.student_t import t_quantile, t_tail


# Two-sided 5 % points from the tables of any textbook; 4.5 degrees between those of 4 (2.776) and 5
# (2.571).
@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (4.5, 2.659), (8, 2.306), (30, 2.042), (1000, 1.962)],
)
def test_quantiles_of_t_are_those_of_the_tables(
    freedom: float, quantile: float
) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=6e-4)
    assert t_tail(t_quantile(0.975, freedom), freedom) == pytest.approx(0.025, rel=1e-6)
    assert t_tail(-quantile, freedom) == pytest.approx(1 - t_tail(quantile, freedom))


def test_one_degree_of_freedom_is_a_cauchy_distribution() -> None:
    """P(T > t) = 1/2 - atan(t) / pi."""
    for t in (0.0, 0.1, 1.0, 30.0, 1e6):
        assert t_tail(t, 1) == pytest.approx(0.5 - math.atan(t) / math.pi, rel=1e-8)


def test_the_ratio_and_its_interval() -> None:
    """9, 10, 11: relative standard deviation 0.1; twice that beside it: equal relative scatter, so
    df = 4, t = 2.776."""
    found = ratio_of([9.0, 10.0, 11.0], [18.0, 20.0, 22.0])
    assert isinstance(found, Ratio)
    assert found.ratio == pytest.approx(2) and found.freedom == pytest.approx(4)
    assert found.error == pytest.approx(0.1 * math.sqrt(2 / 3))
    assert found.interval[0] == pytest.approx(
        2 * math.exp(-2.776 * found.error), rel=1e-3
    )


def test_the_ratio_is_that_of_the_means_shown() -> None:
    """Also where one run is nearly zero: (0.1 + 20) / 2 against 10."""
    found = ratio_of([10.0, 10.0], [0.1, 20.0])
    assert found is not None and found.ratio == pytest.approx(1.005)


def test_one_run_a_side_has_no_interval() -> None:
    assert ratio_of([10.0], [11.0, 11.1]) is None
    assert ratio_of([-1.0, 0.1], [1.0, 1.1]) is None


def test_a_figure_that_falls_to_zero_is_a_change() -> None:
    """A goodput of 5 requests/s and of none; the other way round the ratio is not known, but the
    change is. Zeros do not differ."""
    fell, rose = (
        ratio_of([5.0, 5.1, 4.9], [0.0, 0.0, 0.0]),
        ratio_of([0.0, 0.0, 0.0], [5.0, 5.1, 4.9]),
    )
    assert fell is not None and rose is not None
    assert (fell.ratio, rose.ratio) == (0, None)
    assert fell.p_below(0.95) < 0.001 < 0.999 < fell.p_above(0.95)
    assert rose.p_above(1.05) < 0.001 and fell.p_value() < 0.001 > rose.p_value()
    same = ratio_of([0.0, 0.0], [0.0, 0.0])
    assert same is not None and same.p_value() == 1


def test_one_zero_among_values_is_no_proof() -> None:
    """5, 5, 0 against 5, 4, 5: a run without a good request may be chance."""
    found = ratio_of([5.0, 4.0, 5.0], [5.0, 5.0, 0.0])
    assert (
        found is not None
        and found.ratio == pytest.approx(10 / 14)
        and found.p_below(0.95) > 0.2
    )


def test_zeros_raise_no_more_alarms_than_other_values() -> None:
    """Counts of a few good requests in each of five runs, 0 among them: 25 of 500 equal pairs at 5
    %, and 2.58 standard errors."""
    rng = random.Random(5)
    alarms = 0
    for _ in range(500):
        base, other = (
            [float(sum(rng.random() < 0.2 for _ in range(8))) for _ in range(5)]
            for _ in "ab"
        )
        found = ratio_of(base, other)
        alarms += isinstance(found, RatioWithZeros) and found.p_value() <= 0.05
    assert alarms <= 25 + 13


def test_values_that_agree_are_not_believed_to_be_exact() -> None:
    """Copies of a run."""
    same = ratio_of([5.0, 5.0, 5.0], [5.0, 5.0, 5.0])
    assert (
        isinstance(same, Ratio)
        and same.error == pytest.approx(LEAST_SPREAD * math.sqrt(2 / 3))
        and same.p_value() == 1
    )


def test_the_interval_covers_the_truth() -> None:
    """95 % of 600 intervals of three and five runs with unequal scatter; 2.58 standard errors of
    that are 2.3 %."""
    rng = random.Random(1)
    covered = 0
    for _ in range(600):
        base = [math.exp(rng.gauss(0, 0.01)) for _ in range(3)]
        found = ratio_of(base, [1.1 * math.exp(rng.gauss(0, 0.03)) for _ in range(5)])
        assert isinstance(found, Ratio)
        covered += found.interval[0] <= 1.1 <= found.interval[1]
    assert covered / 600 == pytest.approx(0.95, abs=0.023)


def test_holm_multiplies_the_smallest_most_and_keeps_the_order() -> None:
    """0.01 x 3; 0.03 x 2 = 0.06; 0.04 x 1 is raised to 0.06."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == []
