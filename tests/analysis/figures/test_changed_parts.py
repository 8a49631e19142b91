"""Changes that the whole run dilutes or does not judge: of later turns, of one workload, of few
requests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from llama_load.analysis.checks.same import changes
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.summary import summarize
from llama_load.run_folder.observed.record import RequestRecord
from tests.make_records import record, table


def changed(made: list[RequestRecord]) -> Check:
    """The check of the run's time."""
    records = table(*made)
    found = {
        check.name: check
        for check in changes(Evidence(records=records, figures=summarize(records)))
    }
    return found["changed_ratio"]


def users(
    count: int,
    until_s: float,
    of: Callable[[int, float], tuple[float, int, dict[str, object]]],
    first_ms: float = 100,
) -> list[RequestRecord]:
    """Each of these users sends one request after the other; `of` (number, instant in s) gives its
    gap, gaps and fields."""
    draw = np.random.default_rng(0)
    made: list[RequestRecord] = []
    for user in range(count):
        at_ms = user * 37.0
        number = 0
        while at_ms < until_s * 1000:
            gap_ms, gaps, fields = of(user + number, at_ms / 1000)
            each_ms = [float(gap) for gap in gap_ms * draw.lognormal(0, 0.05, gaps)]
            made.append(
                record(
                    len(made),
                    start_ms=at_ms,
                    first_ms=first_ms,
                    gaps_ms=tuple(each_ms),
                    **fields,
                )
            )
            at_ms += first_ms + sum(each_ms) + 1
            number += 1
    return made


def turn(
    number: int, at_s: float, *, factor: float
) -> tuple[float, int, dict[str, object]]:
    """Of conversations of five turns, whose prompts grow and whose gaps grow a little with them;
    slower from 60 s on."""
    place = number % 5
    gap_ms = 10.0 * (1 + 0.03 * place) * (factor if at_s >= 60 else 1)
    return (
        gap_ms,
        50,
        {"turn": 1 + place, "prompt_tokens": 100 + 250 * place, "cached_tokens": None},
    )


def test_a_server_that_slows_down_in_conversations_is_named() -> None:
    """Four times as slow from half of the time on; unchanged it is not named."""
    check = changed(users(4, 120, lambda number, at_s: turn(number, at_s, factor=4)))
    assert not check.ok and check.value == pytest.approx(4, rel=0.15)
    assert check.text.startswith("TPOT was")

    assert changed(users(4, 120, lambda number, at_s: turn(number, at_s, factor=1))).ok


def test_one_workload_of_several_that_slows_down_is_named() -> None:
    """A third of the requests, twice as slow from half of the time on: the whole run hides it in
    its scatter."""

    def mixed(number: int, at_s: float) -> tuple[float, int, dict[str, object]]:
        workload = ("chat", "code", "documents")[number % 3]
        gap_ms = {"chat": 10.0, "code": 4.0, "documents": 25.0}[workload]
        return (
            gap_ms * (2 if workload == "code" and at_s >= 60 else 1),
            50,
            {"workload": workload},
        )

    check = changed(users(4, 120, mixed))
    assert not check.ok and check.value == pytest.approx(2, rel=0.2)
    assert check.text.startswith("TPOT of code was")


def test_few_requests_show_a_large_change_by_their_gaps() -> None:
    """36 requests of 200 tokens whose gaps grow from 8 to 38 ms: too few for slices of requests.
    Steady ones pass, with the least change that they would have shown."""
    check = changed(users(4, 40, lambda _, at_s: (8 + 30 * at_s / 40, 200, {})))
    assert not check.ok and check.value is not None and check.value > 2

    steady = changed(users(4, 40, lambda _, at_s: (20.0, 200, {})))
    assert steady.ok and steady.detects is not None and steady.detects <= 2
