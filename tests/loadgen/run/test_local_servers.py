"""Runs against servers on this machine: what they are made of, their logs, and what happens when
one dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from llama_load.servers.address import parse_url
from llama_load.servers.kinds import ServerSpec
from llama_load.servers.serving.launch import Server, serving
from llama_load.servers.serving.local_process import listening_process
from tests.conftest import Finished, Simulated, beside
from tests.swarms import wait_until

Run = Callable[..., Finished]


def test_a_run_keeps_what_the_server_says_of_itself(
    run_locust: Callable[..., Finished], tiny_model: Path, tmp_path: Path
) -> None:
    """Its description in summary.json and in the block, its log in the run folder; secrets in
    neither."""
    spec = ServerSpec(
        model=str(tiny_model),
        args=("-np", "2", "-c", "4096", "-b", "512"),
        api_key="s3cret-of-ours",
    )
    with serving(spec, tmp_path / "server") as server:
        done = run_locust(
            server.url,
            "--num-prompts",
            "2",
            "--max-tokens",
            "2",
            "--api-key",
            "s3cret-of-ours",
        )
    assert done.code == 0, done.err
    (described,) = done.summary["llama_load"]["servers"]
    assert (
        described["quantization"],
        described["slots"],
        described["batch"],
        described["threads"],
    ) == ("all F32", 2, 512, 1)
    assert described["n_params"] > 10**5
    assert described["is_ours"]
    assert described["start_s"] > 0
    assert described["rss_mib"] > 1
    assert {buffers["device"] for buffers in described["buffers"]} >= {"CPU"}
    kept = done.folder / "server"
    assert "listening on" in (kept / "server.log").read_text()
    assert "KV buffer size" in (kept / "memory.log").read_text()
    assert "embedded_server" in (kept / "command").read_text()
    assert not any(
        b"s3cret-of-ours" in file.read_bytes()
        for file in done.folder.rglob("*")
        if file.is_file()
    )
    assert "started by llama-load serve" in done.out
    assert "CPU_Mapped" in done.out


def test_a_server_that_we_did_not_start_is_described_by_its_process(
    run_locust: Callable[..., Finished], llama_server: Server
) -> None:
    """Found by its port; its log is the file that its output goes to."""
    done = run_locust(llama_server.url, "--num-prompts", "1", "--max-tokens", "2")
    assert done.code == 0, done.err
    (described,) = done.summary["llama_load"]["servers"]
    assert not described["is_ours"]
    assert described["process_threads"] > 1
    assert described["layers"] == 2
    assert (done.folder / "server" / "server.log").exists()


def test_a_server_that_dies_ends_the_run_with_its_last_words(
    run_locust: Callable[..., Finished], tiny_model: Path, tmp_path: Path
) -> None:
    """Soon, with exit code 3, whatever was still to be sent."""
    folder = tmp_path / "run"
    spec = ServerSpec(model=str(tiny_model), alongside=(("sleep", "1000"),))
    with serving(spec, tmp_path / "server") as server:

        def kill() -> None:
            wait_until((folder / "requests.arrows").exists, 60)
            beside(server.pid)[0].kill()

        killer = threading.Thread(target=kill)
        killer.start()
        done = run_locust(
            server.url,
            "--num-prompts",
            "3000",
            "--request-rate",
            "5",
            "--max-tokens",
            "5",
            "-t",
            "90s",
            "--server-grace",
            "1",
            folder=folder,
        )
        killer.join()
    assert done.code == 3, done.err
    assert done.manifest["end"] == "server"
    check = next(
        check
        for check in done.summary["llama_load"]["verdict"]["checks"]
        if check["name"] == "server_endings"
    )
    assert check["text"].startswith(
        "the companion sleep ended (killed by SIGKILL), so the server was stopped"
    )
    assert done.summary["llama_load"]["verdict"]["word"] == "INCOMPLETE"
    assert "no server is left; the run ends" in done.err
    assert "It ended: the companion sleep" in done.out


def test_a_replica_that_dies_does_not_end_the_run(
    simulate: Callable[..., Simulated], tmp_path: Path, run_locust: Run
) -> None:
    """Its requests fail and are counted, the gap is named, and the other one's figures are
    there."""
    lost, kept = (
        simulate("--first-token-ms", "20", "--interval-ms", "5") for _ in range(2)
    )
    process = listening_process(parse_url(lost.url).resolved())
    assert process is not None

    def kill() -> None:
        wait_until(kept.has_answered(10))
        os.kill(process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    flags = (
        "-u",
        "4",
        "--num-prompts",
        "40",
        "--max-tokens",
        "4",
        "--server-grace",
        "0",
    )
    done = run_locust(f"{lost.url},{kept.url}", *flags)
    killer.join()
    assert done.manifest["end"] == "complete", done.err
    ok = done.records.measured().ok()
    assert int(ok.equals("host", kept.url).sum()) >= 20
    assert done.summary["completed"] + done.summary["failed"] == 40
    assert done.summary["failed"] > 0
    checks = done.summary["llama_load"]["verdict"]["checks"]
    (change,) = (check["text"] for check in checks if check["name"] == "server_changes")
    assert (
        f"{lost.url}: its process ended during the run and was not started again until its end"
        in change
    )
