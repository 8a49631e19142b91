"""One cell: one client does one scenario, and what the server's log says of it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from benchmarks.referee.clients import Client, caches
from benchmarks.referee.process_group import ProcessGroup, Usage
from benchmarks.referee.scenarios import CLOSED, Job, Scenario
from truth.arrivals import arrivals
from truth.log import Log, read_log
from truth.matching import errors, lost, rate_errors
from truth.result import Result
from truth.runner import busy
from truth.server.serving import serving
from truth.tokenizer import make_tokenizer
from truth.tools import READING_FAILED
from truth.units import percentile

ENDS_WITHIN_S = 150.0
TAIL = 1500  # characters of a client's output that a failed cell keeps
# our tests set it for themselves; a Locust client without its patches sleeps as a whole
NOT_PATCHED = "LOCUST_SKIP_MONKEY_PATCH"
Cell = dict[str, Any]


def measure(client: Client, scenario: Scenario) -> Cell:
    """The cell as it stands in the results. A client that fails has "failed" instead of figures."""
    with tempfile.TemporaryDirectory(prefix="referee-") as name:
        folder = Path(name)
        group = ProcessGroup(scenario.quota)
        try:
            with (
                serving(scenario.schedule, folder / "truth.jsonl") as url,
                busy(scenario.busy),
            ):
                job = Job(
                    scenario,
                    url,
                    folder,
                    make_tokenizer(caches() / "referee-tokenizer"),
                )
                began, busy_s = time.monotonic(), machine_busy_s()
                usage, problem = _run(client, job, group)
                seconds, busy_s = time.monotonic() - began, machine_busy_s() - busy_s
        finally:
            group.close()
        truth = read_log(folder / "truth.jsonl")
        try:
            result = client.read(job)
        except READING_FAILED as error:
            output = (folder / "client.out").read_text(errors="replace")[-TAIL:]
            return {
                "failed": problem or f"no result ({type(error).__name__}: {error})",
                "output": output,
            }
    cell = judge(result, truth, usage, scenario)
    cell["other_cores"] = (
        busy_s - usage.cpu_s() - truth.server.get("cpu_s", 0.0)
    ) / seconds
    return cell | ({"problem": problem} if problem else {})


def _run(client: Client, job: Job, group: ProcessGroup) -> tuple[Usage, str]:
    """Run the client to its end: what it used, and what went wrong."""
    with (job.folder / "client.out").open("wb") as out:
        process = subprocess.Popen(
            client.command(job),
            env={
                name: value for name, value in os.environ.items() if name != NOT_PATCHED
            }
            | client.env(job),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=job.folder,
            preexec_fn=group.join,
        )
    with group.measure(process.pid) as usage:
        try:
            code = process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return usage, f"did not end within {ENDS_WITHIN_S:g} s"
    return usage, f"exit code {code}" if code else ""


def machine_busy_s() -> float:
    """CPU seconds that all programs of the machine have used since it started."""
    times = psutil.cpu_times()
    return float(
        times.user
        + times.nice
        + times.system
        + getattr(times, "irq", 0.0)
        + getattr(times, "softirq", 0.0)
    )


def judge(result: Result, truth: Log, usage: Usage, scenario: Scenario) -> Cell:
    """All figures of the cell."""
    log = truth.entries
    tokens = sum(entry.output_tokens for entry in log)
    cell: Cell = {
        "errors": {
            name: asdict(error) for name, error in errors(result.requests, log).items()
        },
        "rates": rate_errors(result, log),
        "requests": lost(scenario.requests, result.requests, log),
        "reported": dict(result.reported),
        "memory_mib": usage.memory_mib,
        "note": result.note,
        "server": _server(truth, tokens),
        "date": time.strftime("%Y-%m-%d"),
    }
    if usage.cpu and tokens:
        begin, end = (
            min(entry.received_ns for entry in log),
            max(entry.ended_ns for entry in log),
        )
        cell["cpu_us_per_token"] = usage.cpu_s(begin, end) / tokens * 1e6
        cell["cpu_s"] = usage.cpu_s()
        cell["load_s"] = (end - begin) / 1e9
    if scenario.arrival != CLOSED:
        cell["arrivals"] = arrivals(result.requests, log, scenario.rate_rps)
    return cell


def _server(truth: Log, tokens: int) -> dict[str, float]:
    """The referee's own errors: how late it sent, how long a token took from its log to the
    kernel's timestamp, CPU per token."""
    if not truth.server:
        return {}
    firsts = [
        entry for entry in truth.entries if entry.kernel_ns and entry.kernel_ns[0]
    ]
    delays = [(entry.kernel_ns[0] - entry.sent_ns[0]) / 1e6 for entry in firsts] or [
        0.0
    ]
    return {
        "late_p50_ms": truth.server["late_p50_ns"] / 1e6,
        "late_p99_ms": truth.server["late_p99_ns"] / 1e6,
        "log_to_kernel_p50_ms": percentile(delays, 50),
        "log_to_kernel_p99_ms": percentile(delays, 99),
        "cpu_us_per_token": truth.server["cpu_s"] / tokens * 1e6 if tokens else 0.0,
        "real_time": float(truth.server["priority"] == "real-time"),
    }
