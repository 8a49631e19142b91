"""Whether the verdict is CLIENT-BOUND where the client's figures are wrong, and only there; and
whether planted flaws are named.

The same load on an idle machine and together with processes that burn CPU; client and server share
the cores. For each run: the error of mean and p99 of TTFT and E2EL against the server's log, and
the verdict. Then the table of `benchmarks.flaws`.

.venv/bin/python -m benchmarks.verdicts
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import msgspec
import numpy as np

from benchmarks import flaws
from benchmarks.harness import bench, heading, headless_chat
from llama_load.run_folder import load_run

# First token (ms), interval (ms), tokens: a CPU-only server whose answers take seconds, and a fast
# one.
SERVERS = {
    "answers of seconds": (500, 20, 50),
    "answers of half a second": (50, 10, 30),
}
BURNERS = (0, 2, 4, 8)
USERS, SLOTS, REQUESTS = 8, 4, 120


def row(name: str, burners: int) -> str:
    """One run together with this many processes that burn CPU."""
    first_ms, interval_ms, tokens = SERVERS[name]
    schedule = (
        "--first-token-ms",
        str(first_ms),
        "--interval-ms",
        str(interval_ms),
        "--slots",
        str(SLOTS),
    )
    with bench(*schedule) as server, ExitStack() as stack:
        for _ in range(burners):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        command = headless_chat()
        command += [
            "--host",
            server.server.url,
            "-u",
            str(USERS),
            "--num-prompts",
            str(REQUESTS),
            "--max-tokens",
            str(tokens),
        ]
        server.run(
            [*command, "--run-dir", str(server.folder / "run"), "--loglevel", "ERROR"]
        )
        log = {entry["request_id"]: entry for entry in server.truth()}
        ok = load_run(server.folder / "run").records.measured().ok()
        truths = [log[request_id] for request_id in ok.strings("request_id")]
        verdict = msgspec.json.decode(
            (server.folder / "run" / "summary.json").read_bytes()
        )["llama_load"]["verdict"]
    cells = []
    for column, last in (("ttft_ms", 0), ("e2el_ms", -1)):
        seen = ok.numbers(column)
        true = np.array(
            [
                (entry["sent_mono_ns"][last] - entry["received_mono_ns"]) / 1e6
                for entry in truths
            ]
        )
        cells += [
            f"{seen.mean() / true.mean() - 1:+.2%}",
            f"{np.percentile(seen, 99) / np.percentile(true, 99) - 1:+.2%}",
        ]
    return (
        f"| {name} | {burners} | {' | '.join(cells)} | {', '.join(verdict['words'])} |"
    )


def main() -> None:
    """Print the table."""
    print(heading())
    print(
        "| server | burning processes | mean TTFT | p99 TTFT | mean E2EL | p99 E2EL | verdict |"
    )
    print("|---|---:|---:|---:|---:|---:|---|")
    for name in SERVERS:
        for burners in BURNERS:
            print(row(name, burners), flush=True)
    flaws.main(())


if __name__ == "__main__":
    main()
