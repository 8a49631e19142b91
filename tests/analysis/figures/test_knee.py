"""The knee: the stage with the largest product of throughput and speed of one user."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llama_load.analysis.figures.check import limited
from llama_load.analysis.figures.knee import Carried, carried, knee, power
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.figures.summary import summarize
from llama_load.run_folder.vocabulary.bound import Bound
from llama_load.run_folder.vocabulary.slo import Slo
from tests.make_records import failed, record, table


def stage(users: int, total: float, each: float) -> StageFigures:
    """A stage with this throughput, and this speed of one user."""
    figures = summarize(
        table(
            *(record(n, start_ms=0, gaps_ms=(1000 / each,) * 2) for n in range(users))
        )
    )
    return StageFigures(
        str(users), users, None, replace(figures, output_throughput=total), peak=users
    )


def test_the_knee_is_where_the_product_is_largest() -> None:
    stages = [stage(1, 50, 50), stage(8, 240, 30), stage(32, 256, 8)]
    assert [power(each) for each in stages] == pytest.approx([2500, 7200, 2048])
    assert knee(stages) is stages[1]


def test_there_is_no_knee_at_an_end_or_of_two_stages() -> None:
    assert knee([stage(1, 50, 50), stage(8, 240, 30)]) is None
    assert knee([stage(1, 50, 50), stage(8, 400, 50), stage(32, 1600, 50)]) is None


def test_a_stage_that_is_not_comparable_is_no_knee() -> None:
    stages = [stage(1, 50, 50), stage(4, 150, 40), stage(8, 240, 30), stage(32, 256, 8)]
    bad = replace(
        stages[2],
        figures=replace(
            summarize(table(record(0), failed(1))), output_throughput=240.0
        ),
    )
    assert knee([*stages[:2], bad, stages[3]]) is stages[1]


def test_the_load_that_is_carried_is_the_last_before_the_first_that_is_not() -> None:
    """In order of load, whatever the order of the run; a stage that is not comparable ends the
    row."""

    def met(users: int, good: int | None) -> StageFigures:
        figures = replace(
            stage(users, 50, 50).figures, completed=100, good_requests=good
        )
        return StageFigures(str(users), users, None, figures, peak=users)

    stages = [met(8, 80), met(1, 100), met(16, 91), met(4, 90)]
    assert carried(stages) == Carried(stages[3], stages[0], None)
    missed = [met(1, 89), met(4, 100)]
    assert carried(missed) == Carried(None, missed[0], None)
    cut = replace(stages[3], is_whole=False)
    assert carried([stages[1], cut, stages[2]]) == Carried(
        stages[1], cut, "it did not run to its end"
    )
    assert carried([met(1, None)]).why == "an objective was not measured"
    assert carried([stages[1]]) == Carried(stages[1], None, None)


def test_a_stage_is_judged_by_what_is_not_spoiled() -> None:
    """All requests met the objectives, beside a check that failed: merged events spoil the ITL
    alone, a late client the TTFT, cached prompts the stage. A backlog is a load that is not
    carried."""

    def found(check: str, *metrics: str) -> Carried:
        figures = replace(stage(1, 50, 50).figures, completed=100, good_requests=100)
        text = "what was seen"
        return carried(
            [
                StageFigures(
                    "1", 1, None, figures, peak=1, bad=[limited(check, 99.0, text)]
                )
            ],
            metrics,
        )

    assert found("merged_ratio", "ttft", "tpot").best is not None
    assert found("own_delay_p99_ms", "tpot").best is not None
    assert (
        found("own_delay_p99_ms", "ttft", "tpot").why == "CLIENT-BOUND: what was seen"
    )
    assert found("cached_prompt_ratio", "tpot").why == "NOT COMPARABLE: what was seen"
    behind = found("backlog_ratio", "tpot")
    assert (behind.best, behind.why) == (None, None)


def test_a_blurred_stage_may_be_the_knee() -> None:
    """Its rates and its TPOT are right."""
    stages = [stage(1, 50, 50), stage(8, 240, 30), stage(32, 256, 8)]
    blurred = replace(stages[1], bad=[limited("merged_ratio", 0.5, "")])
    assert knee([stages[0], blurred, stages[2]]) is blurred
    late = replace(stages[1], bad=[limited("core_wait_ratio", 0.5, "")])
    assert knee([stages[0], late, stages[2]]) is None


def test_a_doubt_that_could_turn_no_request_does_not_stop_a_goal() -> None:
    """TTFT of 100 ms, of which up to 40 may be the client's: within 5000 whatever the doubt, and over
    50; with 90 a request may have met it."""
    lag = limited("loop_lag_p99_ms", 50.0, "lag", bound=Bound(ms=40.0))

    def judged(limit_ms: float) -> Carried:
        rows = table(record(0), record(1, start_ms=200))
        figures = summarize(rows, slos=(Slo("ttft", limit_ms),))
        one = StageFigures("1", 1, None, figures, peak=1, bad=[lag])
        return carried([one], ["ttft"])

    assert judged(5000).best is not None
    assert (judged(50).best, judged(50).why) == (None, None)
    assert judged(90).why == "CLIENT-BOUND: lag"
