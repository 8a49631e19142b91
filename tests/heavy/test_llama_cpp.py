"""llama.cpp's own programs, built from source: llama-server in many configurations, its router, RPC
workers, a draft model."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme

from llama_load.ground.bundled import bundled
from llama_load.lab.perplexity.binary import read_estimate
from llama_load.lab.sweep.plan import PerplexityPlan
from llama_load.lab.sweep.quality import by_binary
from llama_load.servers.kinds import ServerSpec
from llama_load.servers.probe import Probe, ProbeSettings
from llama_load.servers.serving.launch import Server, serving
from llama_load.servers.serving.model_maker import ModelSize, cached_model
from llama_load.servers.serving.projector_maker import cached_projector
from tests.conftest import REPOSITORY, Finished
from tests.server_kinds import LLAMA_SERVER

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(200)]
CORPUS = "datasets/sharegpt_sample.json"
SMALL = ModelSize(layers=2, dim=256, ff=512)
DRAFT = ModelSize(layers=1, dim=256, ff=256, heads=4, kv_heads=4)


@pytest.fixture(scope="session")
def model() -> Path:
    """Its sizes are multiples of 256, so that it can be quantized."""
    return cached_model(SMALL, bundled(CORPUS))


@pytest.fixture(scope="session")
def quantized(
    llama_cpp: Path, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """The model, quantized by llama-quantize: quantized("Q4_K_M")."""
    folder = tmp_path_factory.mktemp("quantized")

    def make(kind: str) -> Path:
        file = folder / f"{kind}.gguf"
        if not file.exists():
            subprocess.run(
                [llama_cpp / "llama-quantize", model, file, kind],
                check=True,
                capture_output=True,
            )
        return file

    return make


@dataclass(frozen=True)
class Case:
    """A configuration: flags of llama-server beside `-t 1`, what is known of the server, flags of
    the run, and its exit code."""

    args: tuple[str, ...] = ()
    slots: int | None = 2
    context: int | None = 2048
    known: tuple[tuple[str, Any], ...] = ()
    run: tuple[str, ...] = ()
    locustfile: str = "sharegpt_chat"


C, NP = ("-c", "4096"), ("-np", "2")
CASES = {
    "plain": Case(
        (*C, *NP), known=(("kv_unified", False), ("layers", 3), ("layers_offloaded", 0))
    ),
    "np-1": Case(("-c", "2048", "-np", "1"), slots=1),
    "np-4": Case(("-c", "8192", "-np", "4"), slots=4),
    "np-auto": Case(
        C,
        slots=4,
        context=4096,
        known=(("kv_unified", True), ("context", 4096)),
        run=("--max-tokens", "8"),
    ),
    "kv-unified": Case(
        (*C, *NP, "--kv-unified"),
        context=4096,
        known=(("kv_unified", True), ("context", 4096)),
    ),
    "flash-on": Case((*C, *NP, "-fa", "on"), known=(("flash_attention", "enabled"),)),
    "flash-off": Case(
        (*C, *NP, "-fa", "off"), known=(("flash_attention", "disabled"),)
    ),
    "cache-q8": Case(
        (*C, *NP, "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0"),
        known=(("kv_types", "K q8_0, V q8_0"),),
    ),
    "cache-f32": Case((*C, *NP, "-ctk", "f32"), known=(("kv_types", "K f32, V f16"),)),
    "batch": Case(
        (*C, *NP, "-b", "256", "-ub", "64"), known=(("batch", 256), ("micro_batch", 64))
    ),
    "alias": Case((*C, *NP, "--alias", "模型"), known=(("model", "模型"),)),
    "no-prefix": Case((*C, *NP, "--no-log-prefix"), known=(("layers", 3),)),
    "json-lines": Case(
        (*C, *NP, "--log-jsonl"), known=(("layers", 3), ("memory_is_forecast", True))
    ),
    "log-level-5": Case((*C, *NP, "-lv", "5"), known=(("layers", 3),)),
    "log-level-3": Case((*C, *NP, "-lv", "3")),
    "fit-off": Case(
        (*C, *NP, "--fit", "off"), known=(("layers", 3), ("memory_lines", []))
    ),
    "no-cache-ram": Case((*C, *NP, "--cache-ram", "0")),
    "shift": Case(
        ("-c", "1024", *NP, "--context-shift"),
        context=512,
        known=(("context_shift", True),),
        run=("--max-tokens", "600", "--num-prompts", "4"),
    ),
    "ngram": Case(
        (*C, *NP, "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3")
    ),
    "sleep": Case((*C, *NP, "--sleep-idle-seconds", "1")),
    "api-key": Case((*C, *NP, "--api-key", "secret"), run=("--api-key", "secret")),
    "api-prefix": Case((*C, *NP, "--api-prefix", "/llm")),
    "tls": Case((*C, *NP), run=("--insecure",)),
    "q8": Case((*C, *NP), known=(("quantization", "Q8_0"),)),
    "q4": Case((*C, *NP), known=(("quantization", "Q4_K - Medium"),)),
    "iq4": Case((*C, *NP), known=(("quantization", "IQ4_NL - 4.5 bpw"),)),
    "embedding": Case(
        (*C, *NP, "--embedding", "--pooling", "mean", "-b", "2048", "-ub", "2048"),
        locustfile="embeddings",
        run=(),
    ),
    "reranking": Case(
        (*C, *NP, "--reranking", "--pooling", "rank"), locustfile="rerank", run=()
    ),
    "vision": Case((*C, *NP), locustfile="vision", run=("--max-tokens", "8")),
    "threads": Case((*C, *NP, "-tb", "2"), known=(("threads_batch", 2),)),
}
MODELS = {"q8": "Q8_0", "q4": "Q4_K_M", "iq4": "IQ4_NL"}


def spec_of(program: Path, model: Path, *args: str) -> ServerSpec:
    return ServerSpec(
        kind="llama-server",
        model=str(model),
        program=str(program / "llama-server"),
        args=("-t", "1", *args),
    )


def router_of(program: Path, model: Path, folder: Path, *args: str) -> ServerSpec:
    """A router with this model under two names, one and two."""
    models = folder / "models"
    models.mkdir()
    for name in ("one", "two"):
        (models / f"{name}.gguf").symlink_to(model)
    return replace(
        spec_of(program, model, "--models-dir", str(models), *args), model=""
    )


def check_run(done: Finished, server: Server, code: int = 0) -> dict[str, Any]:
    """What holds in every configuration: nobody else was seen on the server, the time is explained,
    the server did not change."""
    assert done.code == code, done.err
    checks = {
        check["name"]: check
        for check in done.summary["llama_load"]["verdict"]["checks"]
    }
    for name in (
        "other_client_ratio",
        "server_changes",
        "unbelievable_counts",
        "failure_ratio",
        "server_endings",
    ):
        assert name not in checks or checks[name]["ok"], checks[name]
    assert done.manifest["targets"][0]["backend"] == LLAMA_SERVER
    assert done.manifest["targets"][0]["url"] == server.url
    assert not done.manifest["server_changes"]
    return checks


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.real] if name == "plain" else [])
        for name in CASES
    ],
)
def test_a_configuration_of_llama_server(
    name: str,
    llama_cpp: Path,
    model: Path,
    quantized: Callable[[str], Path],
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """The kind of server, its slots and context, the facts of its log, counts against /metrics, and
    the parts of the time. Catches a line of llama-server's log or a page that a flag changes, so
    that a fact is missing or wrong."""
    case = CASES[name]
    args = case.args
    if name == "tls":
        certificate = trustme.CA().issue_cert("127.0.0.1")
        certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
        certificate.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
        args += (
            "--ssl-key-file",
            str(tmp_path / "key.pem"),
            "--ssl-cert-file",
            str(tmp_path / "certificate.pem"),
        )
    if name == "vision":
        args += ("--mmproj", str(cached_projector(SMALL.dim)))
    served = quantized(MODELS[name]) if name in MODELS else model
    with serving(spec_of(llama_cpp, served, *args), tmp_path / "logs") as server:
        run = (
            "-u",
            "2",
            *(("--num-prompts", "8") if "--num-prompts" not in case.run else ()),
            *case.run,
        )
        run += (
            ()
            if "--max-tokens" in run or case.locustfile != "sharegpt_chat"
            else ("--max-tokens", "16")
        )
        done = run_locust(
            server.url,
            *run,
            locustfile=REPOSITORY / "locustfiles" / f"{case.locustfile}.py",
        )
        check_run(done, server)
    (target,) = done.manifest["targets"]
    assert (target["slots"], target["ctx_per_slot"]) == (case.slots, case.context)
    (described,) = done.summary["llama_load"]["servers"]
    assert {key: described[key] for key, _ in case.known} == dict(case.known)
    assert described["is_ours"]
    assert (described["context_shifts"] > 0) == (name == "shift")
    parts = done.summary["llama_load"]["time_parts"]
    if case.locustfile == "sharegpt_chat":
        assert parts is not None


def test_a_draft_model_and_its_counters(
    llama_cpp: Path, model: Path, run_locust: Callable[..., Finished], tmp_path: Path
) -> None:
    """The draft model is described beside the model; acceptance is that of the server's counters.
    Catches a second model's lines taken for the first one's, and counters of drafts by another
    name."""
    draft = cached_model(DRAFT, bundled(CORPUS))
    flags = ("-c", "4096", "-np", "2", "-md", str(draft), "--spec-type", "draft-simple")
    with serving(spec_of(llama_cpp, model, *flags), tmp_path / "logs") as server:
        done = run_locust(
            server.url, "-u", "2", "--num-prompts", "8", "--max-tokens", "32"
        )
        check_run(done, server)
    (described,) = done.summary["llama_load"]["servers"]
    assert (described["layers"], described["draft"]["layers"]) == (3, 1)
    assert described["draft"]["model_bytes"] < described["model_bytes"]
    assert "Draft model:" in (done.folder / "summary.txt").read_text()
    assert done.summary["spec_decode_draft_tokens"] > 0


@pytest.mark.real
def test_a_router_loads_before_the_run_and_keeps_the_models_apart(
    llama_cpp: Path, model: Path, run_locust: Callable[..., Finished], tmp_path: Path
) -> None:
    """Each model has figures of its own; slots of both count; nothing changes during the run.
    Catches what a real router does at a first request, and whose /slots and /metrics it shows."""
    with serving(
        router_of(llama_cpp, model, tmp_path, "-np", "2", "-c", "4096", "--metrics"),
        tmp_path / "logs",
    ) as server:
        unnamed = run_locust(
            server.url, "--num-prompts", "4", folder=tmp_path / "unnamed"
        )
        assert unnamed.code == 2
        assert "--model one,two" in unnamed.err
        done = run_locust(
            server.url,
            "-u",
            "4",
            "--num-prompts",
            "16",
            "--max-tokens",
            "16",
            "--model",
            "one,two",
        )
        check_run(done, server)
        again = run_locust(
            server.url,
            "-u",
            "2",
            "--num-prompts",
            "4",
            "--max-tokens",
            "8",
            folder=tmp_path / "again",
            LLAMA_LOAD_MODEL="two",
        )
        check_run(again, server)
    (target,) = done.manifest["targets"]
    assert (target["slots"], target["ctx_per_slot"]) == (4, 2048)
    assert set(target["load_s"]) == {"one", "two"}
    assert all(seconds > 0 for seconds in target["load_s"].values())
    assert again.manifest["targets"][0]["load_s"] == {"two": 0.0}
    assert set(done.records.strings("model")) == {"one", "two"}


def test_a_router_that_cannot_keep_both_models_is_refused(
    llama_cpp: Path, model: Path, run_locust: Callable[..., Finished], tmp_path: Path
) -> None:
    """With --models-max 1 every request would wait for a load. Catches a router that swaps models
    in a run."""
    with serving(
        router_of(
            llama_cpp, model, tmp_path, "--models-max", "1", "-np", "1", "-c", "2048"
        ),
        tmp_path / "logs",
    ) as server:
        done = run_locust(server.url, "--num-prompts", "4", "--model", "one,two")
        assert done.code == 2
        assert "start the router with --models-max 2 or more" in " ".join(
            done.err.split()
        )
        assert requests.get(server.url + "/health", timeout=30).ok
        target = Probe(ProbeSettings(server.url, models=("two",))).ask()
    assert target.slots == 1


@pytest.mark.real
def test_an_rpc_cluster_of_real_workers(
    llama_cpp: Path, model: Path, run_locust: Callable[..., Finished], tmp_path: Path
) -> None:
    """Both workers hold a part of the model, and none of them is a GPU. Catches a worker that
    computes nothing, and lines of a log that only ggml-rpc-server makes llama-server write."""
    spec = spec_of(llama_cpp, model, "-c", "4096", "-np", "2")
    spec = replace(spec, rpc_workers=2)
    with serving(spec, tmp_path / "logs") as server:
        done = run_locust(
            server.url, "-u", "2", "--num-prompts", "8", "--max-tokens", "16"
        )
        check_run(done, server)
    (described,) = done.summary["llama_load"]["servers"]
    assert len(described["rpc"]) == 2
    assert all(
        worker["model_mib"] > 0 and worker["sent_bytes"] > 0
        for worker in described["rpc"]
    )
    assert described["devices"] == ["CPU", "RPC"]


def test_a_shared_pool_is_known_before_it_overflows(
    llama_cpp: Path, model: Path, run_locust: Callable[..., Finished], tmp_path: Path
) -> None:
    """Without -np all slots share one pool, which only the log shows: the preflight warns without
    --kv-pool. Catches a shared pool that only a real start without -np has."""
    with serving(spec_of(llama_cpp, model, "-c", "1024"), tmp_path / "logs") as server:
        done = run_locust(
            server.url, "-u", "4", "--num-prompts", "4", "--max-tokens", "600"
        )
    rows = {row["name"]: row for row in done.manifest["preflight"]}
    assert rows["KV pool"]["level"] == "warning"
    assert "of 1024 tokens needed" in rows["KV pool"]["value"]


def test_perplexity_needs_no_server(llama_cpp: Path, model: Path) -> None:
    """The estimate and its error are those of llama-perplexity, and the tokens those of llama-
    tokenize beside it. Catches a format of llama-perplexity's output that changed."""
    text = bundled("datasets/perplexity_text.txt")
    command = [
        str(llama_cpp / "llama-perplexity"),
        "-m",
        str(model),
        "-f",
        str(text),
        "-c",
        "512",
        "-t",
        "1",
    ]
    by_hand = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = read_estimate(by_hand.stdout + by_hand.stderr)
    plan = PerplexityPlan(
        context=512, binary=str(llama_cpp / "llama-perplexity"), args="-t 1"
    )
    figures, reasons = by_binary(plan, model, "")
    assert ({name: figures[name] for name in expected}, set(expected), reasons) == (
        expected,
        {"perplexity", "perplexity_error"},
        {},
    )
    tokens = (
        figures["bits_per_byte"]
        * len(text.read_bytes())
        / math.log2(expected["perplexity"])
    )
    assert tokens == pytest.approx(round(tokens), abs=1e-6)
    assert 1000 < tokens < 5000
