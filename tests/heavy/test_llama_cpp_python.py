"""Whole runs against llama-cpp-python's real server, and against one that computes on RPC
workers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.ground.bundled import bundled
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import Server, start
from llama_load.servers.serving.model_maker import ModelSize, cached_model
from tests.conftest import Finished
from tests.swarms import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]
PATIENT = ("--interrupt_requests", "false", "--n_ctx", "2048")


@pytest.mark.real
def test_a_run_whose_tokens_are_counted_by_events(
    run_locust: Callable[..., Finished], start_llama_cpp_python: Callable[..., Server]
) -> None:
    """It never reports usage; one request at a time; connections are used again. Catches what
    llama-cpp-python streams and does not report, as it is installed."""
    server = start_llama_cpp_python(*PATIENT)
    done = run_locust(
        server.url,
        "--num-prompts",
        "12",
        "-u",
        "3",
        "--max-tokens",
        "20",
        "--fail-if",
        "failed>0",
    )
    assert done.code == 0, done.err
    (target,) = done.manifest["targets"]
    assert (target["backend"], target["model"]) == ("llama-cpp-python", "tiny")
    records = done.records.measured()
    assert records.values_of("token_source") == ["events"]
    assert records.values_of("prompt_token_source") == ["plan+template"]
    assert target["template_tokens"] > 0
    assert records.equals("connection_reused", True).sum() > 0
    text = " ".join((done.err + done.out).split())
    assert "1 at a time; start the server with --interrupt_requests false" in text
    assert "output tokens of 12 requests were counted as stream events" in text


def test_two_models_that_are_swapped_on_demand(
    run_locust: Callable[..., Finished],
    llama_cpp_python: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    """It holds one model at a time: spread over two, every other request or so waits for a model to
    be loaded, and each has a row. Catches loads of models within a run of the real server."""
    larger = cached_model(ModelSize(), bundled("datasets/sharegpt_sample.json"))
    port = free_port()
    names = {"small": tiny_model, "large": larger}
    models = [
        {"model": str(path), "model_alias": name, "n_ctx": 2048, "n_threads": 1}
        for name, path in names.items()
    ]
    config = tmp_path / "models.json"
    config.write_text(
        json.dumps(
            {
                "host": "127.0.0.1",
                "port": port,
                "interrupt_requests": False,
                "models": models,
            }
        )
    )
    command = [
        str(llama_cpp_python),
        "-m",
        "llama_cpp.server",
        "--config_file",
        str(config),
    ]
    server = start(
        command, f"http://127.0.0.1:{port}", tmp_path / "server.log", ready="/v1/models"
    )
    try:
        same = run_locust(
            server.url,
            "--num-prompts",
            "8",
            "--max-tokens",
            "8",
            "--model",
            "small",
            folder=tmp_path / "same",
        )
        done = run_locust(
            server.url,
            "--num-prompts",
            "8",
            "--max-tokens",
            "8",
            "--model",
            "small,large",
        )
    finally:
        server.stop()
    assert done.code == same.code == 0, done.err
    parts = done.summary["llama_load"]["by_model"]
    assert {name: part["completed"] for name, part in parts.items()} == {
        "small": 4,
        "large": 4,
    }
    assert "Models" in done.out
    # Answers of the small model take no longer, but it has to be loaded again.
    assert parts["small"]["mean_ttft_ms"] > 2 * same.summary["median_ttft_ms"]


def test_streams_that_the_server_interrupts_are_cut_off(
    run_locust: Callable[..., Finished], start_llama_cpp_python: Callable[..., Server]
) -> None:
    """By default a new request ends the running one, with [DONE] or without, but without a
    finish_reason. That is no success. Catches an interrupted stream taken for a success."""
    server = start_llama_cpp_python("--n_ctx", "2048")
    done = run_locust(
        server.url,
        "--num-prompts",
        "12",
        "-u",
        "3",
        "--max-tokens",
        "600",
        "--keep-long-prompts",
    )
    assert done.code == 1, done.err
    assert "cut_off" in set(done.records.measured().failed().strings("status"))


def test_a_prompt_beyond_the_context_is_an_empty_answer(
    run_locust: Callable[..., Finished],
    start_llama_cpp_python: Callable[..., Server],
    tmp_path: Path,
) -> None:
    """Catches its answer to such a prompt, which no standard has."""
    locustfile = tmp_path / "long.py"
    locustfile.write_text(
        "from locust import task\nfrom llama_load import LlamaUser\n\n\n"
        "class Long(LlamaUser):\n    @task\n    def ask(self):\n        self.chat('word ' * 9000, max_tokens=4)\n"
    )
    server = start_llama_cpp_python(*PATIENT)
    done = run_locust(
        server.url, "--num-prompts", "2", "-u", "1", locustfile=locustfile
    )
    assert done.code == 1
    assert set(done.records.measured().strings("status")) == {"empty_answer"}
    assert "exceeds the context" in done.out


@pytest.mark.real
def test_an_rpc_cluster(
    run_locust: Callable[..., Finished],
    start_llama_cpp_python: Callable[..., Server],
    workers,
) -> None:
    """Two workers compute, the head answers: a good run. Catches a head that does not find its
    workers, by llama-cpp-python's own RPC backend."""
    server = start_llama_cpp_python(*PATIENT, rpc=workers[0])
    done = run_locust(
        server.url,
        "--num-prompts",
        "6",
        "-u",
        "2",
        "--max-tokens",
        "20",
        "--fail-if",
        "failed>0",
    )
    assert done.code == 0, done.err


def test_an_rpc_worker_that_is_killed_takes_the_head_with_it(
    run_locust: Callable[..., Finished],
    start_llama_cpp_python: Callable[..., Server],
    workers,
    tmp_path: Path,
) -> None:
    """The streams under way are cut off, and the run ends, although we started neither. Catches a
    run that does not end with such a cluster."""
    addresses, processes = workers
    server = start_llama_cpp_python(*PATIENT, rpc=addresses)
    folder = tmp_path / "killed"

    def kill() -> None:
        # the first answer is on record, the next are on their way
        wait_until((folder / "requests.arrows").exists, 60)
        for process in processes:
            process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    flags = (
        "--num-prompts",
        "2000",
        "-u",
        "2",
        "--max-tokens",
        "500",
        "-t",
        "15s",
        "--keep-long-prompts",
        "--warmup",
        "0",
    )
    done = run_locust(server.url, *flags, folder=folder)
    killer.join()
    assert done.code == 3, done.err
    kinds = set(done.records.measured().failed().strings("status"))
    assert kinds & {"cut_off", "reset"}
    check = next(
        each
        for each in done.summary["llama_load"]["verdict"]["checks"]
        if each["name"] == "server_endings"
    )
    assert check["text"] == "the server's process ended; an RPC worker was lost"
