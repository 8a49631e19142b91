"""CPU cost and timing error of four clients: C and plain gevent that only count bytes, Locust's
HttpUser, llama-load.

    # 64, 400, 800 and 1600 streams of 50 tokens/s, best of three: about 20 minutes
    make bench

    .venv/bin/python -m benchmarks.clients --streams 400 --repeat 1

    # with two processes that use all of two cores
    .venv/bin/python -m benchmarks.clients --streams 64 --hogs 2

After the table it says which goals are met (see `GOALS`).

All run against the simulated server on the same machine; TTFT and ITL are compared with its log.
CPU per token is the client process's user and system time, once from the first request on, once
including start-up and report.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.harness import Cost, bench, heading, pair
from llama_load.analysis.statistics.timing_error import COLUMNS as TRUTH_COLUMNS
from llama_load.analysis.statistics.timing_error import errors_ms
from llama_load.run_folder import load_run

HERE = Path(__file__).resolve().parent
TOKENS = 200
ROUNDS = 2  # requests a stream
C_FLOOR, GEVENT_FLOOR, HTTP_USER, LLAMA_LOAD = CLIENTS = (
    "C floor",
    "gevent floor",
    "HttpUser",
    "llama-load",
)
HOG = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
COLUMNS = (
    *(
        "streams x 50 tok/s",
        "client",
        "CPU us/token",
        "with start-up and report",
        "TTFT error p50 / p99 (ms)",
    ),
    *(
        "ITL error p50 / p99 (ms)",
        "first request after (s)",
        "memory (MiB)",
        "loop lag p99 (ms)",
        "verdict",
    ),
)


@dataclass(frozen=True)
class Figures:
    """One run of one client: us of CPU a token from the first request on; absolute errors in ms;
    loop lag in ms."""

    cpu_us: float
    cost: Cost
    tokens: int
    ttft: Sequence[float]
    itl: Sequence[float]
    lag_ms: float | None
    words: Sequence[str] = ()
    core_busy: float | None = None

    @property
    def whole_us(self) -> float:
        """CPU a token, with start-up and report."""
        return self.cost.cpu_s / self.tokens * 1e6

    @property
    def ttft_p99_ms(self) -> float:
        return float(np.percentile(self.ttft, 99)) if len(self.ttft) else 0.0


@dataclass(frozen=True)
class Best:
    """The best of some runs of one client: by CPU, and by the error of TTFT."""

    cheapest: Figures
    truest: Figures


Table = Mapping[tuple[str, int], Best]


@dataclass(frozen=True)
class Goal:
    """A goal for `streams`: its text, and the figure and its limit in a table; `hogs`: with other
    processes that use all cores."""

    streams: int
    text: str
    figure: Callable[[Table], float]
    limit: float
    hogs: bool = False


def _ttft(streams: int) -> Callable[[Table], float]:
    """The error, 0 where the verdict says that the client was too busy."""

    def figure(table: Table) -> float:
        run = table[LLAMA_LOAD, streams].truest
        return 0.0 if streams > 800 and "CLIENT-BOUND" in run.words else run.ttft_p99_ms

    return figure


GOALS = (
    Goal(64, "64 streams: TTFT error p99, ms", _ttft(64), 0.5),
    Goal(
        400,
        "400 streams: CPU a token in load, us",
        lambda table: table[LLAMA_LOAD, 400].cheapest.cpu_us,
        13.0,
    ),
    Goal(
        400,
        "400 streams: CPU with start-up and report / HttpUser's",
        lambda table: (
            table[LLAMA_LOAD, 400].cheapest.whole_us
            / table[HTTP_USER, 400].cheapest.whole_us
        ),
        0.4,
    ),
    Goal(800, "800 streams: TTFT error p99, ms", _ttft(800), 2.0),
    Goal(
        800,
        "800 streams: share of a core",
        lambda table: table[LLAMA_LOAD, 800].cheapest.core_busy or 0.0,
        0.65,
    ),
    Goal(1600, "1600 streams: TTFT error p99, ms, or CLIENT-BOUND", _ttft(1600), 5.0),
    Goal(
        64,
        "64 streams beside other processes: TTFT error p99, ms",
        _ttft(64),
        2.0,
        hogs=True,
    ),
)


def main() -> None:
    """Measure and print a Markdown table, and which goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 400, 800, 1600])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--hogs",
        type=int,
        default=0,
        help="processes that use a core each, beside client and server",
    )
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=CLIENTS)
    arguments = parser.parse_args()
    print(heading())
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---:|---|" + "---:|" * (len(COLUMNS) - 3) + "---|")
    found: dict[tuple[str, int], Best] = {}
    for streams in arguments.streams:
        for client in arguments.clients:
            if client == C_FLOOR and c_floor() is None:
                continue
            with hogs(arguments.hogs):
                runs = [measure(client, streams) for _ in range(arguments.repeat)]
            best = Best(
                min(runs, key=lambda run: run.cpu_us),
                min(runs, key=lambda run: run.ttft_p99_ms),
            )
            found[client, streams] = best
            print(f"| {' | '.join(row(client, streams, best, runs))} |", flush=True)
    print()
    for goal in GOALS:
        needed = {(client, goal.streams) for client in (LLAMA_LOAD, HTTP_USER)}
        if goal.hogs == bool(arguments.hogs) and needed <= found.keys():
            value = goal.figure(found)
            print(
                f"- {'met' if value <= goal.limit else 'MISSED'}: {goal.text}: {value:.2f} (goal {goal.limit:g})"
            )


