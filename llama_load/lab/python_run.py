"""Runs and comparisons from Python: in notebooks, scripts, asyncio and threads.

import llama_load
result = llama_load.run("http://127.0.0.1:8080", users=8, requests=200)
result.verdict, result.figures["median_ttft_ms"], result.rows.to_pandas()
"""

from __future__ import annotations

import html
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from llama_load.analysis.results.run_summary import (
    RunSummary,
    SummaryCheck,
    is_number,
    read_summary,
)
from llama_load.ground.exit_codes import GOOD
from llama_load.lab.flag_words import words_of
from llama_load.lab.start_run import (
    TIMEOUT_S,
    locust_command,
    locustfile_of,
    run_to_its_end,
    typed_command,
)
from llama_load.outside.terminal import STARTED_AS

if TYPE_CHECKING:
    import pyarrow as pa

    from llama_load.analysis.comparison.compare import Comparison
    from llama_load.run_folder import Run

RUNS = "runs"
WIDTH = 100  # columns of a comparison
# Folders that runs of this process have got, which may not exist yet.
_given: set[Path] = set()
_lock = Lock()


@dataclass(frozen=True)
class Result:
    """A finished run. In a notebook it shows its first screen, and `print` prints it.

    `exit_code`: 0; 1 where a threshold (`fail_if`) failed; 3 where the run is incomplete.
    """

    folder: Path
    exit_code: int
    summary: RunSummary

    @property
    def passed(self) -> bool:
        """Whether no threshold failed and the run is complete."""
        return self.exit_code == GOOD

    @property
    def verdict(self) -> str:
        """The gravest word of the verdict: VALID, or why the figures cannot be used."""
        words = self.summary.words
        return words[0] if words else ""

    @property
    def headline(self) -> str:
        """The verdict as a sentence."""
        return self.summary.headline

    @property
    def checks(self) -> Sequence[SummaryCheck]:
        """All checks of the verdict: `name`, `ok`, `text`."""
        verdict = self.summary.verdict
        return verdict.checks if verdict is not None else []

    @property
    def figures(self) -> Mapping[str, float]:
        """The figures by their keys in summary.json (docs/metrics.md has units and formulas).

        Also those that must not be relied on, such as a p99 of 64 values: see `uncertain`.
        """
        figures: dict[str, float] = {}
        for part in (self.summary.ours, self.summary.figures):
            for key, value in part.items():
                if is_number(value):
                    figures[key] = value
        return figures

    @property
    def uncertain(self) -> Mapping[str, str]:
        """Figures that must not be relied on, and why."""
        return self.summary.doubts()

    @property
    def rows(self) -> pa.Table:
        """A row per request, those of the warm-up included, with the columns of
        requests.parquet (docs/api.md)."""
        return self._run.records.table

    @property
    def text(self) -> str:
        """The block of `vllm bench serve` with all sections, as summary.txt has it."""
        return (self.folder / "summary.txt").read_text(encoding="utf-8")

    @cached_property
    def screen(self) -> str:
        """The first screen: verdict, causes, figures, where the time went, the next command."""
        from llama_load.analysis.reports.first_screen import first_screen
        from llama_load.analysis.results.results import analyze

        return "\n".join(line.text for line in first_screen(analyze(self._run)))

    @cached_property
    def _run(self) -> Run:
        from llama_load.run_folder import load_run

        return load_run(self.folder)

    def __str__(self) -> str:
        return self.screen

    def __repr__(self) -> str:
        return f"<Result of {self.folder}: {self.headline}>"

    def _repr_html_(self) -> str:
        return _preformatted(self.screen)


