"""The bundled plans print the tables of the write-ups that they follow: their columns, byte for
byte, from the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from llama_load.analysis.reports.request_table import RequestRow
from llama_load.ground.bundled import bundled
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.read_plan import read_plan
from llama_load.lab.sweep.rows import Row
from llama_load.lab.sweep.sweep_tables import make_tables
from llama_load.tables import Cell, markdown_lines
from tests.claims import (
    CLAIMS,
    NOT_JUDGED,
    REFUTED,
    SUPPORTED,
    Best,
    Cells,
    Effect,
    Note,
    Unanswered,
    lines_for,
)
from tests.conftest import REPOSITORY

# Heading, rule and first rows of every kind of table in the write-ups.
DOCUMENTS_AND_IMAGES = """\
|Task|Elapse|Tokens Per Second|Prompt Per Second|Predict Per Second|Prompt|Predict|
|----|-----:|----------------:|----------------:|-----------------:|-----:|------:|
|Document Understanding|96.4|125.6|370.4|2.00|11980|128|
|Vision Understanding|92.2|24.6|89.8|1.87|2136|128|
"""
GENERATION = """\
| model         |     size | params | backend |  ngl |  test |          t/s |
| ------------- | -------: | -----: | ------- | ---: | ----: | -----------: |
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA    |   99 | tg128 | 79.20 ± 0.46 |
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA    |   99 | tg256 | 77.73 ± 0.12 |
"""
BATCHES = """\
| model         |     size | params | backend |  ngl | n_batch |   test |             t/s |
| ------------- | -------: | -----: | ------- | ---: | ------: | -----: | --------------: |
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA    |   99 |      64 | pp1024 | 1990.50 ± 17.68 |
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA    |   99 |     128 | pp1024 | 2516.43 ± 23.75 |
"""
THREADS = """\
| model         |     size | params | backend |  ngl | threads | test |             t/s |
| ------------- | -------: | -----: | ------- | ---: | ------: | ---: | --------------: |
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA    |   99 |       1 | pp64 | 1623.44 ± 87.99 |
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA    |   99 |       1 | tg16 |    43.41 ± 3.78 |
"""
LAYERS = """\
| model         |     size | params | backend |  ngl |  test |              t/s |
| ------------- | -------: | -----: | ------- | ---: | ----: | ---------------: |
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA    |   20 | pp512 | 1002.68 ± 106.12 |
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA    |   20 | tg128 |     27.26 ± 2.31 |
"""
RPC = """\
| model         |     size | params | backend  |  ngl |  test |          t/s |
| ------------- | -------: | -----: | -------- | ---: | ----: | -----------: |
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA,RPC |   99 | tg128 | 14.39 ± 1.21 |
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA,RPC |   99 | tg256 | 13.73 ± 0.06 |
"""
COLD_START = """\
| 1      | 2      | 3      | 4      | 5      |
| ------ | ------ | ------ | ------ | ------ |
| 2.934s | 2.663s | 2.704s | 2.964s | 2.606s |
"""
UNDER_A_SCHEDULER = """\
| model                          |       size |     params | backend    | threads |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: | -------------------: |
| llama 1B Q4_K - Medium         | 636.18 MiB |     1.10 B | CPU        |       2 |           pp512 |         58.31 ± 1.75 |
| llama 1B Q4_K - Medium         | 636.18 MiB |     1.10 B | CPU        |       2 |             tg1 |         27.86 ± 1.62 |
"""
GPUS = """\
| 显卡数量 | 显存 (MiB) | 每秒生成 Tokens | 每秒生成字符 |
| :---: | ---: | ---: | ---: |
| 1 | 6478 | 21.06 | 40.33 |
| 2 | 6744 | 18.47 | 33.79 |
"""
CONCURRENCY = """\
| Model                         | Concurrency | Duration (s) | Req/s    | Output Tok/s | Total Tok/s | Mean TTFT (ms) | Mean TPOT (ms) |
|-------------------------------|-------------|--------------|----------|--------------|-------------|----------------|----------------|
| meta-llama/Llama-2-7b-chat-hf | c=1         | 1295.40      | 0.05     | 8.61         | 22.36       | **121.23**     | **115.88**     |
| meta-llama/Llama-2-7b-chat-hf | c=16        | **155.97**   | **0.41** | **72.17**    | **186.35**  | 871.62         | 162.64         |
"""
QUANTIZATIONS = """\
| Model                                    | Size   | Concurrency | Duration (s) | Req/s    | Output Tok/s | Total Tok/s | Mean TTFT (ms) | Mean TPOT (ms) |
|------------------------------------------|--------|-------------|--------------|----------|--------------|-------------|----------------|----------------|
| meta-llama/Llama-2-7b-chat-hf            | 13.5GB | c=16        | 155.97       | 0.41     | 72.17        | 186.35      | 871.62         | 162.64         |
| TheBloke/Llama-2-7B-Chat-GPTQ            | 3.7GB  | c=16        | **85.72**    | **0.75** | **148.91**   | **356.67**  | **787.02**     | **90.31**      |
"""
KINDS = """\
| Backend   | Model/Quant                           | Duration (s) | Req/s    | Output Tok/s | Total Tok/s | Mean TTFT (ms) | Mean TPOT (ms) |
|-----------|---------------------------------------|--------------|----------|--------------|-------------|----------------|----------------|
| vLLM      | meta-llama/Llama-2-7b-chat-hf         | 155.97       | 0.41     | **72.17**    | **186.35**  | 871.62         | **162.64**     |
| llama.cpp | Llama-2-7b-chat-hf.f16.gguf           | **79.95**    | **0.45** | 66.85        | 83.60       | **497.90**     | 175.86         |
"""
EIGHT_BITS = """\
| Backend   | Model/Quant                          | Duration (s) | Req/s    | Output Tok/s | Total Tok/s | Mean TTFT (ms) | Mean TPOT (ms) |
"""
FOUR_BITS = """\
| Backend   | Model/Quant                   | Duration (s) | Req/s    | Output Tok/s | Total Tok/s | Mean TTFT (ms) | Mean TPOT (ms) |
|-----------|-------------------------------|--------------|----------|--------------|-------------|----------------|----------------|
| vLLM      | TheBloke/Llama-2-7B-Chat-GPTQ | 85.72        | 0.75     | 148.91       | **356.67**  | 787.02         | 90.31          |
| llama.cpp | llama-2-7b.Q4_K_M.gguf        | **32.85**    | **1.10** | **178.68**   | 219.44      | **381.53**     | **64.94**      |
"""


def plan_of(name: str) -> Plan:
    return read_plan(bundled("plans") / f"{name}.yaml")


def table(plan: Plan, rows: Sequence[Row], title: str) -> str:
    """The table of this title (or the only one that begins with it), without its notes."""
    (found,) = (each for each in make_tables(plan, rows) if each.title == title)
    return "\n".join(markdown_lines(found)) + "\n"


def spread(mean: float, deviation: float) -> list[float]:
    """Two values with this mean and this sample deviation: mean ± d / sqrt 2."""
    return [mean - deviation / 2**0.5, mean + deviation / 2**0.5]


def row(
    place: int, facts: Mapping[str, str], figures: Mapping[str, Any] = {}, **rest: Any
) -> Row:
    return Row(
        facts=dict(facts),
        repeat=rest.pop("repeat", 1),
        place=place,
        figures=figures,
        **rest,
    )


def test_documents_and_images() -> None:
    requests = [
        ("document", "96.4", "125.6", "370.4", "2.00", "11980", "128"),
        ("vision", "92.2", "24.6", "89.8", "1.87", "2136", "128"),
    ]
    made = [
        RequestRow(task, "ok", [Cell(text) for text in texts])
        for task, *texts in reversed(requests)
    ]
    rows = [
        row(0, {"server": "server", "model": "GLM", "verdict": "VALID"}, requests=made)
    ]
    plan = plan_of("mixed-document-vision")
    assert table(plan, rows, "GLM") == DOCUMENTS_AND_IMAGES

    # with --set goodput=ttft:2000, whose rate is that of the requests that met it
    figures = {"completed": 2, "request_throughput": 0.5, "request_goodput": 0.25}
    rows[0].figures = figures
    (made_with_goal,) = make_tables(plan, rows)
    assert made_with_goal.notes == (
        "server: 1 of 2 answered requests met the objectives of --goodput",
    )


LLAMA_3B = {"model_type": "llama 3B Q6_K", "size": "2.45 GiB", "params": "3.21 B"}


@pytest.mark.parametrize(
    ("title", "server", "tests", "expected"),
    [
        (
            "Text generation",
            "generation",
            [("tg128", {}, 79.20, 0.46), ("tg256", {}, 77.73, 0.12)],
            GENERATION,
        ),
        (
            "Batch size",
            "batch",
            [
                ("pp1024", {"n_batch": "64"}, 1990.50, 17.68),
                ("pp1024", {"n_batch": "128"}, 2516.43, 23.75),
            ],
            BATCHES,
        ),
        (
            "Threads",
            "threads",
            [
                ("pp64", {"threads": "1"}, 1623.44, 87.99),
                ("tg16", {"threads": "1"}, 43.41, 3.78),
            ],
            THREADS,
        ),
        (
            "Layers on the GPU",
            "layers",
            [
                ("pp512", {"ngl": "20"}, 1002.68, 106.12),
                ("tg128", {"ngl": "20"}, 27.26, 2.31),
            ],
            LAYERS,
        ),
        (
            "Text generation, RPC",
            "generation",
            [("tg128", {}, 14.39, 1.21), ("tg256", {}, 13.73, 0.06)],
            RPC,
        ),
    ],
)
def test_llama_bench(
    title: str,
    server: str,
    tests: Sequence[tuple[str, dict[str, str], float, float]],
    expected: str,
) -> None:
    is_rpc = "RPC" in title
    rows = []
    for place, (test, settings, mean, deviation) in enumerate(tests):
        facts = LLAMA_3B | {
            "server": server,
            "cluster": "RPC" if is_rpc else "local",
            "backend": "CUDA,RPC" if is_rpc else "CUDA",
        }
        facts |= settings | {"test": test, "load": test}
        words = ["-ngl", settings.get("ngl", "99")]
        rows.append(
            row(place, facts, samples={"ts": spread(mean, deviation)}, words=words)
        )
    assert table(plan_of("llama-bench"), rows, title) == expected


def test_local_and_rpc_stand_side_by_side_with_the_loss() -> None:
    """79.20 tokens/s alone and 14.39 with RPC workers: 1 - 14.39 / 79.20 = 81.83 % are lost."""
    facts = LLAMA_3B | {"server": "generation", "test": "tg128", "load": "tg128"}
    rows = [
        row(0, facts | {"cluster": "local"}, samples={"ts": spread(79.20, 0.46)}),
        row(1, facts | {"cluster": "RPC"}, samples={"ts": spread(14.39, 1.21)}),
    ]
    lines = table(plan_of("llama-bench"), rows, "Local and RPC").splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[-5:-1]] == [
        "test",
        "local t/s",
        "RPC t/s",
        "loss %",
    ]
    assert [cell.strip() for cell in lines[2].split("|")[-5:-1]] == [
        "tg128",
        "79.20 ± 0.46",
        "14.39 ± 1.21",
        "81.83",
    ]
    assert len(lines) == 3


def test_cold_starts() -> None:
    seconds = (2.934, 2.663, 2.704, 2.964, 2.606)
    facts = {"server": "server", "cluster": "local", "ngl": "99", "load": "one"}
    rows = [
        row(0, facts, samples={"cold_start_s": [value]}, repeat=number)
        for number, value in enumerate(seconds, 1)
    ]
    plan = plan_of("cold-start")
    assert table(plan, rows, "Local - 99") == COLD_START
    assert "2.774 ±" in table(plan, rows, "Mean of the five")


def test_sharegpt_under_schedulers() -> None:
    facts = {
        "server": "server",
        "scheduler": "scx_rusty",
        "load": "ShareGPT",
        "succeeded": "12/20",
        "reasons": "context_exceeded 8",
    }
    figures = {
        "success_rate": 60.0,
        "mean_ttft_ms": 4800.0,
        "output_throughput": 24.3,
        "completed": 12,
    }
    tests = {
        "model_type": "llama 1B Q4_K - Medium",
        "size": "636.18 MiB",
        "params": "1.10 B",
        "backend": "CPU",
        "scheduler": "scx_rusty",
        "server_threads": "2",
    }
    plan = plan_of("sharegpt-schedulers")
    rows = [row(0, facts, figures)]
    for name, mean, deviation in (("pp512", 58.31, 1.75), ("tg1", 27.86, 1.62)):
        rows.append(
            row(
                1,
                tests | {"server": "server", "load": name, "test": name},
                samples={"ts": spread(mean, deviation)},
            )
        )
    lines = table(plan, rows, "").splitlines()
    assert (
        lines[0]
        == "| Scheduler | Successful | Success Rate (%) | Reasons of Failures | TTFT (s) | Tokens Per Second |"
    )
    assert (
        lines[2] == "| scx_rusty | 12/20 | 60.0 | context_exceeded 8 | 4.80 | 24.30 |"
    )
    assert table(plan, rows, "llama-bench - scx_rusty") == UNDER_A_SCHEDULER


def test_llama_cpp_python_on_gpus() -> None:
    figures = [(6478, 21.06, 40.33), (6744, 18.47, 33.79)]
    rows = [
        row(
            n,
            {"server": "server", "devices": str(n), "gpus": str(n + 1)},
            {"vram_mib": vram, "output_throughput": tokens, "chars_per_s": chars},
        )
        for n, (vram, tokens, chars) in enumerate(figures)
    ]
    assert table(plan_of("llama-cpp-python-gpus"), rows, "") == GPUS


# Duration, requests/s, output tokens/s, total tokens/s, TTFT, TPOT of the write-up.
VLLM_1 = (1295.40, 0.05, 8.61, 22.36, 121.23, 115.88)
VLLM_16 = (155.97, 0.41, 72.17, 186.35, 871.62, 162.64)
GPTQ_16 = (85.72, 0.75, 148.91, 356.67, 787.02, 90.31)
F16_16 = (79.95, 0.45, 66.85, 83.60, 497.90, 175.86)
Q4_16 = (32.85, 1.10, 178.68, 219.44, 381.53, 64.94)
NAMES = (
    "duration",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "mean_ttft_ms",
    "mean_tpot_ms",
)


def test_vllm_against_llama_cpp() -> None:
    """All six tables, from the figures of the write-up."""
    rows = []
    for place, (server, quantization, model, size, users, figures) in enumerate((
        ("vLLM", "FP16", "meta-llama/Llama-2-7b-chat-hf", "13.5GB", 1, VLLM_1),
        ("vLLM", "FP16", "meta-llama/Llama-2-7b-chat-hf", "13.5GB", 16, VLLM_16),
        ("vLLM", "4-bit", "TheBloke/Llama-2-7B-Chat-GPTQ", "3.7GB", 16, GPTQ_16),
        ("llama.cpp", "FP16", "Llama-2-7b-chat-hf.f16.gguf", "13.5GB", 16, F16_16),
        ("llama.cpp", "4-bit", "llama-2-7b.Q4_K_M.gguf", "3.8GB", 16, Q4_16),
    )):  # fmt: skip
        facts = {
            "server": server,
            "quantization": quantization,
            "model": model,
            "file_size": size,
            "concurrency": f"c={users}",
        }
        rows.append(
            row(
                place, facts, dict(zip(NAMES, figures, strict=True)) | {"completed": 64}
            )
        )
    plan = plan_of("vllm-vs-llama-cpp")
    assert table(plan, rows, "vLLM Concurrency") == CONCURRENCY
    assert table(plan, rows, "vLLM Quant comparison") == QUANTIZATIONS
    assert table(plan, rows, "c=16 4-bit Quantization Comparison") == FOUR_BITS
    assert (
        table(plan, rows, "c=16 8-bit Quantization Comparison").splitlines()[0] + "\n"
        == EIGHT_BITS
    )
    heading = KINDS.splitlines()[0]
    assert table(plan, rows, "c=1 Comparison").splitlines()[0] == heading
    assert table(plan, rows, "c=16 FP16 Comparison") == KINDS


@pytest.mark.parametrize("heading", CLAIMS)
def test_the_claims_of_a_write_up_are_those_of_the_documentation(heading: str) -> None:
    """Each names a table, a column or a setting that its plan has."""
    page = (REPOSITORY / "benchmarks" / "claims.md").read_text()
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    assert "\n".join(lines_for(heading)) in section

    for claim in CLAIMS[heading]:
        plan, answer = plan_of(claim.plan), claim.answer
        if isinstance(answer, Effect):
            assert answer.setting in plan.setting_names
        elif not isinstance(answer, Unanswered):
            tables = [each for each in plan.tables if answer.table in ("", each.title)]
            assert tables
            if not isinstance(answer, Note):
                assert answer.column in [column.name for column in tables[0].columns]


def test_claims_are_read_from_a_result() -> None:
    """Shown effects decide, a column without a best does not, and notes say why."""
    result = {
        "effects": [
            {"setting": "n", "figure": "t/s of pp", "is_shown": True, "ratio": 2.0}
            | {"text": "n: twice"},
            {"setting": "n", "figure": "t/s of tg", "is_shown": False, "ratio": 0.5}
            | {"text": "n: no effect shown"},
        ],
        "tables": [
            {
                "title": "A",
                "columns": ["who", "speed"],
                "rows": [
                    [{"text": "x", "best": False}, {"text": "1.0", "best": True}],
                    [{"text": "y", "best": False}, {"text": "NA", "best": False}],
                ],
                "notes": ["† y: 1 of 2 requests failed"],
            }
        ],
    }
    for answer, outcome in (
        (Effect("n", "t/s", True), SUPPORTED),
        (Effect("n", "t/s", False), REFUTED),
        (Effect("n", "t/s of tg", False), NOT_JUDGED),
        (Best("A", "speed", "x"), SUPPORTED),
        (Best("A", "speed", "y"), REFUTED),
        (Best("A", "who", "x"), NOT_JUDGED),
        (Cells("A", "speed", "1"), NOT_JUDGED),
        (Cells("A", "who", "x"), REFUTED),
        (Note("A", "failed"), SUPPORTED),
        (Note("A", "failed", is_said=False), REFUTED),
        (Unanswered("no"), NOT_JUDGED),
    ):
        reading = answer.read(result)
        assert (reading.outcome, bool(reading.why)) == (outcome, True), answer
