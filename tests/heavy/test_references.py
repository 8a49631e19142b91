"""The bundled plans of the references, run whole on tiny models: real servers, RPC workers,
vLLM."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llama_load.ground.bundled import bundled
from llama_load.lab.perplexity.perplexity_servers import score_text
from llama_load.lab.sweep.running_server import FORECAST
from llama_load.servers.probe import ProbeSettings
from llama_load.servers.serving.launch import Server
from llama_load.servers.serving.model_maker import ModelSize, cached_model
from llama_load.servers.serving.projector_maker import cached_projector
from tests.claims import CLAIMS, NOT_JUDGED, REFUTED, SUPPORTED, Reading
from tests.conftest import TINY, environment, run_to_the_end

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


# Its sizes are multiples of 256, so that it can be quantized.
QUANTIZABLE = ModelSize(layers=2, dim=256, ff=512)


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

    def summary(self, part: str) -> Any:
        """summary.json of the one cell whose title has this part."""
        titles = {cell["title"]: cell["run"] for cell in self.json["cells"]}
        (run,) = (run for title, run in titles.items() if f"{part}, " in title)
        return json.loads((self.folder / run / "summary.json").read_bytes())

    def table(self, title: str) -> list[list[str]]:
        """Heading and rows of a table, as texts."""
        (found,) = (table for table in self.json["tables"] if table["title"] == title)
        return [
            found["columns"],
            *([cell["text"] for cell in row] for row in found["rows"]),
        ]

    def readings(self, plan: str) -> dict[str, Reading]:
        """What the result says of each claim of the plan's write-up; each has a reason."""
        # the claims name the write-up's concurrency
        text = (self.folder / "sweep.json").read_text().replace("c=2", "c=16")
        result = json.loads(text)
        found = {}
        for claims in CLAIMS.values():
            for claim in claims:
                if claim.plan == plan:
                    found[claim.text] = claim.answer.read(result)
        assert all(reading.why for reading in found.values()), found
        return found


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[..., Swept]:
    """Run a bundled plan: sweep("llama-bench", model=…)."""

    def run(plan: str, env: dict[str, str] | None = None, **sets: object) -> Swept:
        words = [
            word
            for name, value in ({"idle-s": 0} | sets).items()
            for word in ("--set", f"{name.replace('_', '-')}={value}")
        ]
        command = [
            sys.executable,
            "-m",
            "llama_load.cli.main",
            "sweep",
            plan,
            "--out",
            str(tmp_path / "sweep"),
            *words,
        ]
        done = run_to_the_end(
            command, 290, env=environment() | (env or {}), cwd=tmp_path
        )
        return Swept(done.returncode, done.stdout, done.stderr, tmp_path / "sweep")

    return run


@pytest.fixture
def program(llama_cpp: Path) -> Path:
    return llama_cpp / "llama-server"


def test_documents_and_images(
    sweep: Callable[..., Swept], program: Path, tiny_model: Path
) -> None:
    """Catches a bundled plan that its server, sweep or report no longer takes."""
    projector = cached_projector(TINY.dim)
    done = sweep(
        "mixed-document-vision",
        program=program,
        models=f"[{tiny_model}]",
        mmproj_args=f"['-mm {projector}']",
        args="-c 8192 -np 4 -t 1",
        fit_params=program.parent / "llama-fit-params",
        document_tokens=400,
        max_tokens=8,
        users=2,
        requests=4,
    )
    assert done.code in (0, 1), done.err
    head, *rows = done.table("model.gguf")
    assert head == [
        "Task",
        "Elapse",
        "Tokens Per Second",
        "Prompt Per Second",
        "Predict Per Second",
        "Prompt",
        "Predict",
    ]
    assert [row[0] for row in rows] == ["Document Understanding"] * 2 + [
        "Vision Understanding"
    ] * 2
    assert all(float(cell) > 0 for row in rows for cell in row[2:])
    # in tenths of a second, which the tiny model may not need
    assert all(float(row[1]) >= 0 for row in rows)
    assert "memory breakdown" in done.out and FORECAST not in done.out
    (fitted,) = (done.folder / "servers").glob("*/fit_param.cmd")
    assert "-ngl" in fitted.read_text()
    readings = done.readings("mixed-document-vision")
    assert readings["all requests succeed"].outcome == SUPPORTED
    assert readings["a model takes too much memory"].outcome == NOT_JUDGED


