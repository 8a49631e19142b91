"""Statistics in pieces are those of the whole sample, to the last bit where numpy's are exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.analysis.statistics.large_sample import describe_pieces
from llama_load.analysis.statistics.statistics import describe

PERCENTILES = [1.0, 50.0, 90.0, 99.0, 99.9]
VALUES = st.floats(width=32, allow_infinity=False) | st.sampled_from([0.0, 7.25, 20.0])


@given(st.lists(VALUES, max_size=300), st.integers(1, 5))
def test_percentiles_and_intervals_are_exactly_those_of_the_sorted_sample(
    values: list[float], pieces: int
) -> None:
    """Any float32 values: negative ones, equal ones, and NaN, which counts as none."""
    sample = np.array(values, dtype=np.float32)
    found = describe_pieces(lambda: np.array_split(sample, pieces), PERCENTILES)
    expected = describe(sample.astype(np.float64), PERCENTILES)
    assert (found.count, found.median, found.intervals) == (
        expected.count,
        expected.median,
        expected.intervals,
    )
    if expected.count:
        for p in PERCENTILES:
            assert found.percentiles[p] == pytest.approx(
                expected.percentiles[p], rel=1e-15, abs=0
            )
        scale = float(np.nanmax(np.abs(sample))) + 1e-300
        assert found.mean == pytest.approx(expected.mean, rel=1e-12, abs=1e-12 * scale)
        assert found.std == pytest.approx(expected.std, rel=1e-9, abs=1e-9 * scale)


def test_a_sample_whose_values_are_all_close_keeps_its_order() -> None:
    """All share the upper half of their bits; neighbours differ in the last."""
    sample = np.nextafter(np.float32(20), np.float32(30)) + np.arange(
        5000, dtype=np.float32
    ) * np.float32(2**-19)
    found = describe_pieces(lambda: [sample[::-1]], PERCENTILES)
    assert found.percentiles[90.0] == np.percentile(sample.astype(np.float64), 90)
