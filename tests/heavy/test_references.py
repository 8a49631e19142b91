"""The bundled plans of the references, run whole on tiny models: real servers, RPC workers, vLLM."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llama_load.lab.perplexity.perplexity_servers import score_text
from llama_load.serving.launch import Server
from llama_load.serving.projector_maker import cached_projector
from llama_load.targets.probe import ProbeSettings
from tests.conftest import TINY, environment, run_to_the_end

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Swept:
    """A sweep that has ended."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def json(self) -> Any:
        return json.loads((self.folder / "sweep.json").read_bytes())

    def table(self, title: str) -> list[list[str]]:
        """Heading and rows of a table, as texts."""
        (found,) = (table for table in self.json["tables"] if table["title"] == title)
        return [found["columns"], *([cell["text"] for cell in row] for row in found["rows"])]


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[..., Swept]:
    """Run a bundled plan: sweep("llama-bench", model=…)."""

    def run(plan: str, env: dict[str, str] | None = None, **sets: object) -> Swept:
        words = [word for name, value in ({"idle-s": 0} | sets).items() for word in ("--set", f"{name.replace('_', '-')}={value}")]
        command = [sys.executable, "-m", "llama_load.cli.main", "sweep", plan, "--out", str(tmp_path / "sweep"), *words]
        done = run_to_the_end(command, 290, env=environment() | (env or {}), cwd=tmp_path)
        return Swept(done.returncode, done.stdout, done.stderr, tmp_path / "sweep")

    return run


@pytest.fixture
def program(llama_cpp: Path) -> Path:
    return llama_cpp / "llama-server"


def test_documents_and_images(sweep: Callable[..., Swept], program: Path, tiny_model: Path) -> None:
    projector = cached_projector(TINY.dim)
    done = sweep(
        "mixed-document-vision",
        program=program,
        models=f"[{tiny_model}]",
        mmproj_args=f"['-mm {projector}']",
        args="-c 8192 -np 4 -t 1",
        document_tokens=400,
        max_tokens=8,
        users=2,
        requests=4,
    )
    assert done.code in (0, 1), done.err
    head, *rows = done.table("model.gguf")
    assert head == ["Task", "Elapse", "Tokens Per Second", "Prompt Per Second", "Predict Per Second", "Prompt", "Predict"]
    assert [row[0] for row in rows] == ["Document Understanding"] * 2 + ["Vision Understanding"] * 2
    assert all(float(cell) > 0 for row in rows for cell in row[2:])
    assert all(float(row[1]) >= 0 for row in rows)  # in tenths of a second, which the tiny model may not need
    assert "memory breakdown" in done.out


def test_llama_bench_local_and_rpc(sweep: Callable[..., Swept], program: Path, tiny_model: Path, tmp_path: Path) -> None:
    """Exactly the tokens of each test are processed, with two RPC workers too; llama-bench's own file stands beside them."""
    command = [
        str(program.parent / "llama-bench"),
        "-m",
        str(tiny_model),
        "-p",
        "64",
        "-n",
        "0",
        "-t",
        "1",
        "-r",
        "3",
        "-o",
        "json",
    ]
    output = run_to_the_end(command, 60).stdout
    (tmp_path / "bench.json").write_text(output)
    done = sweep(
        "llama-bench",
        program=program,
        rpc_workers="[0, 1]",
        model=tiny_model,
        backend="CPU",
        ngl=0,
        layers="[0]",
        threads="[1]",
        batches="[64]",
        depths="[256]",
        generation_tests="[tg16]",
        batch_tests="[]",
        thread_tests="[]",
        layer_tests="[]",
        depth_tests="[pp64]",
        requests=3,
        common="-c 2048 -np 1",
        llama_bench_files=f"[{tmp_path / 'bench.json'}]",
    )
    assert done.code in (0, 1), done.err + done.out
    (head, row) = done.table("Text generation")
    assert head == ["model", "size", "params", "backend", "ngl", "test", "t/s"]
    assert row[:6] == ["llama 842K all F32", "3.21 MiB", "842.43 K", "CPU", "0", "tg16"]
    (_, row) = done.table("Text generation, RPC")
    assert (row[3], row[-1][-1].isdigit()) == ("CPU,RPC", True)  # not marked: the server reports its own times
    (_, row) = done.table("Depth of the context")
    assert row[5] == "pp64 @ d256"
    (bench,) = json.loads(output)
    speed, spread = done.table("llama-bench itself")[1][-1].split(" ± ")
    assert (float(speed), float(spread)) == (pytest.approx(bench["avg_ts"], rel=1e-3), pytest.approx(bench["stddev_ts"], rel=1e-2))
    sides = done.table("Local and RPC")[1:]
    assert all(float(row[-1].split()[0]) < 100 for row in sides)
    (run,) = (path for path in (done.folder / "runs").glob("depth-cluster=local-*pp64*") if path.is_dir())
    summary = json.loads((run / "summary.json").read_bytes())
    assert summary["total_input_tokens"] == 3 * (64 + 256)
    assert summary["llama_load"]["total_cached_tokens"] == 3 * 256


