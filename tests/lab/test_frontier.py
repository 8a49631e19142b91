"""The frontier of a sweep: what of its settings another one beats in both, and what is drawn."""

from __future__ import annotations

from pytest import approx

from llama_load.lab.sweep.frontier import Point, frontier_chart, frontier_points
from llama_load.lab.sweep.mean_interval import MeanInterval
from llama_load.lab.sweep.rows import Row


def row(threads: str, tok_per_s: float, tpot_ms: float, **changed: object) -> Row:
    """A row of one setting at one load."""
    facts = {"threads": threads, "server": "s", "load": "u=4", "gpus": "2"}
    figures = {"output_throughput": tok_per_s, "mean_tpot_ms": tpot_ms}
    found = Row(facts=facts, repeat=1, place=0, figures=figures)
    for name, value in changed.items():
        setattr(found, name, value)
    return found


def test_a_point_is_the_mean_of_its_repeats_per_gpu() -> None:
    """100 and 120 tokens/s on two GPUs: 55; t with one degree of freedom is 12.706."""
    rows = [row("1", 100, 20), row("1", 120, 20), row("2", 90, 10)]
    first, second = frontier_points(rows, ["threads"])
    assert (first.name, first.means) == ("1", (50, 55))
    assert first.per_gpu.half == approx(12.706 * 5, rel=1e-4)
    assert second.per_gpu == MeanInterval(45, None)


def test_rows_that_are_not_ranked_or_not_measured_have_no_point() -> None:
    rows = [row("1", 100, 20), row("2", 90, 10, is_ranked=False), Row({}, 1, 0)]
    assert [point.per_gpu.mean for point in frontier_points(rows, ["threads"])] == [50]


def test_a_point_that_is_worse_in_both_is_dominated() -> None:
    def point(one_user: float, per_gpu: float) -> Point:
        return Point("", MeanInterval(one_user, None), MeanInterval(per_gpu, None))

    assert point(1, 1).is_dominated_by(point(2, 1))
    assert not point(1, 1).is_dominated_by(point(1, 1))
    assert not point(3, 1).is_dominated_by(point(2, 9))


def test_the_chart_counts_the_frontier_and_one_point_has_none() -> None:
    rows = [row("1", 100, 20), row("2", 90, 10), row("3", 80, 30)]
    chart = frontier_chart(rows, ["threads"], str)
    assert chart is not None
    assert chart.summary == "2 of 3 settings and loads are on the frontier."
    assert frontier_chart(rows[:1], ["threads"], str) is None
