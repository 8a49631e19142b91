"""Many files of others together have one budget: each of them is within its limits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from llama_load.analysis.comparison.run_folder import folder_run
from llama_load.analysis.results import budget_of_command
from llama_load.analysis.results.run_summary import SUMMARY
from llama_load.cli.main import main
from llama_load.outside.budget import (
    CommandBudget,
    TooMuchWork,
    one_budget,
    spend_bytes,
)
from llama_load.outside.foreign_json import decode_foreign
from tests.run_folder.test_links_of_others import ended_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    ended_run(folder / "run00")
    for number in range(1, 20):
        shutil.copytree(folder / "run00", folder / f"run{number:02}")
    return folder


def test_what_is_read_by_a_command_is_counted_together() -> None:
    with (
        pytest.raises(TooMuchWork, match="together"),
        one_budget(CommandBudget(100_000)),
    ):
        for _ in range(1000):
            decode_foreign(b'{"a": [1, 2]}')


def test_a_reader_that_takes_the_refusal_for_damage_does_not_hide_it() -> None:
    with pytest.raises(TooMuchWork, match="together"), one_budget(CommandBudget(10)):
        try:
            spend_bytes(decoded=11)
        except ValueError:
            pass
    with one_budget(CommandBudget(10), ends=False), pytest.raises(TooMuchWork):
        spend_bytes(decoded=11)


def test_without_a_command_nothing_is_counted() -> None:
    spend_bytes(decoded=1 << 60)


def spent_on(run: Path) -> CommandBudget:
    """What one folder takes."""
    whole = CommandBudget(0, 0)
    with one_budget(budget := CommandBudget(1 << 40, 1 << 40)):
        folder_run(run)
    whole.decoded_left = (1 << 40) - budget.decoded_left
    whole.kept_left = (1 << 40) - budget.kept_left
    return whole


# Stages and flags of a folder are read, too.
READINGS = 4


@pytest.mark.parametrize("limit", ["MOST_DECODED_BYTES", "MOST_KEPT_BYTES"])
def test_twenty_folders_get_no_more_than_ten(
    limit: str,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The limit is lowered to what about five of these folders take."""
    folders = sorted(map(str, runs.iterdir()))
    taken = spent_on(runs / "run00")
    most = 5 * READINGS * taken.decoded_left
    if limit == "MOST_KEPT_BYTES":
        most = 5 * taken.kept_left
    monkeypatch.setattr(budget_of_command, limit, most)
    assert main(["compare", *folders[:2]]) == 0
    assert main(["compare", *folders]) == 2
    assert "name fewer of them" in capsys.readouterr().err


def test_a_list_of_runs_has_a_budget(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", str(runs)]) == 0
    monkeypatch.setattr(budget_of_command, "MOST_DECODED_BYTES", 100_000)
    assert main(["runs", str(runs)]) == 2
    assert "name fewer of them" in capsys.readouterr().err


def test_stages_are_counted_before_a_folder_is_read_for_each(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / "run", tmp_path / "other"]
    for folder in folders:
        shutil.copytree(runs / "run00", folder)
        document = json.loads((folder / SUMMARY).read_text())
        stage = {"users": 1, "completed": 1}
        stages = {f"stage {number}": stage for number in range(20_000)}
        document["llama_load"]["by_stage"] = stages
        (folder / SUMMARY).write_text(json.dumps(document))
    for sides in (folders[:1], folders):
        assert main(["compare", *map(str, sides)]) == 2
        assert "20000 sides are too many" in capsys.readouterr().err
