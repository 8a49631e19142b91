"""llama-bench's own figures beside the server's, where its program and the model file are here."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from llama_load.analysis.comparison.llama_bench import BenchTest, bench_tests
from llama_load.ground.errors import UsageError
from llama_load.ground.own_modules import child_environment
from llama_load.lab.bench.bench_runs import BenchRun
from llama_load.lab.sweep.tests_load import GENERATE, PROCESS
from llama_load.run_folder.observed.server_description import ServerDescription

PROGRAM = "llama-bench"
REPETITIONS = 3
# Flags that both programs have under the same names; with a value.
SAME_FLAGS = (
    ("-t", "--threads"),
    ("-ngl", "--gpu-layers", "--n-gpu-layers"),
    ("-b", "--batch-size"),
    ("-ub", "--ubatch-size"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-sm", "--split-mode"),
    ("-mg", "--main-gpu"),
    ("-ts", "--tensor-split"),
)


def bench_command(
    server: ServerDescription,
    model: str | None,
    tests: Sequence[BenchRun],
    depths: Sequence[int],
) -> list[str] | None:
    """The command of llama-bench for these tests at these depths, with the server's flags.

    None: the program, the model file or the server's command is not here.
    """
    program = shutil.which(PROGRAM)
    is_here = urlsplit(server.url).hostname in ("127.0.0.1", "localhost", "::1")
    if program is None or not is_here or not model or not Path(model).is_file():
        return None
    if server.command is None:
        return None  # with other threads or layers it would be another test

    lengths = {PROCESS: "0", GENERATE: "0"}
    for test in tests:
        lengths[test.kind] = str(test.tokens)
    # fmt: off
    command = [
        program, "-m", model, "-o", "json", "-r", str(REPETITIONS),
        "-p", lengths[PROCESS], "-n", lengths[GENERATE],
        "-d", ",".join(map(str, depths)),
    ]
    # fmt: on
    if server.threads:
        command += ["-t", str(server.threads)]
    return command + _flags_of_both(
        shlex.split(server.command), has_threads=bool(server.threads)
    )


def _flags_of_both(words: Sequence[str], *, has_threads: bool) -> list[str]:
    found = []
    for short, *long in SAME_FLAGS:
        if short == "-t" and has_threads:
            continue
        for place, word in enumerate(words[:-1]):
            if word == short or word in long:
                found += [short, words[place + 1]]
                break
    return found


def run_llama_bench(command: Sequence[str], limit_s: float) -> list[BenchTest]:
    """Its tests. UsageError: it failed, took too long, or printed something else."""
    with tempfile.TemporaryDirectory(prefix="llama-load-") as folder:
        output = Path(folder, "bench.json")
        with output.open("wb") as file:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.DEVNULL,
                    timeout=limit_s,
                    check=False,
                    env=child_environment(),
                )
            except subprocess.TimeoutExpired:
                raise UsageError(f"{PROGRAM} took over {limit_s:.0f} s") from None
        if done.returncode:
            raise UsageError(f"{PROGRAM} ended with exit code {done.returncode}")
        return bench_tests(output)


def speeds(tests: Sequence[BenchTest]) -> dict[str, float]:
    """llama-bench's tokens per second by the name of the test."""
    found = {}
    for test in tests:
        if test.avg_ts > 0:
            found[test.name] = test.avg_ts
    return found


def decode_sentence(
    tests: Sequence[BenchTest], client_ms: float | None, server_ms: float | None
) -> str | None:
    """Where a token's time goes; None: not everything is known.

    `client_ms`, `server_ms`: time per output token as the client and the server saw it, means.
    """
    decode = next((test for test in tests if test.is_decode and test.avg_ts > 0), None)
    if decode is None or client_ms is None or server_ms is None:
        return None
    own_ms = 1e3 / decode.avg_ts
    slower = 1 - own_ms / client_ms
    return (
        f"a token takes {own_ms:.2f} ms in llama-bench and {client_ms:.2f} ms here "
        f"({100 * slower:.0f} % of the speed lost): {server_ms - own_ms:+.2f} ms are the "
        f"server's own work beside the model (sampling, JSON, threads), "
        f"{client_ms - server_ms:+.2f} ms HTTP and the network"
    )
