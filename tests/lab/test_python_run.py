"""`llama_load.run` and `llama_load.compare`: runs from Python."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import llama_load
import llama_load.loadgen.run.outcome  # binds the room to the name of the function
from llama_load.ground.errors import RunError, UsageError
from llama_load.lab import python_run
from llama_load.lab.python_run import Result
from llama_load.run_folder.manifest import read_manifest
from llama_load.servers.serving.launch import Server
from tests.conftest import environment


@pytest.fixture(scope="module", autouse=True)
def _in_a_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("runs"))
        yield


def small(url: str, **flags: object) -> Result:
    return llama_load.run(
        url, users=2, requests=4, max_tokens=4, no_report_html=True, **flags
    )


@pytest.fixture(scope="module")
def results(llama_server: Server) -> list[Result]:
    """Of a run in asyncio's thread and of one beside it."""

    def started(**flags: object) -> Result:
        return small(llama_server.url, **flags)

    async def in_asyncio() -> Result:
        return await asyncio.to_thread(started, fail_if="completed>3")

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(started)
        return [asyncio.run(in_asyncio()), other.result()]


def test_a_run_gives_figures_verdict_checks_and_rows(
    results: list[Result], llama_server: Server
) -> None:
    result = results[0]
    assert result.figures["completed"] == 4
    assert result.figures["mean_ttft_ms"] > 0
    # 4 values make no p99
    assert result.figures["p99_ttft_ms"] > 0
    assert "p99_ttft_ms" in result.uncertain and "completed" not in result.uncertain
    assert result.verdict == result.summary.words[0]
    assert result.headline in repr(result)
    assert len(result.checks) > 10
    # with the warm-up's
    assert result.rows.num_rows == 5
    assert (result.exit_code, result.passed) == (1, False)
    assert "Successful requests:" in result.text

    assert "4 of 4 answered" in str(result)
    assert result._repr_html_().startswith("<pre>")
    assert "&#x27;" not in str(result)
    # Nobody can find the interpreter's path in the command that reports suggest.
    command = read_manifest(result.folder).command
    assert command[:5] == ["llama-load", "run", llama_server.url, "--users", "2"]


def test_runs_of_threads_and_of_asyncio_have_folders_of_their_own(
    results: list[Result],
) -> None:
    assert results[0].folder != results[1].folder
    assert [result.figures["completed"] for result in results] == [4, 4]

    compared = llama_load.compare(
        results[0], [results[1].folder], gates="mean_ttft_ms:+5%"
    )
    text = str(compared)
    assert results[0].folder.name in text and results[1].folder.name in text
    assert compared._repr_html_().startswith("<pre>")
    # one run a side proves nothing
    assert (compared.exit_code, compared.passed) == (3, False)


def test_wrong_use_and_no_server_are_errors_with_a_sentence() -> None:
    with pytest.raises(UsageError, match="there is no workload 'sharegptchat'"):
        llama_load.run("http://127.0.0.1:9", workload="sharegptchat")
    with pytest.raises(UsageError, match="cannot reach"):
        small("http://127.0.0.1:9")


def test_a_run_that_takes_too_long_is_ended(llama_server: Server) -> None:
    with pytest.raises(RunError, match=r"took over 0\.1 s"):
        small(llama_server.url, timeout_s=0.1)


def test_a_key_is_on_no_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []

    def run_to_its_end(
        command: list[str], folder: Path, timeout_s: float, variables: dict[str, str]
    ) -> int:
        started.append((command, variables))
        raise RunError("not started")

    monkeypatch.setattr(python_run, "run_to_its_end", run_to_its_end)
    with pytest.raises(RunError, match="not started"):
        llama_load.run("http://127.0.0.1:9", api_key="canary-of-python")
    ((command, variables),) = started
    assert "canary-of-python" not in " ".join(command)
    assert variables["LLAMA_LOAD_API_KEY"] == "canary-of-python"


def test_the_import_of_the_package_brings_none_of_it() -> None:
    code = "import sys, llama_load; print(*(name for name in sys.modules if 'llama_load.' in name))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert done.stdout.split() == []
