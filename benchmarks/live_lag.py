"""How long after a change of the load the line of progress shows it, of one process and of a swarm.

    python -m benchmarks.live_lag [--processes 2]

Three stages of 1, 8 and 64 users: at the begin of the second and third, output grows eightfold. What
is measured ends when the newest step of the sparkline is higher than all others. So it contains the
rest of the second in which the stage began: a step is shown when it is over.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import time

from benchmarks.harness import bench, heading, headless_chat
from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.run.progress import LEAST_SPARK, SPARKS

STAGES = (1, 8, 64)
STAGE_S = 8
TOKENS = 100
INTERVAL_MS = 40
COLUMNS = 200
SPARK = re.compile(f"[{SPARKS}]{{{LEAST_SPARK},}}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=0, help="workers of a swarm")
    asked = parser.parse_args()
    with bench("--interval-ms", str(INTERVAL_MS)) as made:
        run_dir = made.folder / "run"
        command = [*headless_chat(), "--host", made.server.url]
        command += ["--stages", ",".join(f"{users}:{STAGE_S}s" for users in STAGES)]
        command += ["--max-tokens", str(TOKENS), "--warmup", "0", "--seed", "1"]
        command += ["--run-dir", str(run_dir), "--loglevel", "ERROR"]
        if asked.processes:
            command += ["--processes", str(asked.processes)]
        sparks = drawn_sparks(command)
        manifest = json.loads((run_dir / "run.json").read_text())

    print(heading())
    of = f"a master and {asked.processes} workers" if asked.processes else "one process"
    lags = []
    for stage, after in zip(manifest["stages"][1:], STAGES[1:], strict=True):
        begun_s = stage["begun_mono_ns"] / NS_PER_S
        lags.append(f"{lag_s(sparks, begun_s):.2f} s ({after} users)")
    print(f"{of}: the growth is seen after {', '.join(lags)}")


def drawn_sparks(command: list[str]) -> list[tuple[float, str]]:
    """Run it in a terminal: when each sparkline was drawn."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    env = os.environ | {"TERM": "xterm-256color"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env):
        os.close(theirs)
        sparks = []
        while True:
            try:
                text = os.read(ours, 1 << 16).decode(errors="replace")
            except OSError:  # the terminal is closed
                break
            at_s = time.monotonic()
            sparks += [(at_s, found) for found in SPARK.findall(text)]
    os.close(ours)
    return sparks


def lag_s(sparks: list[tuple[float, str]], begun_s: float) -> float:
    """Seconds from this instant until the newest step is the highest of all."""
    for at_s, spark in sparks:
        if at_s > begun_s and spark[-1] == SPARKS[-1] and SPARKS[-1] not in spark[:-1]:
            return at_s - begun_s
    return float("nan")


if __name__ == "__main__":
    main()
