"""The knee: the stage with the largest product of throughput and speed of one user."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llama_load.metrics.knee import knee, power
from llama_load.metrics.stage_figures import StageFigures
from llama_load.metrics.summary import summarize
from tests.make_records import failed, record, table


def stage(users: int, total: float, each: float) -> StageFigures:
    """A stage with this throughput, and this speed of one user."""
    figures = summarize(table(*(record(n, start_ms=0, gaps_ms=(1000 / each,) * 2) for n in range(users))))
    return StageFigures(str(users), users, None, replace(figures, output_throughput=total), peak=users)


def test_the_knee_is_where_the_product_is_largest() -> None:
    stages = [stage(1, 50, 50), stage(8, 240, 30), stage(32, 256, 8)]
    assert [power(each) for each in stages] == pytest.approx([2500, 7200, 2048])
    assert knee(stages) is stages[1]


def test_there_is_no_knee_at_an_end_or_of_two_stages() -> None:
    assert knee([stage(1, 50, 50), stage(8, 240, 30)]) is None
    assert knee([stage(1, 50, 50), stage(8, 400, 50), stage(32, 1600, 50)]) is None


def test_a_stage_that_is_not_comparable_is_no_knee() -> None:
    stages = [stage(1, 50, 50), stage(4, 150, 40), stage(8, 240, 30), stage(32, 256, 8)]
    bad = replace(stages[2], figures=replace(summarize(table(record(0), failed(1))), output_throughput=240.0))
    assert knee([*stages[:2], bad, stages[3]]) is stages[1]
