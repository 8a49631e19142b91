"""Which figures of a stage a failed check marks as uncertain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llama_load.analysis.figures.check import Check, limited
from llama_load.analysis.figures.check_limits import CHANGED
from llama_load.analysis.figures.spoiled import failed_in
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.results.keys import spoiled
from tests.make_records import manifest, record, table

SLOWED = replace(limited(CHANGED, 2.0, "TPOT was 2.0 x as high"), stage="1")
SAME = limited(CHANGED, 1.0, "no change", detects=1.2)
TOO_FEW = limited(CHANGED, 1.0, "only changes of TPOT by 2.00 x", detects=2.0)
UNKNOWN = limited(CHANGED, None, "27 requests: too few")


def stage(name: str, main: Check) -> StageFigures:
    figures = summarize(table(record(0)))
    return StageFigures(name, 8, None, figures, main=(main,))


def spoiled_in(checks: list[Check], of: StageFigures) -> dict[str, str]:
    return spoiled(manifest(), checks, of.figures, of)


@pytest.mark.parametrize(
    ("own", "is_marked"), [(SAME, False), (TOO_FEW, True), (UNKNOWN, True)]
)
def test_a_change_of_the_server_in_one_stage_may_have_lasted_in_another(
    own: Check, is_marked: bool
) -> None:
    """Unless that one has enough requests to show that the server was the same in it."""
    doubts = spoiled_in([SLOWED], stage("2", own))
    assert ("mean_tpot_ms" in doubts) == is_marked
    assert ("output_throughput" in doubts) == is_marked
    if is_marked:
        assert doubts["mean_tpot_ms"].startswith("in stage 1 TPOT was 2.0 x as high; ")


def test_another_flaw_of_one_stage_marks_no_other() -> None:
    late = replace(limited("late_p99_ms", 1e9, "late"), stage="1")
    assert not late.ok
    assert spoiled_in([late], stage("2", UNKNOWN)) == {}


def test_a_failure_of_one_stage_is_no_failure_of_another() -> None:
    """Nor where it fails the sum of the run, too. What fails in none of them alone, and what a
    proxy does, is about all."""
    late = limited("late_p99_ms", 1e9, "late", spoils=("TTFT",))
    held = limited("held_back_ratio", 1.0, "held back")
    of_2 = replace(late, stage="2")
    assert not late.ok
    assert failed_in([late, of_2], "1") == []
    assert failed_in([late, of_2], "2") == [of_2]
    assert failed_in([late], "1") == [late]
    assert failed_in([replace(held, stage="2")], "1") == [replace(held, stage="2")]
    assert spoiled_in([late, of_2], stage("1", SAME)) == {}
    assert "mean_ttft_ms" in spoiled_in([late, of_2], stage("2", SAME))
