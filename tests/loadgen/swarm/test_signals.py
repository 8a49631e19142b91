"""Ctrl-C and SIGTERM at any instant of a run: exit code 3, never a traceback, and a report as soon
as there is a record."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import (
    Finished,
    Program,
    Simulated,
    environment,
    locust_command,
    start_program,
)
from tests.swarms import own_port, wait_until

# Long enough for the start, the warm-up, four rounds of requests and the report.
LIFE_S = 3.5
AT_A_TIME = 3
TRACES = (
    "Traceback",
    "KeyboardInterrupt",
    "SystemExit",
    "GreenletExit",
    "Exception ignored",
)


@dataclass(frozen=True)
class Case:
    """Signals of one process group: `at` is a share of a run's life, `gap_s` the time to the next
    signal."""

    at: float
    gap_s: float
    signals: tuple[signal.Signals, ...]
    flags: tuple[str, ...]


def drawn(count: int, seed: int) -> list[Case]:
    """This many cases, the same for the same seed: instants spread evenly, so that every part of a
    life gets its share."""
    dice = random.Random(seed)
    return [
        Case(
            (number + dice.random()) / count,
            dice.choice([0.0, dice.random() * 0.03, dice.random()]),
            tuple(
                dice.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM])
                for _ in range(dice.choice([1, 2, 2]))
            ),
            (("--at-end", "wait") if dice.random() < 0.5 else ())
            + (("--processes", "2") if number % 2 else ()),
        )
        for number in range(count)
    ]


def handles_signals(process: subprocess.Popen[str]) -> Callable[[], bool]:
    """Whether the locustfile has come to import us: from then on SIGTERM is handled. (Before, it is
    Python's or Locust's own.)"""

    def found() -> bool:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
        return True

    return found


def command(simulated: Simulated, folder: Path, *flags: str) -> list[str]:
    """A run whose requests take some 0.2 s."""
    load = ("-u", "4", "--num-prompts", "16", "--max-tokens", "10")
    return [*locust_command(simulated.url, folder, *load, *flags), *own_port()]


def start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start it in a separate process group."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        stdout=pipe,
        stderr=pipe,
        text=True,
        env=environment(),
        cwd=folder.parent,
        start_new_session=True,
    )


def send(process: Program, signals: Sequence[signal.Signals], gap_s: float) -> None:
    """One after the other to the whole group, as a terminal does."""
    for number, each in enumerate(signals):
        if number:
            time.sleep(gap_s)  # between two presses of Ctrl-C
        if process.poll() is None:
            os.killpg(process.pid, each)


def finished(process: Program, folder: Path, timeout_s: float = 40) -> Finished:
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"it did not end: {err[-2000:]}")
    return Finished(process.wait(), out, err, folder)


def check(case: Case, done: Finished) -> None:
    """Exit code 3 unless the run was over before; a report of whatever is on record; no
    traceback."""
    assert not any(word in done.err for word in TRACES), (case, done.err)
    is_over = "Run folder:" in done.out
    assert done.code == 3 or (done.code == 0 and is_over), (case, done.code, done.err)
    if not is_over and (done.folder / "run.json").exists():
        assert "before anything was sent" in done.err, (case, done.err)
    if list(done.folder.glob("requests.*")):
        assert done.manifest["end"] in ("interrupted", "complete"), case
        assert (done.folder / "summary.json").exists(), (case, done.err)
        assert (done.code == 3) == (
            "INCOMPLETE" in done.summary["llama_load"]["verdict"]["words"]
        ), (case, done.code)


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(2, 1, id="two"),
        pytest.param(40, 2, id="forty", marks=pytest.mark.heavy),
    ],
)
def test_signals_at_any_instant_end_in_exit_code_3_and_without_a_traceback(
    simulate: Callable[..., Simulated], tmp_path: Path, count: int, seed: int
) -> None:
    """One or two of them to all processes, in one process and with --processes, with and without
    --at-end wait."""
    simulated = simulate("--first-token-ms", "30", "--interval-ms", "15")

    def run(numbered: tuple[int, Case]) -> tuple[Case, Finished]:
        number, case = numbered
        folder = tmp_path / str(number) / "run"
        folder.parent.mkdir()
        process = start(command(simulated, folder, *case.flags), folder)
        wait_until(lambda: process.poll() is not None or handles_signals(process)())
        time.sleep(case.at * LIFE_S)  # any instant of the life of a run
        send(process, case.signals, case.gap_s)
        return case, finished(process, folder)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for case, done in pool.map(run, enumerate(drawn(count, seed))):
            check(case, done)


@pytest.mark.parametrize(
    "processes",
    [
        pytest.param((), id="one"),
        pytest.param(("--processes", "2"), id="swarm", marks=pytest.mark.heavy),
    ],
)
def test_the_first_waits_the_second_cuts_and_the_third_leaves(
    simulate: Callable[..., Simulated], tmp_path: Path, processes: Sequence[str]
) -> None:
    """Requests take 2 minutes: after the first Ctrl-C they go on, after the second they are
    cancelled and reported; a third one 0.3 s later finds the report written, or leaves."""
    simulated = simulate("--interval-ms", "1000")
    flags = ("--max-tokens", "120", "--warmup", "0", "--at-end", "wait", *processes)
    for count in (2, 3):
        folder = tmp_path / str(count) / "run"
        folder.parent.mkdir()
        process = start_program(
            command(simulated, folder, *flags)[2:], folder.parent, environment()
        )
        wait_until((folder / "run.json").exists)  # the preflight is over
        wait_until(lambda: simulated.clients() == 4)
        send(process, [signal.SIGINT], 0)
        time.sleep(0.5)  # it is not to end
        assert process.poll() is None  # it waits for its four requests
        send(process, [signal.SIGINT] * (count - 1), 0.3)
        done = finished(process, folder, timeout_s=30)
        assert done.code == 3, done.err
        assert not any(word in done.err for word in TRACES), done.err
        if count == 2:
            assert done.summary["llama_load"]["cancelled"] == 4
            assert done.manifest["end"] == "interrupted"
            assert "INCOMPLETE" in done.out
        else:
            assert "left without a report" in done.err or "Run folder:" in done.out
        wait_until(lambda: simulated.clients() == 0)
