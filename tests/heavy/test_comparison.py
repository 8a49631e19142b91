"""Comparisons of real runs against simulated servers, and the page in Chromium."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from llama_load.analysis.comparison.compare import BETTER, WORSE, Comparison, compare
from llama_load.analysis.comparison.run_folder import folder_run
from llama_load.analysis.comparison.side import MeasuredRun, Side
from llama_load.analysis.reports.comparison.comparison_page import comparison_page
from tests.analysis.comparison.sides import scattered
from tests.conftest import Finished, Simulated
from tests.heavy.browser import chromium, drawn, opened

pytestmark = pytest.mark.heavy

ROUNDS = 4


def judged(base: Sequence[MeasuredRun], other: Sequence[MeasuredRun]) -> Comparison:
    return compare([Side("base", base), Side("other", other)])


def test_equal_servers_do_not_differ_and_one_ten_percent_slower_does(
    simulate: Callable[..., Simulated],
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """Eight runs of one server in 20 random halves raise at most two alarms; four of a slower one,
    in the order A B B A, are found. The whole measurement is benchmarks/comparison.py. Catches
    noise of real runs that intervals from drawn samples do not have."""
    servers = {
        "base": simulate(
            "--first-token-ms", "60", "--interval-ms", "15", "--jitter-ms", "5"
        ),
        "slower": simulate(
            "--first-token-ms", "66", "--interval-ms", "16.5", "--jitter-ms", "5"
        ),
    }
    numbers = count()
    runs: dict[str, list[MeasuredRun]] = {"base": [], "slower": []}
    for _ in range(ROUNDS):
        for name in ("base", "slower", "base"):
            folder = tmp_path / str(next(numbers))
            done = run_locust(
                servers[name].url,
                "-u",
                "4",
                "--num-prompts",
                "16",
                "--max-tokens",
                "12",
                folder=folder,
            )
            assert done.code == 0, done.err
            # The verdict of a run on a busy machine is not what is tested here.
            runs[name].append(replace(folder_run(folder), words=()))
    rng = random.Random(1)
    halves = [rng.sample(runs["base"], 2 * ROUNDS) for _ in range(20)]
    outcomes = [
        {each.outcome for each in judged(half[:ROUNDS], half[ROUNDS:]).changes.values()}
        for half in halves
    ]
    assert sum(bool(each & {BETTER, WORSE}) for each in outcomes) <= 2
    before_or_after = [2 * number + number % 2 for number in range(ROUNDS)]  # A B B A
    slower = judged([runs["base"][place] for place in before_or_after], runs["slower"])
    assert WORSE in {
        slower.changes[key, 1].outcome for key in ("mean_tpot_ms", "median_tpot_ms")
    }


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")]
)
def test_the_page_opens_in_a_browser_without_a_network(
    width: int, scheme: str, tmp_path: Path
) -> None:
    """All charts are drawn, nothing is requested, no script of a label runs, and nothing is wider
    than the window. Catches a script of the comparison's page that fails, or a request, in a real
    browser."""
    rng = random.Random(1)
    sides = []
    for label in (
        "base",
        "<img src=x onerror=\"document.title='broken'\">",
        "又一个标签" * 6,
    ):
        side = scattered(label, 3, rng, slower=1 + len(sides) / 10)
        samples = {
            "ttft": np.array([rng.gammavariate(4, 25) for _ in range(200)]),
            "itl": np.arange(10.0, 30.0, 0.01),
        }
        sides.append(Side(label, [replace(run, samples=samples) for run in side.runs]))
    page_file = tmp_path / "page.html"
    page_file.write_text(comparison_page([("", compare(sides))]), encoding="utf-8")
    with (
        chromium() as browser,
        opened(browser, page_file.as_uri(), width=width, scheme=scheme) as (page, log),
    ):
        drawn(page)
        assert log.faults == [] and log.requests == []
        assert page.evaluate("document.querySelectorAll('.drawing').length") == 4
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.title().startswith("Comparison of 3 set-ups")
