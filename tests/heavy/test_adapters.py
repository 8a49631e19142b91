"""LoRA adapters on real servers: llama-server's by id, vLLM's as models, with figures held against
the server's own log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from llama_load.ground.bundled import bundled
from llama_load.servers.kinds.server_start import ServerSpec
from llama_load.servers.serving.launch import serving
from llama_load.servers.serving.model_maker import cached_model
from tests.conftest import Finished
from tests.heavy.lora_files import gguf_adapter, hf_adapter
from tests.heavy.test_llama_cpp import CORPUS, SMALL
from tests.swarms import swarm

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]
MIX = (
    "--adapter",
    "0=3,1=1,none=2",
    "--max-tokens",
    "8",
    "--ignore-eos",
    "--seed",
    "3",
    "--temperature",
    "0",
)


@pytest.fixture
def adapted(llama_cpp: Path, tmp_path: Path) -> ServerSpec:
    """llama-server with two adapters and one slot. Its log names each change of a slot's
    adapter."""
    files = ",".join(
        str(gguf_adapter(tmp_path / f"{name}.gguf", SMALL, seed))
        for seed, name in enumerate("ab")
    )
    args = (
        "--lora",
        files,
        "-t",
        "1",
        "-np",
        "1",
        "-c",
        "4096",
        "--metrics",
        "-lv",
        "5",
        "--alias",
        "tiny",
    )
    model = cached_model(SMALL, bundled(CORPUS))
    return ServerSpec(
        "llama-server", str(model), args=args, program=str(llama_cpp / "llama-server")
    )


def adapters_of(done: Finished) -> dict[str, str]:
    """The adapter of each prompt."""
    rows = done.records.measured().ok()
    return dict(
        zip(rows.strings("prompt_sha256"), rows.strings("adapter"), strict=True)
    )


def test_llama_servers_adapters(
    run_locust: Callable[..., Finished], adapted: ServerSpec, tmp_path: Path
) -> None:
    """One user and one slot: every request whose predecessor had another adapter is a change in the
    server's log, and no other is. The answers show that the adapters are at work. Two workers give
    each prompt the same adapter as one process. Catches an adapter that llama-server does not apply
    or that slots carry over, which only its log and answers show."""
    with serving(adapted, tmp_path / "logs") as server:
        log = next((tmp_path / "logs").glob("**/*.log"))
        before = log.read_text(errors="replace").count("clearing cache for lora change")
        flags = (*MIX, "--num-prompts", "60", "--fail-if", "failed>0")
        done = run_locust(server.url, "-u", "1", *flags)
        assert done.code == 0, done.err
        changes = (
            log.read_text(errors="replace").count("clearing cache for lora change")
            - before
        )
        with swarm(tmp_path / "s", server.url, 2, "-u", "4", *flags) as running:
            several = running.finish()
        assert several.code == 0, several.err
        refused = run_locust(
            server.url,
            "-u",
            "1",
            "--num-prompts",
            "4",
            "--adapter",
            "0,2",
            folder=tmp_path / "refused",
        )
    rows = done.records
    order = sorted(
        zip(rows.instants("started_mono_ns"), rows.strings("adapter"), strict=True)
    )
    switched = sum(one != other for (_, one), (_, other) in pairwise(order))
    ours = done.summary["llama_load"]
    assert {name: part["completed"] for name, part in ours["by_adapter"].items()} == {
        "0": 30,
        "1": 10,
        "none": 20,
    }
    same, other, beside = ours["switching"]["classes"]
    assert (other["requests"], same["requests"], beside["requests"]) == (
        switched,
        60 - switched,
        0,
    )
    # The slot begins with the scales that the server was started with, so its first adapter is a
    # change, too.
    assert changes == switched + 1
    assert other["ttft_price_ms"] is not None
    assert adapters_of(done) == adapters_of(several)
    assert refused.code == 2
    assert "has no LoRA adapter 2: it has 0 (a.gguf), 1 (b.gguf)" in " ".join(
        refused.err.split()
    )
    assert "LoRA Adapters" in done.out
    assert "Switching between Adapters" in done.out


def test_conversations_keep_their_adapter(
    run_locust: Callable[..., Finished], adapted: ServerSpec, tmp_path: Path
) -> None:
    """In stages, too; and the same adapters change the answers to the same prompts. Catches turns
    whose adapter the real server changes within a conversation."""
    with serving(adapted, tmp_path / "logs") as server:
        done = run_locust(server.url, "--stages", "1:12,2:12", "--turns", "3", *MIX)
    assert done.code == 0, done.err
    rows = done.records.measured()
    chats = set(
        zip(rows.strings("conversation_start"), rows.strings("adapter"), strict=True)
    )
    assert len(chats) == len({start for start, _ in chats})
    assert len({adapter for _, adapter in chats}) == 3


def test_vllms_adapters_are_models(
    run_locust: Callable[..., Finished],
    start_vllm: Callable[..., object],
    hf_model: Path,
    tmp_path: Path,
) -> None:
    """vLLM counts the requests of every adapter; its answers name the model that was asked for.
    Catches an adapter's name that vLLM counts under another model."""
    modules = [
        f"{name}={hf_adapter(tmp_path / name, hf_model, seed)}"
        for seed, name in enumerate(("sql", "chat"))
    ]
    server = start_vllm(
        "--enable-lora",
        "--max-loras",
        "2",
        "--max-lora-rank",
        "8",
        "--lora-modules",
        *modules,
    )
    flags = (
        "-u",
        "4",
        "--num-prompts",
        "40",
        "--max-tokens",
        "8",
        "--ignore-eos",
        "--warmup",
        "3",
        "--fail-if",
        "failed>0",
    )
    done = run_locust(server.url, "--model", "tiny=2,sql=1,chat=1", *flags)
    assert done.code == 0, done.err
    ours = done.summary["llama_load"]
    assert {name: part["completed"] for name, part in ours["by_model"].items()} == {
        "tiny": 20,
        "sql": 10,
        "chat": 10,
    }
    checks = {check["name"]: check for check in ours["verdict"]["checks"]}
    assert checks["mixed_up_models"]["ok"]
    assert checks["mixed_up_models"]["value"] == 0
    answered = Counter(
        name.partition(" (")[0]
        for name in done.records.measured().strings("answered_model")
    )
    assert answered == {"tiny": 20, "sql": 10, "chat": 10}
    assert re.search(r"Switching between Models", done.out)
    refused = run_locust(
        server.url,
        "-u",
        "1",
        "--num-prompts",
        "4",
        "--adapter",
        "0",
        folder=tmp_path / "refused",
    )
    assert refused.code == 2
    assert "name its LoRA adapters as models" in " ".join(refused.err.split())