def test_speculation_by_category(sweep: Callable[..., Swept], program: Path, tiny_model: Path) -> None:
    """A model that drafts for itself is accepted nearly always; the bundled questions of two categories."""
    done = sweep(
        "speculation",
        program=program,
        model=tiny_model,
        args="-c 4096 -np 2 -t 1",
        draft=f"-md {tiny_model} --spec-type draft-simple",
        categories="[code, lists]",
        stages='"1,2"',
        requests=4,
        max_tokens=24,
        repeats=1,
    )
    assert done.code in (0, 1), done.err
    head, *rows = done.table("")
    assert head[:4] == ["Category", "Concurrency", "Accepted (%)", "Tokens/step"]
    assert [row[:2] for row in rows] == [[kind, level] for kind in ("code", "lists") for level in ("c=1", "c=2")]
    assert all(float(row[2]) > 90 and 2 < float(row[3]) <= 4 for row in rows)
    assert all(row[4].startswith(("1.00 / ", "0.9")) for row in rows)


def test_cold_starts(sweep: Callable[..., Swept], program: Path, tiny_model: Path) -> None:
    """Each is a new process, and takes longer than its request alone."""
    done = sweep(
        "cold-start", program=program, model=tiny_model, layers="[0]", clusters="[local]", rpc_workers="[0]", common="-c 1024"
    )
    assert done.code == 0, done.err
    head, row = done.table("Local - 0")
    assert head == ["1", "2", "3", "4", "5"]
    seconds = {float(cell.partition("s")[0]) for cell in row}  # on a busy machine with a †
    assert len(seconds) > 1


def test_sharegpt_under_schedulers(sweep: Callable[..., Swept], program: Path, tiny_model: Path) -> None:
    """A context of 512 tokens is too short for some of the questions: they fail, are counted and named."""
    sets = {"names": "[default, nice]", "alongside": '["", sleep 1000]', "wrappers": '["", nice -n 1]', "tests": "[pp64]"}
    small = {"args": "-c 512 -np 2 -t 1", "users": 2, "requests": 8, "max-tokens": 8}
    done = sweep("sharegpt-schedulers", program=program, model=tiny_model, **sets, **small)
    assert done.code == 1, done.err
    head, *rows = done.table("")
    assert head == ["Scheduler", "Successful", "Success Rate (%)", "Reasons of Failures", "TTFT (s)", "Tokens Per Second"]
    assert [row[0] for row in rows] == ["default", "nice"]
    for row in rows:
        succeeded = int(row[1].split("/")[0])
        assert row[1] == f"{succeeded}/8"
        assert row[3] == f"context_exceeded {8 - succeeded}"
    assert done.table("llama-bench - nice")[1][5] == "pp64"


