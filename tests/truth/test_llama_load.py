"""Our own client through the quick suite; `make test-heavy` runs all suites by the command of its
users."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import environment, start_program
from truth.cases import Answers, Case, Load, Machine, chosen, read_cases
from truth.finding import Level
from truth.judge import Verdict, judge
from truth.log import read_log
from truth.runner import paused
from truth.server.serving import serving
from truth.tokenizer import make_tokenizer
from truth.tools import tool_named
from truth.work import work_of

MODULES = {"locust": "locust", "llama-load": "llama_load.cli.main"}


def shared_run(case: Case) -> tuple[Load, Answers, Machine]:
    return case.load, case.server, case.machine


def quick_runs() -> list[list[Case]]:
    """The cases of the quick suite, those of a run together."""
    cases = sorted(
        chosen(read_cases(), ["quick"]), key=lambda case: str(shared_run(case))
    )
    return [list(group) for _, group in groupby(cases, shared_run)]


def run_in_forks(cases: list[Case], folder: Path) -> list[Verdict]:
    """As `truth run --tool llama-load` does, without the cost of a start of each command."""
    tool = tool_named("llama-load")
    tokenizer = make_tokenizer(folder / "tokenizer")
    with serving(cases[0].server, folder / "log") as url:
        for command in tool.commands(work_of(cases[0], url, str(tokenizer)), folder):
            words = [MODULES[command[0]], *command[1:]]
            program = start_program(words, folder, environment())
            with paused(program.pid, cases[0].machine):
                program.communicate(timeout=60)
    result = tool.read(tool.result(folder))
    log = read_log(folder / "log")
    return [judge(case, log, result) for case in cases]


def name_of(cases: list[Case]) -> str:
    return " ".join(case.id for case in cases)


def judges_the_clock(cases: list[Case]) -> bool:
    """Also where a count is judged by the time for each token."""
    return any(
        (case.rule == "times" or "tpot" in case.limits) and not case.machine.pause_ms
        for case in cases
    )


def what_is_wrong(verdict: Verdict) -> str:
    """The end of a failure: pytest cuts longer texts in their middle."""
    wrong = [
        f"{finding.figure} is {finding.truth}, seen {finding.seen}, limit {finding.limit}"
        for finding in verdict.findings
        if finding.level < Level.RIGHT
    ]
    return f"{verdict.case.id} {verdict.word} {verdict.failed}: {'; '.join(wrong)}"


def with_marks(cases: list[Case]) -> Any:
    marks = [pytest.mark.timing] if judges_the_clock(cases) else []
    return pytest.param(cases, id=name_of(cases), marks=marks)


@pytest.mark.parametrize("cases", [with_marks(cases) for cases in quick_runs()])
def test_llama_load_passes_the_quick_suite(cases: list[Case], tmp_path: Path) -> None:
    """Counts and faults at the level of the case. Beside other tests arrivals may be late, if that
    is known."""
    for verdict in run_in_forks(cases, tmp_path):
        if verdict.void:
            pytest.skip(verdict.void)
        if verdict.case.suite == "arrivals":
            assert verdict.level >= Level.ADMITTED, what_is_wrong(verdict)
        else:
            assert verdict.passed, what_is_wrong(verdict)
