"""Runs that did not take turns prove nothing: error rates under a drift, by simulation."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from llama_load.analysis.comparison.change_intervals import holm, ratio_of
from llama_load.analysis.comparison.compare import BETTER, NO_TURNS, WORSE, compare
from llama_load.analysis.comparison.gates import NOT_JUDGED, parse_gate
from llama_load.analysis.comparison.order import against_order, confounding
from llama_load.analysis.comparison.side import Side
from llama_load.analysis.reports.comparison.comparison_page import comparison_page
from tests.analysis.comparison.sides import FIGURES, run, scattered, side

IN_TURNS, ALTERNATING, IN_BLOCKS = "ABBAABBAAB", "ABABABABAB", "AAAAABBBBB"


def ordered(
    order: str,
    rng: random.Random,
    drift: float,
    slower: float = 1.0,
    rhythm: float = 0.0,
) -> list[Side]:
    """Two sides whose runs were taken in this order."""
    sides = []
    for name, factor in (("A", 1.0), ("B", slower)):
        places = [place for place, each in enumerate(order) if each == name]
        sides.append(
            scattered(name, len(places), rng, 0.01, factor, drift, rhythm, places)
        )
    return sides


def is_alarm(sides: Sequence[Side]) -> bool:
    """Whether a difference is called real."""
    return any(
        change.outcome in (BETTER, WORSE) for change in compare(sides).changes.values()
    )


def is_alarm_of_welch(sides: Sequence[Side]) -> bool:
    """The same without regard to the order."""
    ratios = [
        ratio
        for key in FIGURES
        if (ratio := ratio_of(sides[0].values(key), sides[1].values(key))) is not None
    ]
    return min(holm([ratio.p_value() for ratio in ratios])) <= 0.05


def share(
    pairs: int,
    judge: Callable[[Sequence[Side]], bool],
    order: str,
    drift: float,
    slower: float = 1.0,
    rhythm: float = 0.0,
) -> float:
    rng = random.Random(19)
    return (
        sum(judge(ordered(order, rng, drift, slower, rhythm)) for _ in range(pairs))
        / pairs
    )


def test_a_drift_is_a_difference_only_to_those_who_ignore_the_order() -> None:
    """Equal servers whose runs get slower by 2 % each. Without regard to the order nine of ten
    pairs in blocks are called different; with it none is, nor in turns."""
    assert share(30, is_alarm_of_welch, IN_BLOCKS, 0.02) >= 0.85
    assert share(30, is_alarm, IN_BLOCKS, 0.02) == 0
    assert share(30, is_alarm, IN_TURNS, 0.02) == 0


@pytest.mark.parametrize("order", [IN_TURNS, "ABBA", "AABBAABBAABB"])
@pytest.mark.parametrize("drift", [0.0, 0.005])
def test_runs_in_turns_raise_five_false_alarms_in_a_hundred_at_most(
    order: str, drift: float
) -> None:
    """With 20 pairs over three come once in 62 times where the rate is 5 %; these are at 0 to 1."""
    assert share(20, is_alarm, order, drift) <= 0.15


def test_a_second_run_of_each_pair_that_is_faster_is_no_difference() -> None:
    """Equal servers, the second of each pair of runs 2 % faster. With A B A B half of the pairs
    would be called different, so that order is not judged; with A B B A the rhythm adds to the
    scatter."""
    assert share(20, is_alarm_of_welch, ALTERNATING, 0.0, rhythm=-0.02) >= 0.3
    assert share(20, is_alarm, ALTERNATING, 0.0, rhythm=-0.02) == 0
    assert share(20, is_alarm, IN_TURNS, 0.0, rhythm=-0.02) <= 0.125


def test_a_real_difference_is_found_in_turns_also_under_a_small_drift() -> None:
    assert share(20, is_alarm, IN_TURNS, 0.005, slower=1.1) >= 0.9


def test_the_order_is_measured_by_the_t_of_a_pure_drift() -> None:
    """Worked examples of the module's text."""
    assert confounding([0, 2, 4], [1, 3, 5]) == pytest.approx(
        1 / (4 / 3 + 4 / 3) ** 0.5
    )
    assert confounding([0, 2, 4, 6, 8], [1, 3, 5, 7, 9]) == pytest.approx(0.5)
    assert confounding([0, 3], [1, 2]) == 0 and confounding(
        [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]
    ) == pytest.approx(5)
    assert confounding([0.5, 0.5], [2.5, 2.5]) == float("inf")


def dated(label: str, *dates: str) -> Side:
    return side(label, *(run(date, date=date) for date in dates))


def test_blocks_and_unknown_orders_are_named_and_never_judged() -> None:
    """Whichever was first; not with a single run a side."""
    for sides in (
        [dated("a", "1", "2"), dated("b", "3", "4")],
        [dated("b", "3", "4"), dated("a", "1", "2")],
    ):
        comparison = compare(sides, [parse_gate("mean_tpot_ms:+5%")])
        assert {change.outcome for change in comparison.changes.values()} == {NO_TURNS}
        assert (
            comparison.gates[0].outcome == NOT_JUDGED
            and "did not take turns" in comparison.gates[0].text
        )
        (warning,) = comparison.warnings
        assert "did not take turns" in warning and comparison.next_commands[
            0
        ].startswith("for i in ")
        page = comparison_page([("", comparison)])
        assert (
            "The runs did not take turns: a difference may be drift." in page
            and "NO DIFFERENCE PROVEN" not in page
        )
    unknown = against_order(dated("a", "", ""), dated("b", "1", "2"))
    assert unknown is not None and unknown.startswith(
        "when the runs of a and b were taken is not known"
    )
    alternating = against_order(dated("a", "1", "3"), dated("b", "2", "4"))
    assert (
        alternating is not None
        and "always have the same order (A B A B)" in alternating
        and "A B B A" in alternating
    )
    assert against_order(dated("a", "1", "4"), dated("b", "2", "3")) is None
    assert against_order(dated("a", "1"), dated("b", "2", "3")) is None
