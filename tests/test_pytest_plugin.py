"""The pytest plugin: a test of a real server passes or fails with the verdict as its text, and the
run folder is kept."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from llama_load.analysis.results.run_summary import summary_of
from llama_load.cli.pytest_plugin import LlmLoad, LlmRun
from llama_load.lab.flag_words import words_of
from llama_load.run_folder.vocabulary.verdict_words import WORDS
from llama_load.servers.serving.launch import Server
from tests.conftest import REPOSITORY, environment, run_to_the_end

TESTS = """
import pytest

URL = {url!r}

@pytest.fixture(scope="module")
def shared(llm_load):
    return llm_load(URL, users=2, requests=8, max_tokens=4, no_report_html=True, accept={words!r})

def test_passes(shared):
    assert shared.completed == 8
    assert shared.total_output_tokens > 0

def test_fails(shared):
    assert shared.total_output_tokens < 1

def test_too_few_values(shared):
    assert shared.p99_ttft_ms < 1e9

def test_wrong_use(llm_load):
    llm_load(URL, requests=-1)
"""


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # The plugin by its module: its entry point needs a new installation.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "llama_load.cli.pytest_plugin",
        *words,
    ]
    return run_to_the_end(
        command, cwd=folder, env=environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    )


# A run on a busy machine is CLIENT-BOUND, and has no latencies: counts, and every word accepted.
def test_a_test_with_the_fixture_shows_the_verdict_and_keeps_the_run(
    llama_server: Server, tmp_path: Path
) -> None:
    (tmp_path / "test_load.py").write_text(
        TESTS.format(url=llama_server.url, words=WORDS), encoding="utf-8"
    )
    done = run_pytest(tmp_path, "-rA")
    out = done.stdout
    assert "1 passed" in out and "3 failed" in out, out + done.stderr
    runs = list((tmp_path / "runs" / "pytest").iterdir())
    (kept,) = [run for run in runs if (run / "summary.json").exists()]
    # The number with its name, its run and the verdict; the block is in the run folder.
    assert f"(total_output_tokens of {kept}; " in out, out
    assert f"llm_load {kept}" in out and f"{kept}/summary.txt" in out, out
    assert "Successful requests:" not in out
    assert "__tracebackhide__" not in out  # no line of the plugin
    assert "is not certain: 8 values, 100 needed" in out
    assert "num-prompts" in out and "exit code 2" in out


def run_of(
    tmp_path: Path, *words: str, accept: tuple[str, ...] = (), **figures: Any
) -> LlmRun:
    verdict = {"words": list(words), "headline": f"{words[0]}: because"}
    return LlmRun(
        tmp_path,
        summary_of(
            figures
            | {
                "llama_load": {
                    "verdict": verdict,
                    "uncertain": {"p99_itl_ms": "3 values"},
                }
            }
        ),
        accept,
        [],
    )


def test_a_figure_of_a_run_that_is_not_valid_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="cannot be used: CLIENT-BOUND: because"):
        _ = run_of(tmp_path, "CLIENT-BOUND", mean_ttft_ms=5.0).mean_ttft_ms
    assert (
        run_of(
            tmp_path, "CLIENT-BOUND", accept=("CLIENT-BOUND",), mean_ttft_ms=5.0
        ).mean_ttft_ms
        == 5
    )


def busy(tmp_path: Path, **bound: float) -> LlmRun:
    """A run beside other programs, which make the server slower by at most this."""
    check = {
        "name": "other_programs_ratio",
        "ok": False,
        "text": "others",
        "spoils": ["all figures"],
    }
    if bound:
        check["bound"] = bound
    verdict = {
        "words": ["NOT COMPARABLE"],
        "headline": "NOT COMPARABLE: others",
        "checks": [check],
    }
    figures = {"median_ttft_ms": 20.0, "output_throughput": 102.0, "completed": 9}
    summary = summary_of(figures | {"llama_load": {"verdict": verdict}})
    return LlmRun(tmp_path, summary, (), [])


def test_what_no_doubt_within_its_bound_could_turn_is_judged(tmp_path: Path) -> None:
    """Other programs make a server slower, never faster: 20 ms is at most 20, 102 tok/s at least
    102."""
    run = busy(tmp_path, ms=1e12, ratio=1e12)
    assert run.median_ttft_ms < 5000
    assert not run.output_throughput < 10
    with pytest.raises(AssertionError, match="cannot be used: NOT COMPARABLE: others"):
        assert run.median_ttft_ms < 10
    with pytest.raises(AssertionError, match="median_ttft_ms"):
        _ = busy(tmp_path).median_ttft_ms


def test_blurred_spoils_gaps_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, "BLURRED", mean_ttft_ms=5.0, mean_itl_ms=2.0)
    assert run.mean_ttft_ms == 5 and run.verdict == "BLURRED"
    with pytest.raises(AssertionError, match="mean_itl_ms"):
        _ = run.mean_itl_ms


def test_what_is_no_figure_is_explained(tmp_path: Path) -> None:
    run = run_of(tmp_path, "VALID", p99_itl_ms=4.0, mean_ttft_ms=None, completed=3)
    with pytest.raises(AssertionError, match="not certain: 3 values"):
        _ = run.p99_itl_ms
    with pytest.raises(AssertionError, match="is no number but None"):
        _ = run.mean_ttft_ms
    with pytest.raises(
        AttributeError, match="no figure 'p99_tfft_ms'; it has p99_itl_ms, completed"
    ):
        _ = run.p99_tfft_ms


def test_keywords_are_flags() -> None:
    flags = {
        "max_tokens": 64,
        "bust_prefix_cache": True,
        "save_texts": False,
        "fail_if": ["a>1", "b>2"],
        "users": None,
        "x": -1,
    }
    words, secrets = words_of(flags)
    assert not secrets
    assert words == [
        "--max-tokens",
        "64",
        "--bust-prefix-cache",
        "--fail-if",
        "a>1",
        "--fail-if",
        "b>2",
        "--x=-1",
    ]


def test_two_runs_of_a_test_have_folders_of_their_own(tmp_path: Path) -> None:
    load = LlmLoad(tmp_path, [])
    first = load._new_folder()
    first.mkdir()
    assert load._new_folder() != first and "own" in first.name


def test_the_entry_point_names_the_plugin_and_costs_nothing() -> None:
    project = tomllib.loads(
        (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    name = project["entry-points"]["pytest11"]["llama_load"]
    assert import_module(name).llm_load
    code = f"import pytest, sys; before = set(sys.modules); import {name}; print(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    ours = {"llama_load", "llama_load.cli", name}
    imported = set(done.stdout.split())
    assert {module for module in imported if module.startswith("llama_load")} == ours
    assert not imported & {
        "numpy",
        "pyarrow",
        "locust",
        "gevent",
        "msgspec",
        "requests",
    }
