"""Poisson arrivals as the server receives them: scheduled at 40/s, with answers that take 1 s.

The gaps of a Poisson process have a coefficient of variation of 1 and no autocorrelation; the
variance of its counts is their mean.

A second table has constant arrivals at 5 to 300/s with answers of 0.1 to 10 s, on 1, 3 and 10
workers: the time from each request's scheduled instant to its receipt by the server, also for
another checkout, if one is given.

.venv/bin/python -m benchmarks.arrivals [CHECKOUT]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.harness import Bench, bench, heading, pair
from llama_load.ground.bundled import bundled
from llama_load.run_folder import load_run
from llama_load.servers.local_ports import free_port

RATE, SECONDS, BASELINE_USERS = 40, 30, 20
SERVER = ("--first-token-ms", "980", "--interval-ms", "20")
CELLS, WORKERS, CELL_S = (
    ((5, 10.0), (60, 0.1), (60, 0.5), (300, 0.5), (300, 10.0)),
    (1, 3, 10),
    6,
)
HERE = Path(__file__).resolve().parent.parent
COUNTED_S = 0.5  # counts are taken in windows of this length


def row(name: str, server: Bench, late: str = "") -> None:
    """The middle 90 % of the requests, from the server's log."""
    received_s = np.sort([entry["received_mono_ns"] for entry in server.truth()]) / 1e9
    received_s = received_s[len(received_s) // 20 : -len(received_s) // 20]
    gaps = np.diff(received_s)
    counts = np.bincount(((received_s - received_s[0]) / COUNTED_S).astype(int))[:-1]
    rate, cv = 1 / gaps.mean(), gaps.std() / gaps.mean()
    lag = np.corrcoef(gaps[:-1], gaps[1:])[0, 1]
    print(
        f"| {name} | {rate:.1f} | {cv:.2f} | {lag:+.2f} | {counts.var() / counts.mean():.2f} | {late} |",
        flush=True,
    )


def baseline() -> None:
    """Users with a random wait_time, the closest that Locust offers."""
    words = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(bundled("benchmarks/poisson_users.py")),
        "--headless",
    ]
    with bench(*SERVER) as server:
        words += [
            "-u",
            str(BASELINE_USERS),
            "-r",
            str(BASELINE_USERS),
            "-t",
            f"{SECONDS}s",
            "--host",
            server.server.url,
            "--loglevel",
            "ERROR",
        ]
        server.run(words, {"BENCH_USERS": str(BASELINE_USERS), "BENCH_RATE": str(RATE)})
        row(f"Locust, {BASELINE_USERS} users with exponential waits", server)


def command(
    workers: int, rate: int, seconds: int, *flags: str, checkout: Path = HERE
) -> list[str]:
    """An open loop on this many workers."""
    words = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(checkout / "locustfiles" / "sharegpt_chat.py"),
        "--headless",
        *flags,
    ]
    words += [
        "--request-rate",
        str(rate),
        "-t",
        f"{seconds}s",
        "--max-tokens",
        "2",
        "--loglevel",
        "ERROR",
    ]
    port = str(free_port())
    return (
        [
            *words,
            "--processes",
            str(workers),
            "--master-port",
            port,
            "--master-bind-port",
            port,
        ]
        if workers > 1
        else words
    )


def ours(workers: int) -> None:
    """The same arrivals from an open loop."""
    with bench(*SERVER) as server:
        folder = server.folder / "run"
        server.run(
            [
                *command(workers, RATE, SECONDS),
                "--warmup",
                "0",
                "--host",
                server.server.url,
                "--run-dir",
                str(folder),
            ]
        )
        late = load_run(folder).records.measured().numbers("late_ms")
        row(
            f"llama-load, {workers} worker{'s' if workers > 1 else ''}",
            server,
            pair(late),
        )


def offsets_ms(workers: int, rate: int, answer_s: float, checkout: Path) -> np.ndarray:
    """For each request: the time from its scheduled instant to its receipt by the server."""
    with bench(
        "--first-token-ms", str(int(answer_s * 1000) - 20), "--interval-ms", "20"
    ) as server:
        folder = server.folder / "run"
        words = command(
            workers, rate, CELL_S, "--arrival", "constant", checkout=checkout
        )
        server.run(
            [*words, "--host", server.server.url, "--run-dir", str(folder)],
            {"PYTHONPATH": str(checkout)},
        )
        records = load_run(folder).records.measured()
        scheduled = dict(
            zip(
                records.strings("request_id"),
                records.instants("scheduled_mono_ns"),
                strict=True,
            )
        )
        log = (
            (entry["request_id"], entry["received_mono_ns"]) for entry in server.truth()
        )
        return np.array(
            [
                (received - scheduled[name]) / 1e6
                for name, received in log
                if name in scheduled
            ]
        )


def cells(
    workers: int, rate: int, answer_s: float, checkouts: list[Path]
) -> Iterator[str]:
    """A row of the second table."""
    yield from (str(rate), f"{answer_s:g}", str(workers))
    for checkout in checkouts:
        found = offsets_ms(workers, rate, answer_s, checkout)
        yield (
            f"{pair(found)} / {found.max():.1f} of {len(found)}"
            if len(found) == rate * CELL_S
            else f"{len(found)} arrived"
        )


if __name__ == "__main__":
    others = [Path(given).resolve() for given in sys.argv[1:]]
    print(heading())
    print(
        f"| {RATE} requests/s asked for | requests/s | CV of gaps | lag-1 autocorrelation | variance/mean of counts | late p50 / p99 (ms) |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    baseline()
    for number in (1, 3):
        ours(number)
    names = " | ".join(
        f"{which} p50 / p99 / most (ms)"
        for which in [*("before" for _ in others), "now"]
    )
    print(f"\n| requests/s | answers (s) | workers | {names} |")
    print("|---:|---:|---:|" + "---:|" * (len(others) + 1))
    for load in product(CELLS, WORKERS):
        (cell_rate, cell_answer_s), count = load
        print(
            "| "
            + " | ".join(cells(count, cell_rate, cell_answer_s, [*others, HERE]))
            + " |",
            flush=True,
        )
