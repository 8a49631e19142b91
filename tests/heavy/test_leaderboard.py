"""The static page of shared runs, in Chromium, with files of `llama-load share`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from llama_load.analysis.comparison.reasons import MOST_UNLIKE
from llama_load.analysis.reports.shared_run import shared_run
from llama_load.analysis.results.results import analyze
from llama_load.run_folder import load_run
from scripts.record_printed import PRINTED
from tests.conftest import REPOSITORY
from tests.heavy.browser import chromium, opened

pytestmark = pytest.mark.heavy

PAGE = REPOSITORY / "examples" / "leaderboard" / "index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def shared() -> dict[str, Any]:
    return shared_run(analyze(load_run(PRINTED / "demo")))


def variant(
    folder: Path,
    shared: dict[str, Any],
    name: str,
    hardware: str,
    output: float,
    **load: object,
) -> Path:
    """Another run, with this throughput on this hardware, and with this in its load."""
    run = deepcopy(shared)
    run["share"]["load"] |= load
    run["output_throughput"] = output
    run["share"]["hardware_id"] = hardware
    run["share"]["hardware"]["client_cpu"] = hardware
    run["share"]["digests"] = {"requests.parquet": name}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(run))
    return path


def test_sides_are_ranked_only_where_their_intervals_do_not_meet(
    browser: Any, shared: dict[str, Any], tmp_path: Path
) -> None:
    """Fast has 100, 101, 102 and slow 50, 51, 52: apart, with ±2.5 (4.303 / sqrt 3). A single run
    has no interval, so that nobody has a rank beside it. What is not VALID, or the same run twice,
    is not listed. Catches a mistake in the page's JavaScript, which no Python test runs."""
    files = [variant(tmp_path, shared, f"f{n}", "fast", 100.0 + n) for n in range(3)]
    files += [variant(tmp_path, shared, f"s{n}", "slow", 50.0 + n) for n in range(3)]
    broken = json.loads(files[0].read_text())
    broken["llama_load"]["verdict"]["words"] = ["FAILED"]
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(broken))
    with opened(browser, PAGE.as_uri()) as (tab, log):
        tab.set_input_files("#files", [str(file) for file in [*files, files[0], bad]])
        tab.wait_for_selector("tbody tr")
        rows = [
            row.inner_text().split("\t") for row in tab.query_selector_all("tbody tr")
        ]
        assert [(row[0], row[1].split(",")[0], row[3]) for row in rows] == [
            ("1", "fast", "3"),
            ("2", "slow", "3"),
        ]
        assert rows[0][4] == "101.0 ±2.5"
        assert "1 left out" in tab.inner_text("#left-out")
        alone = variant(tmp_path, shared, "alone", "<b>one</b>", 75.0)
        tab.set_input_files("#files", str(alone))
        tab.wait_for_selector("tbody tr:nth-child(3)")
        marks = [row.inner_text()[0] for row in tab.query_selector_all("tbody tr")]
        assert marks == ["–", "–", "–"]
        assert tab.query_selector("tbody b") is None
        tab.set_viewport_size({"width": 400, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert log.faults == []


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        ({"mean_output_tokens": 312.875 * 1.03}, "answers 2.9 % apart"),
        ({"mean_prompt_tokens": 170.59375 * 0.97}, "prompts 3.0 % apart"),
        ({"prompt_cache_intended": True}, "prompts cached on one side"),
        ({"mean_output_tokens": 312.875 * 1.01}, ""),
    ],
)
def test_sides_that_compare_would_not_rank_have_no_rank(
    browser: Any,
    shared: dict[str, Any],
    tmp_path: Path,
    load: dict[str, object],
    reason: str,
) -> None:
    """Catches the same in its rules for what is not ranked."""
    assert f"const MOST_UNLIKE = {MOST_UNLIKE};" in PAGE.read_text()
    files = [variant(tmp_path, shared, f"f{n}", "fast", 100.0 + n) for n in range(3)]
    for n in range(3):
        files.append(variant(tmp_path, shared, f"s{n}", "slow", 50.0 + n, **load))
    with opened(browser, PAGE.as_uri()) as (tab, log):
        tab.set_input_files("#files", [str(file) for file in files])
        tab.wait_for_selector("tbody tr:nth-child(2)")
        rows = [row.inner_text() for row in tab.query_selector_all("tbody tr")]
        assert [row.split("\t")[0] for row in rows] == (
            ["–", "–"] if reason else ["1", "2"]
        )
        for row in rows:
            assert ("not ranked" in row) is bool(reason) and reason in row
        assert log.faults == []
