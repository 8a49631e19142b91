"""Whole runs against llama-cpp-python's real server, and against one that computes on RPC workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.serving.process import Running, free_port
from tests.conftest import Finished

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]
PATIENT = ("--interrupt_requests", "false", "--n_ctx", "2048")


def test_a_run_whose_tokens_are_counted_by_events(
    run_locust: Callable[..., Finished], start_llama_cpp_python: Callable[..., Running]
) -> None:
    """It never tells usage; one request at a time; connections are used again."""
    server = start_llama_cpp_python(*PATIENT)
    done = run_locust(server.url, "--num-prompts", "12", "-u", "3", "--max-tokens", "20", "--fail-if", "failed>0")
    assert done.code == 0, done.err
    (target,) = done.manifest["targets"]
    assert (target["backend"], target["model"]) == ("llama-cpp-python", "tiny")
    records = done.records.measured()
    assert records.values_of("token_source") == ["events"]
    assert records.values_of("prompt_token_source") == ["plan"]
    assert records.equals("connection_reused", True).sum() > 0
    text = " ".join((done.err + done.out).split())
    assert "one request at a time" in text
    assert "output tokens of 12 requests are counted events" in text


def test_streams_that_the_server_interrupts_are_cut_off(
    run_locust: Callable[..., Finished], start_llama_cpp_python: Callable[..., Running]
) -> None:
    """By default a new request ends the running one, with [DONE] or without, but without a finish_reason. That is no success."""
    server = start_llama_cpp_python("--n_ctx", "2048")
    done = run_locust(server.url, "--num-prompts", "12", "-u", "3", "--max-tokens", "600", "--keep-long-prompts")
    assert done.code == 1, done.err
    assert "cut_off" in set(done.records.measured().failed().strings("status"))


def test_a_prompt_beyond_the_context_is_an_empty_answer(
    run_locust: Callable[..., Finished], start_llama_cpp_python: Callable[..., Running], tmp_path: Path
) -> None:
    locustfile = tmp_path / "long.py"
    locustfile.write_text(
        "from locust import task\nfrom llama_load import LlamaUser\n\n\n"
        "class Long(LlamaUser):\n    @task\n    def ask(self):\n        self.chat('word ' * 9000, max_tokens=4)\n"
    )
    server = start_llama_cpp_python(*PATIENT)
    done = run_locust(server.url, "--num-prompts", "2", "-u", "1", locustfile=locustfile)
    assert done.code == 1
    assert set(done.records.measured().strings("status")) == {"empty_answer"}
    assert "exceeds the context" in done.out


@pytest.fixture
def workers(llama_cpp_python: Path, tmp_path: Path):
    """Two RPC workers: (addresses, processes)."""
    import subprocess

    script = str(Path(__file__).parent / "llama_cpp_python_rpc.py")
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    processes = []
    for number, address in enumerate(addresses):
        with (tmp_path / f"worker-{number}.log").open("wb") as log:
            command = [str(llama_cpp_python), script, "worker", address]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
    time.sleep(1)
    yield ",".join(addresses), processes
    for process in processes:
        process.kill()
        process.wait()


def test_an_rpc_cluster(run_locust: Callable[..., Finished], start_llama_cpp_python: Callable[..., Running], workers) -> None:
    """Two workers compute, the head answers: a good run."""
    server = start_llama_cpp_python(*PATIENT, rpc=workers[0])
    done = run_locust(server.url, "--num-prompts", "6", "-u", "2", "--max-tokens", "20", "--fail-if", "failed>0")
    assert done.code == 0, done.err


def test_an_rpc_worker_that_is_killed_takes_the_head_with_it(
    run_locust: Callable[..., Finished], start_llama_cpp_python: Callable[..., Running], workers
) -> None:
    """The streams under way are cut off, later requests refused; the report names both."""
    addresses, processes = workers
    server = start_llama_cpp_python(*PATIENT, rpc=addresses)
    killer = threading.Timer(7, lambda: [process.kill() for process in processes])
    killer.start()
    done = run_locust(server.url, "--num-prompts", "2000", "-u", "2", "--max-tokens", "500", "-t", "12s", "--keep-long-prompts")
    killer.cancel()
    assert done.code == 1, done.err
    kinds = set(done.records.measured().failed().strings("status"))
    assert kinds & {"cut_off", "reset"}
    assert "connect_refused" in kinds
