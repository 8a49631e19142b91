"""CPU time of llama-load by thread, in cases of truth, while the server has requests.

    .venv/bin/python -m benchmarks.thread_costs T1 T8

It is CPU time, which other programs change little: their caches add up to a fifth.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from llama_load.ground.processes import with_descendants
from truth.cases import Case, chosen, read_cases
from truth.log import Log, read_log
from truth.server.serving import serving
from truth.tokenizer import make_tokenizer
from truth.tools import tool_named
from truth.units import NS_PER_S
from truth.usage import NS_PER_US
from truth.work import work_of

SAMPLE_S = 0.1
# Our own tests set it; a Locust client without its patches sleeps as a whole.
NOT_PATCHED = "LOCUST_SKIP_MONKEY_PATCH"
MAIN, OTHERS, TELEMETRY = "main thread", "its other threads", "telemetry's process"
Costs = dict[str, int]


def main() -> int:
    """A line per case and thread."""
    for case in chosen(read_cases(), sys.argv[1:]):
        with tempfile.TemporaryDirectory() as scratch:
            log, samples = run(case, Path(scratch))
        begin_ns = min(entry.received_ns for entry in log.entries)
        end_ns = max(entry.ended_ns for entry in log.entries)
        tokens = sum(entry.output_tokens for entry in log.entries)
        inside = [used for at_ns, used in samples if begin_ns <= at_ns <= end_ns]
        seconds = (end_ns - begin_ns) / NS_PER_S
        print(f"{case.id} {case.title}: {tokens} tokens in {seconds:.1f} s")
        for part in (MAIN, OTHERS, TELEMETRY):
            used_us = (inside[-1][part] - inside[0][part]) / NS_PER_US
            print(
                f"  {part:20} {used_us / tokens:6.1f} us/token"
                f" {used_us / 1000 / seconds:6.1f} ms/s"
            )
    return 0


def run(case: Case, folder: Path) -> tuple[Log, list[tuple[int, Costs]]]:
    """The server's log, and CPU ns of each part at several instants."""
    tokenizer = str(make_tokenizer(folder / "tokenizer"))
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    environment.pop(NOT_PATCHED, None)
    samples: list[tuple[int, Costs]] = []
    with serving(case.server, folder / "log", case=case.id) as url:
        work = work_of(case, url, tokenizer)
        command, _ = tool_named("llama-load").commands(work, folder)
        output = subprocess.DEVNULL
        client = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output
        )
        while client.poll() is None:
            samples.append((time.monotonic_ns(), costs(client.pid)))
            time.sleep(SAMPLE_S)
    return read_log(folder / "log"), samples


def costs(client: int) -> Costs:
    """CPU ns so far. The client has one process of its own, that of telemetry."""
    used = dict.fromkeys((MAIN, OTHERS, TELEMETRY), 0)
    for process in with_descendants([psutil.Process(client)]):
        for path in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            part = OTHERS if process.pid == client else TELEMETRY
            if path.parent.name == str(client):
                part = MAIN
            used[part] += int(path.read_text(encoding="ascii").split()[0])
    return used


if __name__ == "__main__":
    sys.exit(main())
