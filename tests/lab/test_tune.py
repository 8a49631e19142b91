"""Tuning: races on a server with a known best setting, and whole tunings with prepared runs."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from benchmarks.search import tuning
from llama_load.cli.main import main
from llama_load.lab.sweep import runner as runner_module
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import DONE, FAILED, Ended
from llama_load.lab.sweep.plan import Setting
from llama_load.lab.sweep.runner import CellRunner
from llama_load.lab.tune.race import NoScore, Raced, race
from llama_load.lab.tune.run_tune import StageRace, sentence
from llama_load.lab.tune.tune_stages import Stage, stage_of

PLAN = """
servers: {a: {llama-server: {program: /bin/true, model: MODEL, args: "-ngl 99"}}}
vary:
  threads: {a.args+: ["-t 4", "-t 8"]}
  slots: {a.args+: ["-np 1", "-np 4"]}
load: {u: 8, num-prompts: 32}
idle-s: 0
"""


def test_the_best_setting_is_found_through_drift() -> None:
    """Speeds drift by 5 % between blocks, and a grid of single runs often takes a wrong setting
    (benchmarks/search.py: 35 of 50)."""
    found = [tuning(seed) for seed in range(12)]
    assert sum(each.found >= 0.97 for each in found) >= 11
    assert sum(each.found_by_grid >= 0.97 for each in found) < 11  # the planted failure
    assert max(each.runs for each in found) <= 192 / 2


def test_runs_that_were_disturbed_leave_the_race_to_the_others() -> None:
    """A tenth of the runs has no score by chance. What lacks a score in three blocks in a row is
    dropped, and
    a single one costs no setting its place."""
    found = [tuning(seed, disturbed=0.1) for seed in range(12)]
    assert sum(each.found >= 0.97 for each in found) >= 11

    def run(number: int, block: int) -> float:
        if number == 1 and block == 0:
            raise NoScore("CLIENT-BOUND", may_pass=True)
        if number == 2:
            raise NoScore("CLIENT-BOUND", may_pass=True)
        return 10.0 + number

    raced = race(3, run, 0)
    assert (raced.winner, raced.is_real, raced.blocks) == (1, True, 4)
    assert raced.dropped[2] == "3 runs in a row were disturbed"
    assert (raced.worse, raced.failures) == ({0}, {2: "CLIENT-BOUND"})


def test_no_real_difference_is_an_answer() -> None:
    """All settings have the same speed: the default stays in 10 of 10."""
    draw = random.Random(4)
    for seed in range(10):
        found = race(4, lambda number, block: 10 * math.exp(draw.gauss(0, 0.005)), seed)
        assert (found.winner, found.is_real) == (0, False)


def test_a_setting_whose_runs_fail_is_dropped() -> None:
    def run(number: int, block: int) -> float:
        if number == 2:
            raise NoScore("it broke")
        return 10.0 + number

    found = race(3, run, 0)
    assert found.winner == 1
    assert found.dropped[2] == "a run failed"
    assert found.failures == {2: "it broke"}
    assert found.gain is not None
    assert found.gain[0] == approx(0.1)

    def fail(number: int, block: int) -> float:
        raise NoScore("it broke")

    nothing = race(2, fail, 0)
    assert not any(nothing.scores)


@pytest.mark.parametrize(
    ("value", "stage"),
    [
        ("-ctv q8_0", "memory"),
        ("--block-size 32", "memory"),
        ("--draft-max 8", "draft"),
        ("-t 4", "throughput"),
    ],
)
def test_the_flags_of_a_setting_decide_its_stage(value: str, stage: str) -> None:
    assert stage_of(Setting("x", ("a",), (value,), ((None, (value,)),))) == stage


def write_plan(folder: Path, before: str = "", after: str = "") -> None:
    (folder / "m.gguf").write_bytes(b"GGUF")
    plan = PLAN.replace(before, after) if before else PLAN
    (folder / "plan.yaml").write_text(plan.replace("MODEL", str(folder / "m.gguf")))


def prepared(monkeypatch: pytest.MonkeyPatch, *, fail: str = "") -> list[str]:
    """In place of runs: goodput by the flags, 8 threads twice as fast, 4 slots 1.5 times."""
    ran: list[str] = []

    def run(runner: CellRunner, cell: Cell) -> Ended:
        def note(entry: Ended) -> Ended:
            runner._folder.note(entry)
            return entry

        labels = " ".join(cell.settings.values())
        ran.append(labels)
        if fail and fail in labels:
            return note(Ended(cell.key, FAILED, reason="it broke"))
        score = (
            (2.0 if "-t 8" in labels else 1.0)
            * (1.5 if "-np 4" in labels else 1.0)
            * (1 + len(ran) % 3 / 1000)
        )
        folder = runner._folder.run_of(cell)
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(
            json.dumps(
                {
                    "request_goodput": score,
                    "llama_load": {"verdict": {"words": ["VALID"]}},
                }
            )
        )
        return note(Ended(cell.key, DONE))

    monkeypatch.setattr(CellRunner, "run", run)
    return ran


def test_a_run_that_other_programs_disturbed_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would have left the race without a score."""
    ran = prepared(monkeypatch)
    calm = CellRunner.run
    disturbed: list[str] = []

    def run(runner: CellRunner, cell: Cell, **rest: Any) -> Ended:
        entry = calm(runner, cell)
        if not disturbed:
            check = {"name": "other_programs_ratio", "ok": False, "text": "others"}
            verdict = {"words": ["NOT COMPARABLE"], "checks": [check]}
            summary = {"llama_load": {"verdict": verdict}}
            file = runner._folder.run_of(cell) / "summary.json"
            file.write_text(json.dumps(summary))
            disturbed.append(cell.key)
        return entry

    monkeypatch.setattr(CellRunner, "run", run)
    monkeypatch.setattr(runner_module, "wait_for_quiet", lambda _: 0.0)
    write_plan(tmp_path, "idle-s: 0", "idle-s: 5")
    words = ["--goodput", "ttft:500", "--out", str(tmp_path / "t")]
    assert main(["tune", str(tmp_path / "plan.yaml"), *words]) == 0
    assert len(ran) == 13
    assert "a run failed" not in capsys.readouterr().out
    assert len(list((tmp_path / "t" / "runs").glob("*.disturbed-1"))) == 1