def test_llama_bench_local_and_rpc(
    sweep: Callable[..., Swept], program: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Exactly the tokens of each test are processed, with two RPC workers too; llama-bench's own
    file stands beside them. Catches a column or flag of llama-bench that changed."""
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
    # not marked: the server reports its own times
    assert (row[3], row[-1][-1].isdigit()) == ("CPU,RPC", True)
    (_, row) = done.table("Depth of the context")
    assert row[5] == "pp64 @ d256"
    (bench,) = json.loads(output)
    speed, spread = done.table("llama-bench itself")[1][-1].split(" ± ")
    assert (float(speed), float(spread)) == (
        pytest.approx(bench["avg_ts"], rel=1e-3),
        pytest.approx(bench["stddev_ts"], rel=1e-2),
    )
    sides = done.table("Local and RPC")[1:]
    assert all(float(row[-1].split()[0]) < 100 for row in sides)
    (run,) = (
        path
        for path in (done.folder / "runs").glob("depth-cluster=local-*pp64*")
        if path.is_dir()
    )
    summary = json.loads((run / "summary.json").read_bytes())
    assert summary["total_input_tokens"] == 3 * (64 + 256)
    assert summary["llama_load"]["total_cached_tokens"] == 3 * 256
    slower = done.readings("llama-bench")["RPC is slower"]
    assert slower.outcome == NOT_JUDGED  # one run each
    assert "not proven" in slower.why


def test_what_settings_of_llama_bench_do(
    sweep: Callable[..., Swept], program: Path, tiny_model: Path
) -> None:
    """Batch and threads, each with two values, twice in turns: an effect is shown or is not, with
    the difference that would have been found. Runs of a busy machine are left out; what remains may
    have an order that proves nothing. Catches effects of settings that are not told from noise."""
    done = sweep(
        "llama-bench",
        program=program,
        clusters="[local]",
        rpc_workers="[0]",
        model=tiny_model,
        backend="CPU",
        ngl=0,
        layers="[0]",
        threads="[1, 2]",
        batches="[32, 256]",
        generation_tests="[]",
        batch_tests="[pp256]",
        thread_tests="[tg16]",
        layer_tests="[]",
        depth_tests="[]",
        requests=3,
        repeats=2,
        common="-c 2048 -np 1",
    )
    assert done.code in (0, 1), done.err + done.out
    readings = done.readings("llama-bench")
    for claim in ("a larger batch is faster", "more threads are faster"):
        reading = readings[claim]
        unproven = "not proven: the runs of"
        said = ("p = ", "no two of its values have comparable results", unproven)
        assert any(text in reading.why for text in said), reading
        is_judged = reading.outcome != NOT_JUDGED
        assert is_judged is ("no effect" not in reading.why and said[0] in reading.why)


def test_speculation_by_category(
    sweep: Callable[..., Swept], program: Path, tiny_model: Path
) -> None:
    """A model that drafts for itself is accepted nearly always; the bundled questions of two
    categories. Catches drafts that llama-server counts in another way."""
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
    assert [row[:2] for row in rows] == [
        [kind, level] for kind in ("code", "lists") for level in ("c=1", "c=2")
    ]
    assert all(float(row[2]) > 90 and 2 < float(row[3]) <= 4 for row in rows)
    assert all(row[4].startswith(("1.00 / ", "0.9")) for row in rows)


def test_cold_starts(
    sweep: Callable[..., Swept], program: Path, tiny_model: Path
) -> None:
    """Each is a new process, and takes longer than its request alone. Catches a start that is
    measured with a warm process."""
    done = sweep(
        "cold-start",
        program=program,
        model=tiny_model,
        layers="[1, 0]",
        clusters="[local]",
        rpc_workers="[0]",
        common="-c 1024",
    )
    assert done.code == 0, done.err
    sooner = done.readings("cold-start")["more layers give the first token sooner"]
    assert "p = " in sooner.why or "comparable" in sooner.why, sooner
    head, row = done.table("Local - 0")
    assert head == ["1", "2", "3", "4", "5"]
    seconds = {
        float(cell.partition("s")[0]) for cell in row
    }  # on a busy machine with a †
    assert len(seconds) > 1


def test_sharegpt_under_schedulers(
    sweep: Callable[..., Swept], program: Path, tiny_model: Path
) -> None:
    """A context of 512 tokens is too short for some of the questions: they fail, are counted and
    named. Catches failures of prompts beyond a real context."""
    sets = {
        "names": "[default, nice]",
        "alongside": '["", sleep 1000]',
        "wrappers": '["", nice -n 1]',
        "tests": "[pp64]",
    }
    small = {"args": "-c 512 -np 2 -t 1", "users": 2, "requests": 8, "max-tokens": 8}
    done = sweep(
        "sharegpt-schedulers", program=program, model=tiny_model, **sets, **small
    )
    assert done.code == 1, done.err
    head, *rows = done.table("")
    assert head == [
        "Scheduler",
        "Successful",
        "Success Rate (%)",
        "Reasons of Failures",
        "TTFT (s)",
        "Tokens Per Second",
    ]
    assert [row[0] for row in rows] == ["default", "nice"]
    for row in rows:
        succeeded = int(row[1].split("/")[0])
        assert row[1] == f"{succeeded}/8"
        assert row[3] == f"context_exceeded {8 - succeeded}"
    assert done.table("llama-bench - nice")[1][5] == "pp64"
    use = done.table("The server's CPU and memory")
    assert [row[0] for row in use[1:]] == ["default", "nice"]
    for row in use[1:]:
        # of a run of some tenths of a second there is one sample
        assert row[1] == "NA" or float(row[1].split()[0]) > 0
        assert row[2] == "NA" or float(row[2].split()[0]) > 0

    readings = done.readings("sharegpt-schedulers")
    same = readings["the same requests succeed under every scheduler"]
    # on a busy machine another flaw than the failed requests may stand in the notes
    is_other = "NOT COMPARABLE" in same.why or "CLIENT-BOUND" in same.why
    assert same.outcome == SUPPORTED or is_other, same
    by_length = readings["requests fail because they exceed the context"]
    others = readings["requests fail by timeouts or an overloaded server"]
    assert (by_length.outcome, others.outcome) == (SUPPORTED, REFUTED)
    assert readings["a scheduler has another throughput"].outcome == NOT_JUDGED


def test_llama_cpp_python_on_gpus(
    sweep: Callable[..., Swept], llama_cpp_python: Path, tiny_model: Path
) -> None:
    """Without a GPU its memory is NA, with the reason. Catches a plan whose server is started with
    flags that it refuses."""
    small = {"gpus": '["0", "0,1"]', "requests": 2, "max-tokens": 8}
    done = sweep(
        "llama-cpp-python-gpus",
        python=llama_cpp_python,
        model=tiny_model,
        args="--n_ctx 4096 --n_threads 1",
        **small,
    )
    assert done.code in (0, 1), done.err
    head, *rows = done.table("")
    assert head == ["显卡数量", "显存 (MiB)", "每秒生成 Tokens", "每秒生成字符"]
    assert [row[:2] for row in rows] == [["1 (not seen)", "NA"], ["2 (not seen)", "NA"]]
    fewer = done.readings("llama-cpp-python-gpus")[
        "more GPUs generate fewer tokens per second"
    ]
    assert fewer.outcome == NOT_JUDGED, fewer
    for name, cells in zip(("0", "0,1"), rows, strict=True):
        _assert_explained(done, f"devices={name}", dict(zip(head, cells, strict=True)))


def _assert_explained(done: Swept, row: str, cells: dict[str, str]) -> None:
    """Each cell that is missing or not ranked has its note, whose reason is what this run's verdict
    says: on a busy machine one or more of its checks fail."""
    notes = done.json["tables"][0]["notes"]
    verdict = done.summary(row)["llama_load"]["verdict"]
    failed = [check["text"] for check in verdict["checks"] if not check["ok"]]
    for heading, cell in list(cells.items())[1:]:
        setting, _, _ = row.partition("=")
        # A note on all rows names none.
        of_all = [note for note in notes if f"{setting}=" not in note]
        about = [note for note in notes if f"{row}: " in note] + of_all
        if cell == "NA":
            (note,) = (note for note in about if heading in note)
            known = ["telemetry saw no GPU in use"] if "显存" in heading else failed
            assert note.startswith("NA: ")
            assert any(note.endswith(f": {why}") for why in known), (note, failed)
        else:
            assert float(cell.removesuffix(" †")) > 0
            if cell.endswith("†"):
                marked = [note for note in about if note.startswith("†")]
                assert any(text in note for note in marked for text in failed), notes


def test_vllm_against_llama_cpp(
    sweep: Callable[..., Swept],
    program: Path,
    vllm_python: Path,
    hf_model: Path,
    tmp_path: Path,
) -> None:
    """One quantization of vLLM and two of llama.cpp at concurrency 1 and 2; perplexity by vLLM, NA
    with a reason for llama-server. Catches two servers whose rows do not meet in one table."""
    gguf_model = cached_model(QUANTIZABLE, bundled("datasets/sharegpt_sample.json"))
    quantized = tmp_path / "tiny.Q8_0.gguf"
    quantize = [str(program.parent / "llama-quantize"), str(gguf_model), str(quantized)]
    run_to_the_end([*quantize, "Q8_0"], 60)
    quiet = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
    }
    done = sweep(
        "vllm-vs-llama-cpp",
        env=quiet | {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
        vllm=vllm_python.parent / "vllm",
        llama_server=program,
        quantizations="[FP16, 8-bit]",
        vllm_models=f"[{hf_model}, '']",
        gguf_models=f"[{gguf_model}, {quantized}]",
        vllm_args="--dtype float32 --enforce-eager --max-model-len 4096 --max-num-seqs 4",
        llama_args="-c 8192 -np 2 -t 1",
        stages='"1,2"',
        most=2,
        requests=4,
    )
    assert done.code in (0, 1), done.err + done.out
    head, *rows = done.table("c=2 FP16 Comparison")
    figures = [
        "Duration (s)",
        "Req/s",
        "Output Tok/s",
        "Total Tok/s",
        "Mean TTFT (ms)",
        "Mean TPOT (ms)",
    ]
    assert head == ["Backend", "Model/Quant", *figures]
    assert [row[0] for row in rows] == ["vLLM", "llama.cpp"]
    assert done.table("vLLM Concurrency")[0] == ["Model", "Concurrency", *figures]
    assert [row[1] for row in done.table("vLLM Concurrency")[1:]] == ["c=1", "c=2"]
    quality = done.table("Quality")[1:]
    perplexities = {row[0]: row[2] for row in quality}
    comparison = done.table("c=2 8-bit Quantization Comparison")[1:]
    assert [row[1] for row in comparison] == ["tiny.Q8_0.gguf"]
    assert float(perplexities["vLLM"]) > 1
    assert perplexities["llama.cpp"] == "NA"
    assert "llama-server reports no log-probabilities" in done.out

    readings = done.readings("vllm-vs-llama-cpp")
    by_text = readings["llama.cpp is faster at concurrency 1"]
    # two tokenizers count the same questions differently, which the notes name
    if by_text.outcome == NOT_JUDGED:
        assert "not ranked" in by_text.why or "†" in by_text.why, by_text
    assert readings["4 bits are fastest"].outcome == NOT_JUDGED


def test_quantizations_against_full_precision(
    sweep: Callable[..., Swept], program: Path, tmp_path: Path
) -> None:
    """Three files of one model in 32, 8 and 4 bits, without vLLM: all are run, and +PPL is the
    difference of what llama-perplexity prints for them. Catches files of llama-quantize that a plan
    does not take."""
    full = cached_model(QUANTIZABLE, bundled("datasets/sharegpt_sample.json"))
    files = [full]
    for kind in ("Q8_0", "Q4_K_M"):
        files.append(tmp_path / f"tiny.{kind}.gguf")
        quantize = [str(program.parent / "llama-quantize"), str(full), str(files[-1])]
        assert run_to_the_end([*quantize, kind], 60).returncode == 0
    done = sweep(
        "vllm-vs-llama-cpp",
        llama_server=program,
        vllm_models="''",
        gguf_models=f"[{', '.join(map(str, files))}]",
        perplexity_binary=program.parent / "llama-perplexity",
        perplexity_args="-t 1",
        llama_args="-c 8192 -np 2 -t 1",
        stages='"1"',
        most=1,
        requests=4,
    )
    assert done.code in (0, 1), done.err + done.out
    head, *rows = done.table("Quality")
    assert head == ["Backend", "Model/Quant", "PPL", "+PPL", "Bits/byte"]
    assert [row[1] for row in rows] == [file.name for file in files]
    perplexities = [float(row[2].split(" ")[0]) for row in rows]
    assert rows[0][3] == "+0.0000"
    for perplexity, row in zip(perplexities[1:], rows[1:], strict=True):
        difference = perplexity - perplexities[0]
        assert float(row[3]) == pytest.approx(difference, abs=2e-4)
        assert row[3][0] in "+-"
    compared = [row[1] for row in done.table("c=1 Comparison")[1:]]
    assert compared == [file.name for file in files]
    assert sum(not cell["reason"] for cell in done.json["cells"]) == 3


def test_perplexity_by_llama_cpp_python_is_that_of_its_library(
    start_llama_cpp_python: Callable[..., Server],
    llama_cpp_python: Path,
    tiny_model: Path,
) -> None:
    """The server's echoed log-probabilities against the library's logits, of one window. Catches
    log-probabilities that are shifted by a token."""
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
    done = run_to_the_end(
        [str(llama_cpp_python), "-c", script, str(tiny_model), text],
        100,
        env=environment(),
    )
    expected = json.loads(done.stdout.splitlines()[-1])
    assert score.tokens == len(expected)
    assert score.perplexity == pytest.approx(
        math.exp(-sum(expected) / len(expected)), rel=1e-3
    )