def row(client: str, streams: int, best: Best, runs: Sequence[Figures]) -> list[str]:
    """Cells of the table."""
    truest = best.truest
    return [
        str(streams),
        client,
        f"{best.cheapest.cpu_us:.1f}",
        f"{best.cheapest.whole_us:.1f}",
        pair(truest.ttft) if len(truest.ttft) else "",
        pair(truest.itl) if len(truest.itl) else "",
        f"{min(run.cost.startup_s for run in runs):.2f}",
        f"{min(run.cost.memory_mib for run in runs):.0f}",
        "" if truest.lag_ms is None else f"{truest.lag_ms:.2f}",
        ", ".join(truest.words),
    ]


@cache
def c_floor() -> Path | None:
    """The compiled floor.c; None without a compiler, or where there is no epoll."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    program = Path(tempfile.mkdtemp()) / "floor"
    subprocess.run(
        [compiler, "-O2", "-o", str(program), str(HERE / "floor.c")], check=True
    )
    return program


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Other processes that never sleep."""
    running = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def measure(client: str, streams: int) -> Figures:
    """One run of one client."""
    requests = streams * ROUNDS
    with bench() as against:
        out, run = against.folder / "out.json", against.folder / "run"
        locust = [
            sys.executable,
            "-m",
            "locust",
            "--headless",
            "--host",
            against.server.url,
            "--loglevel",
            "ERROR",
        ]
        port = against.server.url.rpartition(":")[2]
        floor = [port, str(streams), str(requests), str(TOKENS)]
        command = {
            C_FLOOR: lambda: [str(c_floor()), *floor],
            GEVENT_FLOOR: lambda: [
                sys.executable,
                str(HERE / "gevent_floor.py"),
                *floor,
            ],
            HTTP_USER: lambda: [
                *(*locust, "-f", str(HERE / "http_user.py"), "--only-summary"),
                *("-u", str(streams), "-r", str(streams)),
            ],
            LLAMA_LOAD: lambda: [
                *(*locust, "-f", str(HERE / "llama_load_user.py"), "-u", str(streams)),
                *("--num-prompts", str(requests), "--run-dir", str(run)),
            ],
        }[client]()
        cost = against.run(
            command,
            {
                "BENCH_OUT": str(out),
                "BENCH_REQUESTS": str(requests),
                "BENCH_TOKENS": str(TOKENS),
            },
        )
        result = json.loads(out.read_text())
        tokens = requests * TOKENS
        cpu_us = result["cpu_s"] / tokens * 1e6
        if client != LLAMA_LOAD:
            ttft, itl = map(np.abs, errors_ms(result["rows"], against.truth()))
            return Figures(cpu_us, cost, tokens, ttft, itl, None)
        rows = load_run(run).records.measured().table.select(TRUTH_COLUMNS).to_pylist()
        ttft, itl = map(np.abs, errors_ms(rows, against.truth()))
        (worker,) = json.loads((run / "run.json").read_text())["workers"]
        words = json.loads((run / "summary.json").read_text())["llama_load"]["verdict"][
            "words"
        ]
        return Figures(
            cpu_us,
            cost,
            tokens,
            ttft,
            itl,
            worker["loop_lag_p99_ms"],
            words,
            worker["core_busy"],
        )


if __name__ == "__main__":
    main()
