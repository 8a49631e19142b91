"""How often `compare` is wrong: pairs of equal servers (A/A), and pairs whose second server is 10 %
slower, five runs a side each.

Two simulated servers with known schedules on this machine; their sides take turns, there and back
(A B B A). Every difference called real between the equal ones is a false alarm; a difference is
found if the mean or the median TPOT is called worse. The same runs, one a side, show what the
scatter within a run would have claimed.

.venv/bin/python -m benchmarks.comparison [PAIRS] [REPEATS] [FOLDER]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.harness import Bench, bench, heading, headless_chat
from llama_load.analysis.comparison.compare import BETTER, WORSE, Comparison, compare
from llama_load.analysis.comparison.run_folder import folder_run
from llama_load.analysis.comparison.side import MeasuredRun, Side

FIRST_TOKEN_MS, INTERVAL_MS, SLOWER = 60.0, 15.0, 1.1
LOAD = (
    "-u",
    "4",
    "--num-prompts",
    "24",
    "--max-tokens",
    "16",
    "--warmup",
    "2",
    "--loglevel",
    "ERROR",
)
RUN_WITHIN_S = 120
SIDES = ("a", "b", "slower")
# A bootstrap of the values within one run of each side, as tools do that compare single runs.
RESAMPLES = 500


def servers(stack: ExitStack) -> dict[str, Bench]:
    """The server of each side; `a` and `b` have one."""

    def serve(factor: float) -> Bench:
        times = (
            "--first-token-ms",
            f"{FIRST_TOKEN_MS * factor:g}",
            "--interval-ms",
            f"{INTERVAL_MS * factor:g}",
        )
        return stack.enter_context(bench(*times, "--jitter-ms", "5"))

    equal = serve(1)
    return {"a": equal, "b": equal, "slower": serve(SLOWER)}


def measure(server: Bench, folder: Path) -> MeasuredRun:
    """One run against it."""
    command = [*headless_chat(), *LOAD]
    command += ["--host", server.server.url, "--run-dir", str(folder)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=RUN_WITHIN_S,
        check=False,
        cwd=server.folder,
    )
    if not (folder / "summary.json").is_file():
        raise SystemExit(f"no results from {' '.join(command)}:\n{done.stderr[-2000:]}")
    return folder_run(folder, with_samples=True)


def judged(base: Sequence[MeasuredRun], other: Sequence[MeasuredRun]) -> Comparison:
    """The comparison, without the verdicts of the runs: this machine is busy with the servers,
    too."""
    sides = [[replace(run, words=()) for run in runs] for runs in (base, other)]
    return compare([Side("base", sides[0]), Side("other", sides[1])])


def alarms(comparison: Comparison) -> list[str]:
    """The metrics whose difference is called real."""
    return [
        key
        for (key, _), change in comparison.changes.items()
        if change.outcome in (BETTER, WORSE)
    ]


def within_run_alarm(base: MeasuredRun, other: MeasuredRun) -> bool:
    """Whether a bootstrap of single requests (mean E2EL, 95 %) calls these two runs different."""
    rng = np.random.default_rng(0)
    a, b = base.samples["e2el"], other.samples["e2el"]
    means = [
        rng.choice(b, len(b)).mean() - rng.choice(a, len(a)).mean()
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(means, (2.5, 97.5))
    return bool(low > 0 or high < 0)


def main(pairs: int, repeats: int, root: Path) -> None:
    """Print a line per pair, and the counts."""
    print(heading(), flush=True)
    false_alarms = found = single_alarms = flagged = 0
    with ExitStack() as stack:
        hosts = servers(stack)
        for pair in range(1, pairs + 1):
            runs: dict[str, list[MeasuredRun]] = {side: [] for side in SIDES}
            for repeat in range(repeats):
                for side in SIDES if repeat % 2 == 0 else SIDES[::-1]:
                    runs[side].append(
                        measure(hosts[side], root / str(pair) / side / str(repeat))
                    )
            equal, slower = (
                alarms(judged(runs["a"], runs["b"])),
                judged(runs["a"], runs["slower"]),
            )
            tpot = [
                slower.changes[key, 1] for key in ("mean_tpot_ms", "median_tpot_ms")
            ]
            false_alarms += bool(equal)
            found += any(change.outcome == WORSE for change in tpot)
            single_alarms += sum(
                within_run_alarm(a, b)
                for a, b in zip(runs["a"], runs["b"], strict=True)
            )
            flagged += sum(bool(run.words) for side in SIDES for run in runs[side])
            shown = ", ".join(
                f"{change.outcome} ({change.ratio or 0:.3f})" for change in tpot
            )
            print(
                f"pair {pair}: equal: {', '.join(equal) or 'none real'}; slower, mean and median TPOT: {shown}",
                flush=True,
            )
    print(f"\nequal servers: {false_alarms} of {pairs} pairs with a false alarm")
    print(f"10 % slower: found in {found} of {pairs} pairs")
    print(
        f"within-run bootstrap, one run a side: {single_alarms} of {pairs * repeats} equal pairs called different"
    )
    print(
        f"runs whose own verdict was not VALID on this machine: {flagged} of {pairs * repeats * len(SIDES)}"
    )


if __name__ == "__main__":
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        main(
            int(given[0]) if given else 20,
            int(given[1]) if given[1:] else 5,
            Path(given[2] if given[2:] else name),
        )
