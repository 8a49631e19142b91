"""Start and end: what a run of one request, a report, --help and a worker cost, beside plain Locust
with one HttpUser.

    .venv/bin/python -m benchmarks.startup [--repeat 3]        # about 10 s a repeat

CPU is that of all processes of the command (user and system time), the first request is the
server's time of it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness import bench, heading
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.simulated import read_log

HERE = Path(__file__).parent
TOKENS = 8
READY_WITHIN_S = 60
SERVER = ("--first-token-ms", "20", "--interval-ms", "5")
COLUMNS = (
    "command",
    "first request (s)",
    "results shown (s)",
    "end (s)",
    "CPU (s)",
    "memory (MiB)",
)


class Timed:
    """A command that has ended: when it printed a mark, when it ended (s after its start), its CPU
    (s) and peak memory (MiB)."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        mark: str = "",
        env: dict[str, str] | None = None,
    ) -> None:
        self.begun_ns = time.monotonic_ns()
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | (env or {}),
            cwd=folder,
            text=True,
        )
        assert process.stdout is not None
        self.shown_s: float | None = None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if mark and self.shown_s is None and mark in line:
                self.shown_s = self.after_s(time.monotonic_ns())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.end_s = self.after_s(time.monotonic_ns())
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{''.join(lines)[-2000:]}")
        self.cpu_s, self.memory_mib = (
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss / 1024,
        )

    def after_s(self, instant_ns: int) -> float:
        """Seconds after the start of the command."""
        return (instant_ns - self.begun_ns) / 1e9


def main() -> None:
    """Measure and print a Markdown table: the least of each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    print(heading())
    print(
        f"least of {arguments.repeat} each\n\n| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}"
    )
    found: dict[str, list[Sequence[float | None]]] = {}
    for _ in range(arguments.repeat):
        for name, figures in measured():
            found.setdefault(name, []).append(figures)
    for name, rows in found.items():
        least = [
            min((each for each in column if each is not None), default=None)
            for column in zip(*rows, strict=True)
        ]
        cells = [
            "" if each is None else f"{each:.0f}" if number == 4 else f"{each:.2f}"
            for number, each in enumerate(least)
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def measured() -> Iterator[tuple[str, Sequence[float | None]]]:
    """One round: the name and the figures of each command."""
    locust, cli = (
        [sys.executable, "-m", "locust"],
        [sys.executable, "-m", "llama_load.cli.main"],
    )
    for name, file, flags, mark in (
        (
            "locust --headless, one HttpUser",
            "http_user.py",
            ["-u", "1"],
            "Shutting down",
        ),
        (
            "llama-load, one request",
            "llama_load_user.py",
            ["-u", "1", "--num-prompts", "1", "--run-dir", "run"],
            "Run folder",
        ),
        (
            "the same without telemetry and report.html",
            "llama_load_user.py",
            [
                "-u",
                "1",
                "--num-prompts",
                "1",
                "--telemetry-interval",
                "0",
                "--no-report-html",
            ],
            "Run folder",
        ),
    ):
        with bench(*SERVER) as against:
            env = {
                "BENCH_OUT": str(against.folder / "out.json"),
                "BENCH_REQUESTS": "1",
                "BENCH_TOKENS": str(TOKENS),
            }
            command = [
                *locust,
                "-f",
                str(HERE / file),
                "--headless",
                "--host",
                against.server.url,
                *flags,
            ]
            run = Timed(command, against.folder, mark, env)
            against.server.stop()
            first_ns = min(
                int(row["received_mono_ns"]) for row in read_log(against.log)
            )
            yield (
                name,
                (
                    run.after_s(first_ns),
                    run.shown_s,
                    run.end_s,
                    run.cpu_s,
                    run.memory_mib,
                ),
            )
            if "run" in flags:
                again = Timed([*cli, "report", "run"], against.folder, "Run folder")
                yield (
                    "llama-load report",
                    (None, again.shown_s, again.end_s, again.cpu_s, again.memory_mib),
                )
    with tempfile.TemporaryDirectory() as name:
        for command in ("--help", "report --help"):
            told = Timed([*cli, *command.split()], Path(name))
            yield (
                f"llama-load {command}",
                (None, None, told.end_s, told.cpu_s, told.memory_mib),
            )
    yield "a worker, until it is ready (memory: resident)", worker()


def worker() -> Sequence[float | None]:
    """A worker process beside a master on this machine."""
    with tempfile.TemporaryDirectory() as name:
        port, log = free_port(), Path(name) / "master.log"
        locust = [
            sys.executable,
            "-m",
            "locust",
            "-f",
            str(HERE / "llama_load_user.py"),
        ]
        env = os.environ | {
            "BENCH_OUT": f"{name}/out.json",
            "BENCH_TOKENS": "1",
            "LLAMA_LOAD_SWARM_KEY": "benchmark-of-the-start",
        }
        address = ["--master-port", str(port)]
        with log.open("wb") as out:
            flags = [
                "--master",
                "--master-bind-host",
                "127.0.0.1",
                "--master-bind-port",
                str(port),
                "--web-port",
                str(free_port()),
            ]
            master = subprocess.Popen(
                [*locust, *flags, "--host", "http://127.0.0.1:9"],
                env=env,
                cwd=name,
                stdout=out,
                stderr=out,
            )
        made: subprocess.Popen[bytes] | None = None
        try:
            _until(log, "Starting web interface", master)
            begun_s = time.monotonic()
            flags = ["--worker", "--master-host", "127.0.0.1", *address]
            made = subprocess.Popen(
                [*locust, *flags],
                env=env,
                cwd=name,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            _until(log, "reported as ready", made)
            ready_s = time.monotonic() - begun_s
            fields = (
                Path(f"/proc/{made.pid}/stat").read_text().rpartition(")")[2].split()
            )
            cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            lines = Path(f"/proc/{made.pid}/status").read_text().splitlines()
            resident_kib = next(
                int(line.split()[1]) for line in lines if line.startswith("VmRSS:")
            )
            return None, None, ready_s, cpu_s, resident_kib / 1024
        finally:
            for process in (made, master):
                if process is not None:
                    process.kill()
                    process.wait()


def _until(log: Path, mark: str, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + READY_WITHIN_S
    while mark not in log.read_text(errors="replace"):
        if time.monotonic() > deadline_s or process.poll() is not None:
            raise SystemExit(
                f"the worker was not ready:\n{log.read_text(errors='replace')[-2000:]}"
            )
        time.sleep(0.01)


if __name__ == "__main__":
    main()
