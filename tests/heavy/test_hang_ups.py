"""Users who hang up, in whole runs: a server that frees its slots late or never, llama.cpp's own
llama-server and vLLM with their own counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.ground.bundled import bundled
from llama_load.outside.plain_http import Session
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import Server, start
from llama_load.servers.serving.model_maker import ModelSize, cached_model
from tests.conftest import Finished
from tests.slots_server import slots_server

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
Run = Callable[..., Finished]
ABORTS = (
    "--max-tokens",
    "60",
    "--abort-rate",
    "0.3",
    "--abort-after",
    "5 tokens",
    "--warmup",
    "0",
)

REAL = (
    "-u",
    "4",
    "--num-prompts",
    "40",
    "--max-tokens",
    "100",
    "--ignore-eos",
    "--abort-rate",
    "0.4",
    "--abort-after",
    "20 tokens",
)


def check_of(done: Finished) -> dict[str, object]:
    (check,) = (
        each
        for each in done.summary["llama_load"]["verdict"]["checks"]
        if each["name"] == "slots_not_freed"
    )
    return check


def test_slots_that_are_freed_late_are_timed(run_locust: Run) -> None:
    """300 ms after the server notices, which is a token (10 ms) or two after the user has gone.
    Measured is an upper bound, within the pause between two looks and the time of a look. Catches a
    time to free a slot that real looks at /slots, with their own delays, get wrong."""
    with slots_server(0.3) as server:
        done = run_locust(server.url, "-u", "2", "--num-prompts", "20", *ABORTS)
    (seen,) = done.summary["llama_load"]["hang_up_checks"]
    freeing, aborted = seen["freeing"], done.summary["llama_load"]["aborted"]
    assert aborted == server.hung_up > 2, done.err + done.out
    assert (
        freeing["freed"] + freeing["unknown"],
        freeing["stuck"],
        freeing["late"],
    ) == (aborted, 0, 0)
    assert freeing["unknown"] <= 1
    assert freeing["median_ms"] > 300
    assert freeing["median_ms"] - freeing["resolution_ms"] < 400
    assert check_of(done)["ok"] and "never freed" in done.out


def test_slots_that_are_never_freed_are_reported(run_locust: Run) -> None:
    """Three of four slots are lost for good, and the run goes on with the last one. Catches a run
    that waits forever for slots that never come back."""
    with slots_server(None) as server:
        done = run_locust(
            server.url, "-u", "2", "--num-prompts", "10", *ABORTS, "--seed", "3"
        )
    (seen,) = done.summary["llama_load"]["hang_up_checks"]
    assert 0 < seen["busy"] == seen["freeing"]["stuck"] == server.hung_up < 4, (
        done.err + done.out
    )
    check = check_of(done)
    assert not check["ok"]
    assert f"still works on {server.hung_up} request" in str(check["text"])
    assert "10 s after the last request ended, and 1" in str(check["text"])
    assert "NOT COMPARABLE" in done.out


# A server notices a closed connection within a few tokens.
MOST_AFTERWARDS = 10


def counted(server: Server, name: str) -> float:
    """The sum of a counter over its labels."""
    page = Session().get(f"{server.url}/metrics").text
    return sum(
        map(float, re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE))
    )


def check_counts(done: Finished, tokens: float) -> int:
    """What the server generated is what arrived, and a few tokens for users who had gone: so many
    of them."""
    rows = done.records.table.to_pylist()
    aborted = [row for row in rows if row["status"] == "aborted"]
    assert {row["status"] for row in rows} == {"ok", "aborted"}, done.err + done.out
    arrived = sum(row["output_tokens"] for row in rows)
    assert arrived <= tokens <= arrived + MOST_AFTERWARDS * len(aborted)
    ours = done.summary["llama_load"]
    assert ours["wasted_tokens"] == sum(row["output_tokens"] for row in aborted)
    assert all(row["token_events"] >= 20 for row in aborted)
    (seen,) = ours["hang_up_checks"]
    assert (seen["busy"], seen["freeing"]["stuck"], seen["healthy"]) == (0, 0, True)
    assert (
        seen["freeing"]["freed"] + seen["freeing"]["unknown"]
        == ours["aborted"]
        == len(aborted)
        > 5
    )
    assert not [
        each
        for each in ours["verdict"]["checks"]
        if each["name"] == "other_client_ratio" and not each["ok"]
    ]
    return len(aborted)


def test_llama_servers_log_and_counters_agree(
    run_locust: Run, llama_cpp: Path, tmp_path: Path
) -> None:
    """It logs each request that it cancels. Catches a hang-up that llama-server counts in another
    way than the simulated server."""
    model = cached_model(
        ModelSize(layers=2, dim=256, ff=512), bundled("datasets/sharegpt_sample.json")
    )
    port = free_port()
    command = [str(llama_cpp / "llama-server"), "-m", str(model), "--port", str(port)]
    command += ["-np", "4", "-c", "8192", "-t", "1", "--metrics"]
    server = start(command, f"http://127.0.0.1:{port}", tmp_path / "server.log")
    try:
        done = run_locust(server.url, *REAL)
        aborted = check_counts(done, counted(server, "llamacpp:tokens_predicted_total"))
    finally:
        server.stop()
    assert (tmp_path / "server.log").read_text(errors="replace").count(
        "cancel task"
    ) == aborted


def test_vllms_counters_agree(run_locust: Run, vllm: Server) -> None:
    """It counts the tokens of aborted requests, and none of these requests as a success. Catches
    the same of vLLM."""
    names = ("vllm:generation_tokens_total", "vllm:request_success_total")
    before = [counted(vllm, name) for name in names]
    done = run_locust(vllm.url, *REAL)
    tokens, requests = (
        counted(vllm, name) - past for name, past in zip(names, before, strict=True)
    )
    aborted = check_counts(done, tokens)
    assert requests == len(done.records) - aborted
