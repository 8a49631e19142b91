"""`llama-load serve` with servers that take minutes to install: an RPC cluster that loses a worker,
vLLM."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llama_load.servers.serving import registry
from llama_load.servers.serving.launch import Server
from tests.conftest import REPOSITORY, Finished, beside, end_with_parent, environment
from tests.swarms import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]


@contextmanager
def served(
    folder: Path, *arguments: str, within_s: float = 300, **env: str
) -> Iterator[tuple[str, subprocess.Popen[bytes], Path]]:
    """`llama-load serve` with these arguments, ready: its URL, its process, its output."""
    output = folder / "serve.out"
    command = [
        sys.executable,
        "-m",
        "llama_load.cli.main",
        "serve",
        "--port",
        "0",
        "--logs",
        str(folder / "logs"),
        *arguments,
    ]
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment() | env,
            preexec_fn=end_with_parent,
        )
    try:
        wait_until(
            lambda: (
                process.poll() is not None or b"Ctrl-C stops" in output.read_bytes()
            ),
            within_s,
        )
        found = re.search(r"is ready at (http://\S+)", output.read_text())
        assert found, output.read_text()
        yield found[1], process, output
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_an_rpc_worker_that_is_killed_is_named_as_the_cause(
    run_locust: Callable[..., Finished],
    llama_cpp_python: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    """It takes the whole server with it: the run ends at once with exit code 3, `serve` with the
    same words. Catches a server's death whose cause stands in the real worker's log."""
    flags = (
        "--program",
        str(llama_cpp_python),
        "--model",
        str(tiny_model),
        "--rpc-workers",
        "2",
    )
    with served(
        tmp_path,
        "llama-cpp-python",
        *flags,
        "--",
        "--n_ctx",
        "2048",
        "--n_threads",
        "1",
    ) as (url, process, output):
        done = run_locust(
            url,
            "--num-prompts",
            "6",
            "-u",
            "1",
            "--max-tokens",
            "20",
            folder=tmp_path / "good",
        )
        assert done.code == 0, done.err
        (described,) = done.summary["llama_load"]["servers"]
        workers = described["rpc"]
        assert len(workers) == 2
        assert all(
            worker["model_mib"] > 0
            and worker["sent_bytes"] > 1000
            and worker["rtt_ms"] > 0
            for worker in workers
        )
        assert described["layers_offloaded"] == described["layers"]
        assert "all 2 used" in " ".join(done.err.split())
        assert not (process.poll() or done.manifest["server_changes"])
        entry = registry.find(int(url.rpartition(":")[2]))
        assert entry is not None
        folder = tmp_path / "killed"

        def kill() -> None:
            # the first answer is on record, the next are on their way
            wait_until((folder / "requests.arrows").exists, 60)
            beside(entry.pid)[1].kill()

        killer = threading.Thread(target=kill)
        killer.start()
        done = run_locust(
            url,
            "--num-prompts",
            "2000",
            "-u",
            "2",
            "--max-tokens",
            "500",
            "-t",
            "60s",
            folder=folder,
        )
        killer.join()
        assert process.wait(30) == 3
    cause = f"the RPC worker {workers[1]['address']} ended (killed by SIGKILL), and the server with it (killed by SIGABRT)"
    assert done.code == 3, done.err
    assert done.manifest["end"] == "server"
    check = next(
        each
        for each in done.summary["llama_load"]["verdict"]["checks"]
        if each["name"] == "server_endings"
    )
    assert check["text"].startswith(cause)
    assert cause in output.read_text()
    assert re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:52411", cause) in " ".join(
        (REPOSITORY / "docs" / "serving.md").read_text().split()
    )
    assert "Remote RPC server crashed" in (folder / "server" / "server.log").read_text()


def test_a_worker_lost_to_a_semicolon_is_reported(
    run_locust: Callable[..., Finished],
    start_llama_cpp_python: Callable[..., Server],
    workers,
) -> None:
    """`a:1;b:2` is one address to llama.cpp; the run says that the second worker computes nothing.
    Catches how llama.cpp reads a list of addresses."""
    first, second = workers[0].split(",")
    server = start_llama_cpp_python(
        "--interrupt_requests", "false", "--n_ctx", "2048", rpc=f"{first};{second}"
    )
    done = run_locust(server.url, "--num-prompts", "4", "-u", "1", "--max-tokens", "8")
    assert done.code == 0, done.err
    check = next(
        each
        for each in done.summary["llama_load"]["verdict"]["checks"]
        if each["name"] == "unused_rpc_workers"
    )
    assert second in check["text"]
    assert "hold no part of the model" in " ".join(done.err.split())


def test_vllm_is_served_and_described(
    run_locust: Callable[..., Finished],
    vllm_python: Path,
    hf_model: Path,
    vllm_env: dict[str, str],
    tmp_path: Path,
) -> None:
    """Catches lines of vLLM's log that changed."""
    flags = (
        "--program",
        str(vllm_python.parent / "vllm"),
        "--model",
        str(hf_model),
        "--wrap",
        "nice -n 5",
    )
    own = (
        "--dtype",
        "float32",
        "--enforce-eager",
        "--max-model-len",
        "2048",
        "--max-num-seqs",
        "4",
    )
    with served(tmp_path, "vllm", *flags, "--", *own, **vllm_env) as (url, process, _):
        done = run_locust(url, "--num-prompts", "4", "-u", "2", "--max-tokens", "8")
        port = int(url.rpartition(":")[2])
        entry = registry.find(port)
        assert entry is not None
        assert any(word.endswith("vllm") for word in entry.command)
    assert process.returncode == 0
    assert done.code == 0, done.err
    (described,) = done.summary["llama_load"]["servers"]
    assert described["is_ours"]
    assert described["slots"] == 4
    assert described["process_threads"] > 1
    assert (done.folder / "server" / "server.log").exists()
    assert registry.find(port) is None


def test_sigint_ends_a_server_in_the_background(
    llama_cpp: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """A shell lets a command behind `&` ignore SIGINT, which `kill -INT` then did not end. Catches
    signals that a shell sets to be ignored."""
    before = signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # it is inherited, as from such a shell
    try:
        with served(
            tmp_path,
            "llama-server",
            "--program",
            str(llama_cpp / "llama-server"),
            "--model",
            str(tiny_model),
        ) as started:
            started[1].send_signal(signal.SIGINT)
            started[1].wait(60)
            assert b"stopping the server" in started[2].read_bytes()
    finally:
        signal.signal(signal.SIGINT, before)
