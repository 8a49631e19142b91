"""Rows of which some requests failed: judged on the requests that succeeded in all of them; and
tables with a row per request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llama_load.analysis.comparison.compare import BETTER, NOT_RANKED, compare
from llama_load.analysis.comparison.gates import NOT_JUDGED, PASSED, parse_gate
from llama_load.analysis.comparison.request_answers import (
    COLUMNS,
    Answer,
    Answers,
    answers_in,
)
from llama_load.analysis.comparison.run_folder import folder_run
from llama_load.analysis.comparison.side import Side
from llama_load.analysis.reports.comparison.comparison_tables import runs_of
from llama_load.analysis.reports.request_table import request_rows, request_table
from llama_load.lab.sweep.common_rows import judge_common
from llama_load.lab.sweep.effects import effects
from llama_load.lab.sweep.plan import Column
from llama_load.lab.sweep.rows import Row
from llama_load.lab.sweep.sweep_tables import make_tables
from tests.analysis.comparison.sides import run
from tests.analysis.comparison.test_sources import write_run
from tests.lab.test_sweep_ranking import plan_with, row, shown
from tests.make_records import record, table

ASKED = frozenset(range(40))


def partial(threads: str, speed: float, lost: set[int], *words: str) -> Row:
    """A row of 40 requests without those that it lost; request n has a TTFT of n ms."""
    answered = {}
    for place in ASKED - lost:
        latencies_ms = {"ttft": float(place), "tpot": 20.0, "e2el": 100.0}
        answered[place] = Answer(latencies_ms, 10.0, 5.0)
    values = {"completed": 40 - len(lost), "failed": len(lost), "mean_ttft_ms": 999.0}
    made = row(
        threads,
        speed,
        run(
            words=words or ("FAILED",),
            why="some failed",
            plan="p",
            values=values,
            answers=Answers(ASKED, answered),
        ),
    )
    made.is_ranked, made.cause = False, "FAILED: context exceeded"
    made.figures = {**made.figures, "mean_ttft_ms": 999.0}
    return made


def test_rows_that_lost_the_same_requests_are_ranked() -> None:
    """All figures, as they were measured; without a word on it they would both be † and their
    question unanswered."""
    rows = [partial("4", 10.0, {1, 2, 3}), partial("8", 20.0, {1, 2, 3})]
    assert shown(plan_with(), rows)[0] == [False, False]
    judge_common(rows)
    best, notes = shown(plan_with(), rows)
    assert best == [False, True] and rows[0].number("mean_ttft_ms") == 999.0
    assert (
        "judged on the 37 of 40 requests that succeeded in each of 2 rows; FAILED: context exceeded"
        in notes[0]
    )
    assert effects(plan_with(), rows)[0].ratio == pytest.approx(2.0)


def test_rows_that_lost_few_others_are_judged_on_the_common_ones() -> None:
    """Of 0 to 39 without 0, 1 and 39 the mean is (780 - 40) / 37 = 20 ms on both sides. Rates count
    the others, too."""
    rows = [partial("4", 10.0, {0, 1}), partial("8", 20.0, {0, 39})]
    judge_common(rows)
    assert [each.number("mean_ttft_ms") for each in rows] == [pytest.approx(20.0)] * 2
    assert shown(plan_with(), rows)[0] == [False, False]
    rows[1].figures = {**rows[1].figures, "mean_ttft_ms": 25.0}
    assert shown(plan_with("threads, mean_ttft_ms"), rows)[0] == [True, False]


@pytest.mark.parametrize(
    "other",
    [
        partial("8", 20.0, {1, 2, 3, 4, 5, 6}),
        partial("8", 20.0, {1}, "FAILED", "NOT COMPARABLE"),
    ],
)
def test_rows_that_lost_many_more_or_have_another_flaw_are_not_ranked(
    other: Row,
) -> None:
    """Six failed requests of 40 more than in the other row leave the server idle."""
    rows = [partial("4", 10.0, {1}), other]
    judge_common(rows)
    assert shown(plan_with(), rows)[0] == [False, False] and not rows[0].common_note


def test_the_answers_of_a_run_come_from_its_table(tmp_path: Path) -> None:
    """Warm-up excepted. A prompt that was sent twice leaves them unknown."""
    warm = record(9, prompt_index=0, warmup=True)
    failed = record(1, prompt_index=1, status="timeout")
    folder = write_run(tmp_path / "run", warm, record(0, first_ms=5.0), failed)
    found = folder_run(folder).answers
    assert found is not None
    assert found.asked == {0, 1}
    assert found.answered[0].latencies_ms["ttft"] == 5.0
    assert list(found.answered) == [0]

    numbers = dict.fromkeys(COLUMNS, np.array([1.0, 2.0]))
    is_ok = np.array([True, True])
    assert answers_in(numbers, is_ok) is not None
    assert answers_in(numbers | {"prompt_index": np.array([1.0, 1.0])}, is_ok) is None
    assert answers_in(numbers | {"prompt_index": np.array([np.nan, 1])}, is_ok) is None


def sides(lost_a: set[int], lost_b: set[int]) -> list[Side]:
    """Two sides of three runs in turns; the second has twice the rate."""
    made = []
    for label, places, speed, lost in (
        ("a", (0, 3, 4), 10.0, lost_a),
        ("b", (1, 2, 5), 20.0, lost_b),
    ):
        runs = []
        for place in places:
            measured = partial("4", speed, lost).run
            assert measured is not None
            values = {"output_throughput": speed * (1 + place / 1000)}
            changed = replace(
                measured, date=f"{place:04}", values={**measured.values, **values}
            )
            runs.append(changed)
        made.append(Side(label, runs))
    return made


def test_compare_judges_runs_that_lost_the_same_requests() -> None:
    """All of their figures, with a note, and with the failed ones still shown."""
    found = compare(sides({1, 2, 3}, {1, 2, 3}), [parse_gate("output_throughput:-5%")])
    assert found.changes["output_throughput", 1].outcome == BETTER
    assert not found.reasons and found.gates[0].outcome == PASSED
    note = "judged on the 37 of 40 requests that succeeded in each of 6 runs"
    assert list(found.warnings) == [note]
    assert runs_of(found.sides[0]) == "3 runs, 111 of 120 requests"


def test_compare_ranks_latencies_alone_where_other_requests_failed() -> None:
    """Gates need the same requests: one more that fails passes none."""
    gates = [parse_gate("mean_ttft_ms:+5%")]
    found = compare(sides({0, 1}, {0, 39}), gates)
    assert found.changes["output_throughput", 1].outcome == NOT_RANKED
    assert found.changes["mean_ttft_ms", 1].ratio == pytest.approx(1.0)
    assert found.changes["mean_ttft_ms", 1].outcome != NOT_RANKED
    assert ("mean_itl_ms", 1) not in found.changes  # of all requests, so of none
    assert found.gates[0].outcome == NOT_JUDGED
    (reason,) = found.reasons
    assert reason.text.startswith("a and b did not lose the same requests")


@pytest.mark.parametrize("lost", [set(), {1, 2, 3, 4, 5, 6}])
def test_compare_ranks_nothing_where_many_other_requests_failed(lost: set[int]) -> None:
    found = compare(sides({7, 8, 9}, lost))
    assert found.changes["mean_ttft_ms", 1].outcome == NOT_RANKED
    assert "is partial" in found.reasons[0].text


# ---------------------------------------------------------------------- a row per request


def test_failed_requests_have_a_row() -> None:
    """In the report of a run, and in a sweep with what the verdict and the run say."""
    records = table(
        record(0, workload="document"),
        record(1, workload="vision", status="context_exceeded"),
    )
    shown_table = request_table(records, str)
    assert shown_table is not None
    assert [cells[0].text for cells in shown_table.cells] == [
        "document",
        "vision (context_exceeded)",
    ]
    assert [cell.text for cell in shown_table.cells[1][1:]] == ["n/a"] * 6

    plan = plan_with("threads")
    columns = (Column("task"), Column("elapse_s"))
    plan = replace(
        plan, tables=(replace(plan.tables[0], rows="requests", columns=columns),)
    )
    made = row("4", 10.0, verdict="FAILED", reasons="context_exceeded 1")
    made.requests, made.cause, made.sentences = (
        request_rows(records),
        "FAILED: 1 of 2 failed",
        ["Others' prefill: 48 %."],
    )
    (found,) = make_tables(plan, [made])
    assert [cells[0].text for cells in found.cells] == [
        "document",
        "vision (context_exceeded)",
    ]
    name = "a, u=1, threads=4"
    assert found.notes == (
        f"{name}: 1 of 2 requests failed: context_exceeded 1",
        f"{name}: FAILED: 1 of 2 failed",
        f"{name}: Others' prefill: 48 %.",
    )
    made.is_ranked = True
    assert f"{name}: Others' prefill: 48 %." in shown(plan_with(), [made])[1]
