"""A plugin of pytest: the fixture `llm_load` runs a load test in a process of its own, and its
figures fail with the verdict.

    def test_chat(llm_load):
        assert llm_load("http://127.0.0.1:8080", users=8, requests=200).p99_ttft_ms < 500

pytest imports this module at every start, so that it imports nothing of llama-load before a run.
"""

from __future__ import annotations

import operator
import os
import re
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from llama_load.analysis.results.run_summary import RunSummary

# Words that make a figure useless; BLURRED only spoils single gaps between tokens.
VALID = "VALID"
BLURRED = "BLURRED"
LATENCY_OF_GAPS = "_itl_"
TIMEOUT_S = 1800.0
FOLDER = "runs/pytest"
USED = pytest.StashKey[list["LlmRun"]]()


# Of a figure with a limit.
Compare = Callable[[float, float], bool]
# pytest leaves out the middle of a value's text beyond 240 characters; the verdict is in a section
# of its own, whole.
MOST_ABOUT = 220


class Figure(float):
    """A figure of a run: a number whose repr, which pytest prints when an assertion fails, has its
    name, verdict and run."""

    def __new__(cls, value: float, name: str, run: LlmRun) -> Figure:
        """`name`: its key in summary.json."""
        figure = super().__new__(cls, value)
        figure._about = f"{name} of {run.folder}; {run.headline}"[:MOST_ABOUT]
        return figure

    _about: str

    def __repr__(self) -> str:
        return f"{float(self):.6g} ({self._about})"


class DoubtfulFigure:
    """A figure that failed checks spoil by at most so much: it can be compared with a limit that no
    doubt within its bound could turn, and used for nothing else."""

    def __init__(self, low: float, high: float, doubt: str) -> None:
        self._low = low
        self._high = high
        self._doubt = doubt

    def __lt__(self, limit: float) -> bool:
        return self._judged(operator.lt, limit)

    def __le__(self, limit: float) -> bool:
        return self._judged(operator.le, limit)

    def __gt__(self, limit: float) -> bool:
        return self._judged(operator.gt, limit)

    def __ge__(self, limit: float) -> bool:
        return self._judged(operator.ge, limit)

    def __repr__(self) -> str:
        about = self._doubt[:MOST_ABOUT]
        return f"{self._low:.6g} to {self._high:.6g} ({about})"

    def _judged(self, compare: Compare, limit: float) -> bool:
        __tracebackhide__ = True  # a failure shows the test's line alone
        of_low = compare(self._low, limit)
        if of_low is not compare(self._high, limit):
            raise AssertionError(self._doubt)
        return of_low


class LlmRun:
    """A finished run. Every key of summary.json that holds a number is an attribute: `p99_ttft_ms`,
    `output_throughput`."""

    def __init__(
        self,
        folder: Path,
        summary: RunSummary,
        accept: Sequence[str],
        used: list[LlmRun],
    ) -> None:
        self.folder = folder
        self.words = summary.words
        self.headline = summary.headline
        self._summary = summary
        self._accept = accept
        self._used = used
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

    def __getattr__(self, name: str) -> Figure | DoubtfulFigure:
        __tracebackhide__ = True  # a failure shows the test's line alone
        figures = {} if name.startswith("_") else self._summary.figures
        if name not in figures:
            known = ", ".join(
                key for key, value in figures.items() if isinstance(value, int | float)
            )
            raise AttributeError(f"a run has no figure {name!r}; it has {known}")

        self._note_use()
        value = figures[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise AssertionError(
                f"{name} of {self.folder} is no number but {value!r}; {self.headline}"
            )
        doubt = self._doubt(name)
        if not doubt:
            return Figure(value, name, self)

        bound = self._summary.bound(name)
        is_few = name in self._summary.doubts() and name not in self._summary.spoiled()
        if bound is None or is_few:
            raise AssertionError(doubt)
        return DoubtfulFigure(*bound.around(name, value), doubt)

    def _doubt(self, name: str) -> str:
        """Why this figure is not certain, or cannot be used; empty where it can."""
        why = self._summary.doubts().get(name)
        if why is not None:
            return f"{name} of {self.folder} is not certain: {why}; {self.headline}"

        accepted = [VALID, *self._accept]
        if LATENCY_OF_GAPS not in name:
            accepted.append(BLURRED)
        if set(self.words) <= set(accepted):
            return ""
        return f"{name} of {self.folder} cannot be used: {self.headline}"

    def _note_use(self) -> None:
        if self not in self._used:
            self._used.append(self)


class LlmLoad:
    """What the fixture `llm_load` is: called, it runs a load test and returns its `LlmRun`."""

    def __init__(self, runs: Path, used: list[LlmRun]) -> None:
        self._runs = runs
        self._used = used

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
        """Run `workload` (a name that `llama-load path` knows, or a locustfile) with these users
        and requests.

        Further keywords are flags: `max_tokens=64` is --max-tokens 64, True a flag without a value,
        a list a repeated one. `accept`: words of the verdict with which figures may be used. A key
        of the server belongs in LLAMA_LOAD_API_KEY.
        """
        __tracebackhide__ = True  # a failure shows the test's line alone
        from llama_load.analysis.results.run_summary import read_summary
        from llama_load.ground.errors import LlamaLoadError
        from llama_load.lab.flag_words import words_of
        from llama_load.lab.start_run import (
            locust_command,
            locustfile_of,
            run_to_its_end,
            typed_command,
        )
        from llama_load.outside.terminal import STARTED_AS

        folder = self._new_folder()
        given = {"users": users, "num_prompts": requests} | flags
        words, secrets = words_of(given)
        variables = secrets | {STARTED_AS: typed_command(url, workload, words)}
        words += ["--run-dir", str(folder)]
        try:
            command = locust_command(locustfile_of(workload), url, words)
            run_to_its_end(command, folder, timeout_s, variables)
        except LlamaLoadError as error:
            # A failure of the test, not of the plugin.
            raise AssertionError(str(error)) from None
        return LlmRun(folder, read_summary(folder), accept, self._used)

    def _new_folder(self) -> Path:
        """A folder that no run has, named after the test. Locust makes it."""
        test = (
            os.environ.get("PYTEST_CURRENT_TEST", "run")
            .rpartition("::")[2]
            .partition(" ")[0]
        )
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', test)[:80]}"
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        if worker:
            name = f"{name}-{worker}"

        folder = self._runs / name
        number = 1
        while folder.exists():
            number += 1
            folder = self._runs / f"{name}-{number}"
        return folder


# ---------------------------------------------------------------------- hooks of pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where run folders are kept."""
    group = parser.getgroup("llama-load")
    group.addoption(
        "--llm-load-runs",
        metavar="DIR",
        help=f"where the fixture llm_load keeps run folders (default {FOLDER})",
    )


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
    """A failed test shows the verdict of its runs, and where their reports are."""
    report = yield
    if report.failed:
        for run in item.config.stash.get(USED, []):
            where = (
                f"{run.headline}\nThe block and all checks: {run.folder}/summary.txt"
            )
            report.sections.append((f"llm_load {run.folder}", where))
    return report