@dataclass(frozen=True)
class Compared:
    """A comparison. In a notebook it shows its tables, and `print` prints them.

    `exit_code`: 0; 1 where a gate failed; 3 where one could not be judged. `comparisons`: with
    their titles; several where the runs have stages.
    """

    comparisons: Sequence[tuple[str, Comparison]]
    exit_code: int

    @property
    def passed(self) -> bool:
        """Whether every gate was judged and held."""
        return self.exit_code == GOOD

    def __str__(self) -> str:
        from llama_load.analysis.reports.comparison.comparison_text import (
            comparison_lines,
        )

        lines: list[str] = []
        for title, comparison in self.comparisons:
            if title:
                lines.append(f"== {title} ==")
            lines += comparison_lines(comparison, WIDTH)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return _preformatted(str(self))


# What names a run: itself, its folder, a folder of run folders, a result JSON of vLLM; or several
# of these, which are repeats of one set-up.
Source = Result | str | Path
Side = Source | Sequence[Source]


def run(
    url: str,
    *,
    users: int | None = None,
    requests: int | None = None,
    workload: str = "sharegpt_chat",
    fail_if: str | Sequence[str] = (),
    folder: str | Path | None = None,
    timeout_s: float = TIMEOUT_S,
    api_key: str | None = None,
    **flags: object,
) -> Result:
    """Run a load test in a separate process, wait for its end, and return what it found.

    `workload`: a name that `llama-load path` lists, or a locustfile. `fail_if`: thresholds, such as
    "p99_ttft_ms>500". `folder`: a new folder for the results (default `runs/<time>-<workload>`).
    Further keywords are flags of the run: `max_tokens=64` is --max-tokens 64, True a flag without a
    value, a list a repeated one.

    Raises UsageError (no such workload, a bad flag, no server there) and RunError (no report, or
    it took longer than `timeout_s`). In asyncio: `await asyncio.to_thread(llama_load.run, url)`.
    """
    run_folder = Path(folder) if folder is not None else _new_folder(workload)
    thresholds = [fail_if] if isinstance(fail_if, str) else list(fail_if)
    given = {"users": users, "num_prompts": requests, "fail_if": thresholds}
    words, secrets = words_of(given | flags | {"api_key": api_key})

    environment = secrets | {STARTED_AS: typed_command(url, workload, words)}
    words += ["--run-dir", str(run_folder)]
    command = locust_command(locustfile_of(workload), url, words)
    code = run_to_its_end(command, run_folder, timeout_s, environment)
    return Result(run_folder, code, read_summary(run_folder))


def compare(base: Side, *others: Side, gates: str | Sequence[str] = ()) -> Compared:
    """Which of several set-ups is better, and whether it is so: `llama-load compare` in Python.

    A list of runs are repeats of one set-up; without repeats nothing is proven. `gates`: such as
    "p99_ttft_ms:+5%". Raises UsageError.
    """
    from llama_load.analysis.comparison.compare import compare as compare_sides
    from llama_load.analysis.comparison.gates import exit_code, parse_gate
    from llama_load.analysis.comparison.sources import read_groups

    texts = [gates] if isinstance(gates, str) else gates
    parsed = [parse_gate(text) for text in texts]
    groups = read_groups([_side_argument(side) for side in (base, *others)])
    comparisons = []
    for group in groups:
        comparisons.append((group.title, compare_sides(group.sides, parsed, [])))

    results = [gate for _, comparison in comparisons for gate in comparison.gates]
    return Compared(comparisons, exit_code(results))


def _side_argument(side: Side) -> str:
    """A side as an argument of `llama-load compare`."""
    sources = [side] if isinstance(side, Result | str | Path) else side
    return ",".join(map(_path_of, sources))


def _path_of(source: Source) -> str:
    return str(source.folder if isinstance(source, Result) else source)


def _new_folder(workload: str) -> Path:
    """A folder that no run has, also of those that start in other threads at this moment."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{Path(workload).stem}"
    with _lock:
        folder = Path(RUNS, name)
        number = 1
        while folder in _given or folder.exists():
            number += 1
            folder = Path(RUNS, f"{name}-{number}")
        _given.add(folder)
    return folder


def _preformatted(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"
