"""The knee: the stage with the largest product of throughput and speed of one user."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llama_load.metrics.knee import carried, knee, power
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


def test_the_load_that_is_carried_is_the_last_before_the_first_that_is_not() -> None:
    """In order of load, whatever the order of the run; a stage that is not comparable ends the row."""

    def met(users: int, good: int | None) -> StageFigures:
        figures = replace(stage(users, 50, 50).figures, completed=100, good_requests=good)
        return StageFigures(str(users), users, None, figures, peak=users)

    stages = [met(8, 80), met(1, 100), met(16, 91), met(4, 90)]
    assert carried(stages) is stages[3]
    assert carried([met(1, 89), met(4, 100)]) is None
    assert carried([stages[1], replace(stages[3], is_whole=False), stages[2]]) is stages[1]
    assert carried([met(1, None)]) is None
