"""Distribution functions of samples in pieces, against the whole sample."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from llama_load.analysis.statistics.ecdf import MOST_POINTS, ecdf

RNG = np.random.default_rng(0)
SAMPLES = {
    "one": np.array([7.0]),
    "two": np.array([3.0, 1.0]),
    "few": RNG.lognormal(3, 1, 10),
    "equal": np.full(5000, 20.0),
    "whole numbers": RNG.integers(0, 5, 5000).astype(float),
    "half of them equal": np.concatenate((np.full(2500, 7.0), RNG.random(2500) * 14)),
    "many": RNG.lognormal(3, 1, 150_000),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_curve_of_pieces_is_that_of_the_whole(name: str) -> None:
    values = SAMPLES[name]
    pieces = lambda: np.array_split(np.append(values, np.nan), 7)  # noqa: E731
    curve = ecdf(pieces)
    assert curve is not None
    assert curve.counted == len(values)
    assert len(curve.x) <= MOST_POINTS + 2
    assert curve.share == pytest.approx([np.mean(values <= x) for x in curve.x])
    assert curve.x[-1] == values.max()


def test_a_small_sample_has_all_its_values() -> None:
    curve = ecdf(lambda: [np.array([1.0, 2.0, 2.0, 4.0])])
    assert curve is not None
    assert (list(curve.x), list(curve.share)) == ([1, 2, 4], [0.25, 0.75, 1])


def test_no_values_have_no_curve() -> None:
    assert ecdf(lambda: [np.array([np.nan]), np.zeros(0)]) is None


def test_a_curve_of_many_values_holds_no_piece() -> None:
    """Its sample of 20 pieces held them all in memory: of a million answers, 800 MB."""
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def pieces() -> Iterator[Any]:
        for number in range(20):
            alive.append(sum(ref() is not None for ref in made))
            piece = np.full(50_000, number, dtype=np.float32)
            made.append(weakref.ref(piece))
            yield piece

    curve = ecdf(pieces)
    assert curve is not None
    assert curve.counted == 1_000_000
    assert max(alive) <= 2
