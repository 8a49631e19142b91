"""The sketch's quantiles are within 1 % of numpy's, at any scale, and merging is adding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.loadgen.live.sketch import (
    BUCKETS,
    HISTOGRAM_BUCKETS,
    RELATIVE_ERROR,
    bounds_ms,
    bucket_of,
    quantiles_ms,
    quantiles_of_rows_ms,
)


def counts_of(values) -> np.ndarray:
    return np.bincount(bucket_of(np.asarray(values, float)), minlength=BUCKETS)


@given(st.lists(st.floats(0.01, 1e7), min_size=1, max_size=300))
def test_quantiles_are_within_one_percent(values: list[float]) -> None:
    assert RELATIVE_ERROR < 0.01
    found = quantiles_ms(counts_of(values), (0, 50, 90, 99, 100))
    wanted = np.percentile(values, (0, 50, 90, 99, 100))
    assert found == pytest.approx(list(wanted), rel=RELATIVE_ERROR * 1.001)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_no_value_is_lost(values: list[float]) -> None:
    assert counts_of(values).sum() == len(values)


def test_a_bound_belongs_to_the_bucket_that_it_bounds() -> None:
    """Else a histogram's bucket `le` would miss values that equal it."""
    bounds = bounds_ms(HISTOGRAM_BUCKETS)
    assert bounds[0] == pytest.approx(0.1) and bounds[-1] == pytest.approx(1e6)
    assert bucket_of(bounds).tolist() == HISTOGRAM_BUCKETS.tolist()
    assert bucket_of(bounds * 1.001).tolist() == (HISTOGRAM_BUCKETS + 1).tolist()


def test_each_row_has_its_percentiles_and_an_empty_one_none() -> None:
    """Of 1, 2, …, 10 p50 is 5, p90 9 and p99 10: nearest rank."""
    rows = np.array([counts_of(range(1, 11)), np.zeros(BUCKETS, int)])
    p50, p90, p99 = quantiles_of_rows_ms(rows, (50, 90, 99))
    assert [p50[0], p90[0], p99[0]] == pytest.approx([5, 9, 10], rel=0.01)
    assert p50[1] is p90[1] is p99[1] is None