def test_llama_cpp_python_on_gpus(sweep: Callable[..., Swept], llama_cpp_python: Path, tiny_model: Path) -> None:
    """Without a GPU its memory is NA, with the reason."""
    small = {"gpus": '["0", "0,1"]', "requests": 2, "max-tokens": 8}
    done = sweep("llama-cpp-python-gpus", python=llama_cpp_python, model=tiny_model, args="--n_ctx 4096 --n_threads 1", **small)
    assert done.code in (0, 1), done.err
    head, *rows = done.table("")
    assert head == ["显卡数量", "显存 (MiB)", "每秒生成 Tokens", "每秒生成字符"]
    assert [row[:2] for row in rows] == [["1", "NA"], ["2", "NA"]]
    assert "no GPU" in done.out
    assert all(float(cell.split()[0]) > 0 for row in rows for cell in row[2:])


def test_vllm_against_llama_cpp(
    sweep: Callable[..., Swept], program: Path, tiny_model: Path, vllm_python: Path, hf_model: Path
) -> None:
    """One quantization at concurrency 1 and 2; perplexity by vLLM, NA with a reason for llama-server."""
    quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    done = sweep(
        "vllm-vs-llama-cpp",
        env=quiet | {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
        vllm=vllm_python.parent / "vllm",
        llama_server=program,
        quantizations="[FP16]",
        vllm_models=f"[{hf_model}]",
        gguf_models=f"[{tiny_model}]",
        vllm_args="--dtype float32 --enforce-eager --max-model-len 4096 --max-num-seqs 4",
        llama_args="-c 8192 -np 2 -t 1",
        stages='"1,2"',
        most=2,
        requests=4,
    )
    assert done.code in (0, 1), done.err + done.out
    head, *rows = done.table("c=2 FP16 Comparison")
    figures = ["Duration (s)", "Req/s", "Output Tok/s", "Total Tok/s", "Mean TTFT (ms)", "Mean TPOT (ms)"]
    assert head == ["Backend", "Model/Quant", *figures]
    assert [row[0] for row in rows] == ["vLLM", "llama.cpp"]
    assert done.table("vLLM Concurrency")[0] == ["Model", "Concurrency", *figures]
    assert [row[1] for row in done.table("vLLM Concurrency")[1:]] == ["c=1", "c=2"]
    quality = done.table("Quality")[1:]
    perplexities = {row[0]: row[2] for row in quality}
    assert float(perplexities["vLLM"]) > 1
    assert perplexities["llama.cpp"] == "NA"
    assert "llama-server reports no log-probabilities" in done.out


def test_perplexity_by_llama_cpp_python_is_that_of_its_library(
    start_llama_cpp_python: Callable[..., Server], llama_cpp_python: Path, tiny_model: Path
) -> None:
    """The server's echoed log-probabilities against the library's logits, of one window."""
    server = start_llama_cpp_python("--n_ctx", "2048", "--logits_all", "true")
    text = "The quick brown fox jumps over the lazy dog. " * 4
    score = score_text(ProbeSettings(server.url), text, 2000, 1000)
    script = """
import json, sys, numpy as np
from llama_cpp import Llama
llama = Llama(sys.argv[1], n_ctx=2048, logits_all=True, verbose=False, n_threads=1)
tokens = llama.tokenize(sys.argv[2].encode(), add_bos=True, special=True)
llama.eval(tokens)
logprobs = Llama.logits_to_logprobs(np.array(llama.scores[: len(tokens)]))
print(json.dumps([float(logprobs[i - 1][tokens[i]]) for i in range(2, len(tokens))]))
"""
    done = run_to_the_end([str(llama_cpp_python), "-c", script, str(tiny_model), text], 100, env=environment())
    expected = json.loads(done.stdout.splitlines()[-1])
    assert score.tokens == len(expected)
    assert score.perplexity == pytest.approx(math.exp(-sum(expected) / len(expected)), rel=1e-3)