def test_memory_comes_first_and_the_command_line_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = prepared(monkeypatch)
    write_plan(tmp_path)
    command = [
        "tune",
        str(tmp_path / "plan.yaml"),
        "--goodput",
        "ttft:500",
        "--out",
        str(tmp_path / "t"),
    ]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].startswith("/bin/true")
    assert "-t 8 -np 4" in printed.splitlines()[0]
    assert len(ran) == 12  # two settings in three blocks, twice
    assert all("-t 4" in each for each in ran[:6])
    assert all("-np 4" in each for each in ran[6:])
    found = json.loads((tmp_path / "t" / "tune.json").read_bytes())
    assert [stage["stage"] for stage in found["stages"]] == ["memory", "throughput"]
    assert found["stages"][1]["gain"][0] == approx(1.0, abs=0.01)
    assert "threads=-t 8" in (tmp_path / "t" / "tune.md").read_text()
    assert main(command) == 0  # continued: nothing is run again
    assert len(ran) == 12


def test_the_best_drafts_are_found_for_each_number_of_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In place of runs: 16 draft tokens double what 1 user gets, and halve what 8 get; with 64
    users nothing meets the objectives."""

    def run(runner: CellRunner, cell: Cell) -> Ended:
        entry = Ended(cell.key, DONE)
        (users,) = cell.flags["u"]
        score = 10.0
        if "--draft-max 16" in cell.settings.values():
            score = 20.0 if users == 1 else 5.0
        if users == 64:
            entry = Ended(cell.key, FAILED, reason="it broke")
        folder = runner._folder.run_of(cell)
        folder.mkdir(parents=True)
        told = {
            "request_goodput": score,
            "llama_load": {"verdict": {"words": ["VALID"]}},
        }
        (folder / "summary.json").write_text(json.dumps(told))
        runner._folder.note(entry)
        return entry

    monkeypatch.setattr(CellRunner, "run", run)
    drafts = '  drafts: {a.args+: ["--draft-max 4", "--draft-max 16"]}'
    write_plan(tmp_path, '  threads: {a.args+: ["-t 4", "-t 8"]}', drafts)
    command = ["tune", str(tmp_path / "plan.yaml"), "--goodput", "ttft:500"]
    command += ["--out", str(tmp_path / "t"), "--concurrency", "1,8,64"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    table = printed[printed.index("Drafts by concurrency") :]
    one, eight, many = table.splitlines()[-5:-2]
    assert one.split()[:2] == ["1", "drafts=--draft-max"]
    assert "--draft-max 16" in one and "+100.0 %" in one
    assert "--draft-max 4" in eight and "%" not in eight
    assert "no run can be judged: it broke" in many
    found = json.loads((tmp_path / "t" / "tune.json").read_bytes())
    assert [each["users"] for each in found["drafts_by_concurrency"]] == [1, 8, 64]
    assert (
        found["drafts_by_concurrency"][0]["race"]["winner"] == "drafts=--draft-max 16"
    )

    write_plan(tmp_path)
    assert main([*command[:-4], "--concurrency", "1"]) == 2
    assert "varies none" in capsys.readouterr().err


def test_a_default_that_beats_all_others_is_named_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(monkeypatch)
    write_plan(tmp_path, '["-t 4", "-t 8"]', '["-t 8", "-t 4"]')
    assert (
        main(
            [
                "tune",
                str(tmp_path / "plan.yaml"),
                "--goodput",
                "ttft:500",
                "--out",
                str(tmp_path / "t"),
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert "throughput: the default is the best, threads=-t 8 (3 blocks)" in printed
    assert "memory: slots=-np 4, +" in printed


def test_why_a_setting_has_no_score_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(monkeypatch, fail="-t 4")
    write_plan(tmp_path, '["-t 4", "-t 8"]', '["-t 8", "-t 4"]')
    command = ["tune", str(tmp_path / "plan.yaml"), "--goodput", "ttft:500"]
    assert main([*command, "--out", str(tmp_path / "t")]) == 0
    said = capsys.readouterr().out
    assert "threads=-t 4: a run has no score: it broke" in said
    found = json.loads((tmp_path / "t" / "tune.json").read_bytes())
    assert "no difference to the default was proven, threads=-t 8" in said
    (failed,) = (each for each in found["stages"][-1]["settings"] if each["failure"])
    assert (failed["setting"], failed["failure"]) == ("threads=-t 4", "it broke")


def test_a_default_that_lost_to_a_failed_setting_is_not_the_best() -> None:
    labels = ("threads=4", "threads=8")
    raced = Raced(
        winner=0,
        scores=[[1.0] * 3, [2.0] * 3],
        dropped={0: "worse", 1: "a run failed"},
        worse=frozenset({0}),
        failures={1: "it broke"},
        is_real=False,
        gain=None,
        blocks=4,
    )
    said = sentence(StageRace(Stage("throughput", ()), raced, labels))
    assert "the best" not in said and "too few runs" in said


def test_without_a_good_run_the_tuning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(monkeypatch, fail="-t")
    write_plan(tmp_path)
    assert (
        main(
            [
                "tune",
                str(tmp_path / "plan.yaml"),
                "--goodput",
                "ttft:500",
                "--out",
                str(tmp_path / "t"),
            ]
        )
        == 3
    )
    assert (
        "no run of the stage memory can be judged: it broke; see the runs"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("  slots:", "  users: {flags.u: [1, 2]}\n  slots:"), "changes the load"),
        (("load: {u: 8, num-prompts: 32}", "load: [{u: 8}, {u: 16}]"), "one load"),
        (("load: {u: 8", "repeats: 3\nload: {u: 8"), "leave out repeats"),
    ],
)
def test_plans_that_cannot_be_tuned(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str],
    message: str,
) -> None:
    write_plan(tmp_path, *change)
    assert (
        main(
            [
                "tune",
                str(tmp_path / "plan.yaml"),
                "--goodput",
                "ttft:500",
                "--out",
                str(tmp_path / "t"),
            ]
        )
        == 2
    )
    assert message in capsys.readouterr().err
