"""A plugin of pytest: the fixture `llm_load` runs a load test in a process of its own, and its figures fail with the verdict.

    def test_chat(llm_load):
        assert llm_load("http://127.0.0.1:8080", users=8, requests=200).p99_ttft_ms < 500

pytest imports this module at every start, so that it imports nothing of llama-load before a run.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from llama_load.analysis.run_summary import RunSummary

# Words that make a figure useless; BLURRED only spoils single gaps between tokens.
VALID, BLURRED = "VALID", "BLURRED"
LATENCY_OF_GAPS = "_itl_"
MOST_ERROR_LINES = 20
TIMEOUT_S = 1800.0
FOLDER = "runs/pytest"
USED = pytest.StashKey[list["LlmRun"]]()


# pytest leaves out the middle of a value's text beyond 240 characters; the verdict is in a section of its own, whole.
MOST_ABOUT = 220


class Figure(float):
    """A figure of a run: a number whose repr, which pytest prints when an assertion fails, has its name, verdict and run."""

    def __new__(cls, value: float, name: str, run: LlmRun) -> Figure:
        """`name`: its key in summary.json."""
        figure = super().__new__(cls, value)
        figure._about = f"{name} of {run.folder}; {run.headline}"[:MOST_ABOUT]
        return figure

    _about: str

    def __repr__(self) -> str:
        return f"{float(self):.6g} ({self._about})"


class LlmRun:
    """A finished run. Every key of summary.json that holds a number is an attribute: `p99_ttft_ms`, `output_throughput`."""

    def __init__(self, folder: Path, summary: RunSummary, accept: Sequence[str], used: list[LlmRun]) -> None:
        self.folder, self._summary, self._accept, self._used = folder, summary, accept, used
        self.words, self.headline = summary.words, summary.headline
        self._note_use()

    @property
    def verdict(self) -> str:
        """The gravest word of the verdict: VALID, or why the figures cannot be used."""
        self._note_use()
        return self.words[0]

    @property
    def text(self) -> str:
        """The block, as it was printed."""
        return (self.folder / "summary.txt").read_text(encoding="utf-8")

    def __getattr__(self, name: str) -> Figure:
        figures = {} if name.startswith("_") else self._summary.figures
        if name not in figures:
            known = ", ".join(key for key, value in figures.items() if isinstance(value, int | float))
            raise AttributeError(f"a run has no figure {name!r}; it has {known}")
        self._note_use()
        value = figures[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise AssertionError(f"{name} of {self.folder} is no number but {value!r}; {self.headline}")
        if (why := self._summary.doubts().get(name)) is not None:
            raise AssertionError(f"{name} of {self.folder} is not certain: {why}; {self.headline}")
        bad = [word for word in self.words if word not in (VALID, *self._accept)]
        if LATENCY_OF_GAPS not in name:
            bad = [word for word in bad if word != BLURRED]
        if bad:
            raise AssertionError(f"{name} of {self.folder} cannot be used: {self.headline}")
        return Figure(value, name, self)

    def _note_use(self) -> None:
        if self not in self._used:
            self._used.append(self)


class LlmLoad:
    """What the fixture `llm_load` is: called, it runs a load test and returns its `LlmRun`."""

    def __init__(self, runs: Path, used: list[LlmRun]) -> None:
        self._runs, self._used = runs, used

    def __call__(
        self,
        url: str,
        *,
        users: int | None = None,
        requests: int | None = None,
        workload: str = "sharegpt_chat",
        accept: Sequence[str] = (),
        timeout_s: float = TIMEOUT_S,
        **flags: object,
    ) -> LlmRun:
        """Run `workload` (a name that `llama-load path` knows, or a locustfile) with these users and requests.

        Further keywords are flags: `max_tokens=64` is --max-tokens 64, True a flag without a value, a list a repeated one.
        `accept`: words of the verdict with which figures may be used. A key of the server belongs in LLAMA_LOAD_API_KEY.
        """
        from llama_load.analysis.run_summary import read_summary

        folder = self._new_folder()
        command = [sys.executable, "-m", "locust", "-f", _locustfile(workload), "--headless", "--loglevel", "WARNING"]
        command += ["--host", url, "--run-dir", str(folder), *_words({"users": users, "num_prompts": requests} | flags)]
        code, errors = _run(command, timeout_s)
        if not (folder / "summary.json").is_file():
            shown = "\n".join(errors.splitlines()[-MOST_ERROR_LINES:])
            raise AssertionError(f"llama-load made no report (exit code {code}):\n{shown}")
        return LlmRun(folder, read_summary(folder), accept, self._used)

    def _new_folder(self) -> Path:
        """A folder that no run has, named after the test. Locust makes it."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "run").rpartition("::")[2].partition(" ")[0]
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', test)[:80]}"
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        number = 1
        while (folder := self._runs / "-".join(filter(None, [name, worker, str(number) if number > 1 else ""]))).exists():
            number += 1
        return folder


def _locustfile(workload: str) -> str:
    from llama_load.bundled import bundled, find_bundled

    if Path(workload).is_file():
        return workload
    names = [name for name in find_bundled(workload) if name.endswith(".py")]
    if len(names) != 1:
        raise AssertionError(f"there is no workload {workload!r}; 'llama-load path' lists them, or give a locustfile")
    return str(bundled(names[0]))


def _words(flags: dict[str, object]) -> list[str]:
    words: list[str] = []
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is True:
                words.append(flag)
            elif item is not None and item is not False:
                words += [f"{flag}={item}"] if str(item).startswith("-") else [flag, str(item)]
    return words


def _run(command: list[str], timeout_s: float) -> tuple[int, str]:
    """Its exit code and what it wrote to stderr. At the timeout its whole process group ends."""
    env = {name: value for name, value in os.environ.items() if name not in ("LOCUST_SKIP_MONKEY_PATCH", "LLAMA_LOAD_RUN_DIR")}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True, env=env
    )
    try:
        errors = process.communicate(timeout=timeout_s)[1]
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the run took over {timeout_s:g} s; give it fewer requests, or a larger timeout_s") from None
    finally:  # also when the test is interrupted
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, errors


# ---------------------------------------------------------------------- hooks of pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where run folders are kept."""
    group = parser.getgroup("llama-load")
    group.addoption("--llm-load-runs", metavar="DIR", help=f"where the fixture llm_load keeps run folders (default {FOLDER})")


@pytest.fixture(scope="session")
def llm_load(pytestconfig: pytest.Config) -> LlmLoad:
    """Run a load test: llm_load(url, users=8, requests=200). The run folder is kept."""
    given = pytestconfig.getoption("--llm-load-runs")
    runs = Path(given) if given else pytestconfig.rootpath / FOLDER
    return LlmLoad(runs.absolute(), pytestconfig.stash.setdefault(USED, []))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the runs of the test before."""
    item.config.stash.setdefault(USED, []).clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the verdict and the block of its runs."""
    report = yield
    if report.failed:
        for run in item.config.stash.get(USED, []):
            report.sections.append((f"llm_load {run.folder}", run.text))
    return report
