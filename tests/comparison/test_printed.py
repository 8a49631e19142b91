"""Printed blocks of `vllm bench serve` in old and new layouts, of vllm-bench and sglang, and llama-bench's tables."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from llama_load.comparison.foreign_results import endpoint_of
from llama_load.comparison.llama_bench import bench_rows, decode_speeds, quantization
from llama_load.comparison.printed import _title, printed_runs
from llama_load.comparison.side import SGLANG, VLLM_BENCH, VLLM_BENCH_SERVE

# Laid out from the format strings of vllm bench serve 0.33, names in 40 columns and values in 10.
NEW = """\
$ vllm bench serve --model tiny --dataset-name=random --num-prompts 20 --ignore-eos --seed 3
tip: 5/9 |##| 5/9 [00:01<00:01]
Starting main benchmark run...
 90%|#########  | 18/20 [00:01<00:00]
100%|###########| 20/20 [00:02<00:00, 9.1it/s]============ Serving Benchmark Result ============
Successful requests:                     19
Failed requests:                         1
Maximum request concurrency:             4
Request rate configured (RPS):           8.00
Benchmark duration (s):                  2.05
Total input tokens:                      1000
Total generated tokens:                  600
Request throughput (req/s):              9.27
Request goodput (req/s):                 8.00
Output token throughput (tok/s):         292.68
Peak output token throughput (tok/s):    400.00
Peak concurrent requests:                4.00
Total token throughput (tok/s):          780.49
---------------Time to First Token----------------
Mean TTFT (ms):                          31.50
Median TTFT (ms):                        30.00
P99.9 TTFT (ms):                         60.00
----------------End-to-end Latency----------------
Mean E2EL (ms):                          200.00
==================================================
Mean TTFT (ms):                          1.00
"""
# vllm-bench: 60 columns, and a second table whose figures are of a part of the run.
RUST = """\
================= Serving Benchmark Result =================
Successful requests:                     8
Failed requests:                         0
Benchmark duration (s):                  4.00
Request throughput (req/s):              2.00
Mean TTFT (ms):                          12.50
============================================================
============= Steady-State Metrics ============
Mean TTFT (ms):                     11.00
===============================================
"""
OTHER = """\
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max request concurrency:                 16
Successful requests:                     100
Benchmark duration (s):                  34.24
Total generated tokens:                  21513
Total generated tokens (retokenized):    21500
Output token throughput (tok/s):         628.38
Mean E2E Latency (ms):                   10540.12
Median ITL (ms):                         n/a
==================================================
"""


def test_the_new_layout() -> None:
    (run,) = printed_runs(NEW, "log.txt")
    assert run.tool == VLLM_BENCH_SERVE and run.label == "log.txt#1" and run.rounding == 0.01
    assert (run.count("completed"), run.failed, run.planned, run.concurrency) == (19, 1, 20, 4)
    assert run.value("mean_ttft_ms") == 31.5 and run.value("p99.9_ttft_ms") == 60 and run.value("mean_e2el_ms") == 200
    assert run.value("request_goodput") == 8 and run.value("total_token_throughput") == 780.49
    assert run.setup["model"] == "tiny" and run.setup["--dataset-name"] == "random"
    assert run.setup["--ignore-eos"] == "on" and run.setup["--seed"] == "3"


def test_the_bar_of_a_tokenizer_is_not_that_of_the_run() -> None:
    """The last one before the block, but none from above the line that begins the run."""
    bar = "100%|###| 32000/32000 [00:15<00:00]\n"
    (run,) = printed_runs(f"{bar}Starting main benchmark run...\n{RUST}", "x")
    assert run.planned is None


def test_figures_of_a_part_of_the_run_are_not_taken_for_the_runs() -> None:
    (run,) = printed_runs(RUST, "x")
    assert run.tool == VLLM_BENCH and run.value("mean_ttft_ms") == 12.5


def test_a_tool_that_means_something_else_is_known_by_its_lines() -> None:
    (run,) = printed_runs(OTHER, "x")
    assert run.tool == SGLANG and run.concurrency == 16
    assert run.count("total_output_tokens") == 21513 and run.value("mean_e2el_ms") == 10540.12
    assert run.value("median_itl_ms") is None


def test_blocks_are_named_by_the_headings_above_them() -> None:
    """A heading that is only a load belongs under the one before. Quoted blocks count, too."""
    quoted = "".join(f"> {line}\n" for line in RUST.splitlines())
    runs = printed_runs(f"# How to run\n## Llama 7B\n# c=1\n{RUST}\n# c=8\n{RUST}\n# other c=4\n{quoted}\n{RUST}", "log")
    assert [run.label for run in runs] == ["Llama 7B c=1", "Llama 7B c=8", "other c=4", "log#4"]


def test_what_was_printed_for_one_block_is_not_of_the_next() -> None:
    """Neither the number of requests nor arguments."""
    first, second = printed_runs(NEW + RUST, "x")
    assert first.planned == 20 and second.planned is None and second.setup == {"measured with": VLLM_BENCH}


def test_arguments_in_a_namespace() -> None:
    text = "Namespace(bench_type='serve', model='a, b', num_prompts=10, seed=0, dataset_path=None, api_key='s')\n"
    (run,) = printed_runs(text + RUST, "x")
    assert run.planned == 10 and run.failed == 2
    assert run.setup == {"measured with": VLLM_BENCH, "model": "a, b", "requests": "10", "--seed": "0"}


def test_a_block_cut_off_or_without_figures_is_not_read() -> None:
    assert printed_runs("============ Serving Benchmark Result ============\nSuccessful requests: x\n", "x") == []
    assert printed_runs("no block at all", "x") == []


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for around in (
        text,
        f"{NEW}{text}{RUST}",
        f"============ Serving Benchmark Result ============\n{text}\n| model | test | t/s |\n{text}",
    ):
        printed_runs(around, "x")
        bench_rows(around)


# ---------------------------------------------------------------------- llama-bench

BENCH = """\
| model                          |       size |     params | backend    | ngl | fa |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | -: | --------------: | -------------------: |
| llama 7B Q4_K - Medium         |   3.80 GiB |     6.74 B | ROCm       |  99 |  1 |           pp512 |        958.96 ± 6.76 |
| llama 7B Q4_K - Medium         |   3.80 GiB |     6.74 B | ROCm       |  99 |  1 |           tg128 |         33.28 ± 0.01 |
| llama 7B Q4_K - Medium         |   3.80 GiB |     6.74 B | ROCm       |  99 |  1 |   tg128 @ d4096 |         20.00 ± 0.01 |

build: 4d74393bc (6327)
| llama 3B Q6_K | 2.45 GiB | 3.21 B | CUDA    |   99 | tg128 | 79.20 ± 0.46 |
"""


def test_rows_of_llama_bench() -> None:
    """Rows below their header only; generation after a long context is not plain decoding."""
    rows = bench_rows(BENCH)
    assert [(row.test, row.tok_per_s) for row in rows] == [("pp512", 958.96), ("tg128", 33.28), ("tg128 @ d4096", 20.0)]
    assert [(name, row.tok_per_s) for name, row in decode_speeds(rows).items()] == [("q4_k_m", 33.28)]


def test_quantizations_in_labels_files_and_tables_are_spelled_alike() -> None:
    for text in ("llama 7B Q4_K - Medium", "llama-2-7b.Q4_K_M.gguf", "llama.cpp q4_k_m - c=1"):
        assert quantization(text) == "q4_k_m"
    assert quantization("fp16 llama.cpp") == quantization("Llama-2-7b-chat-hf.f16.gguf") == "f16"
    assert quantization("quantized.w8a8") == "w8a8" and quantization("Llama-2-7B-Chat-GPTQ (3.7GB)") == "gptq"
    assert quantization("IQ4_XS") == "iq4_xs" and quantization("llama 7B") is None and quantization("q4_k_m_x") is None


def test_a_hostile_heading_is_read_in_linear_time() -> None:
    """0.7 s for each heading of 4000 spaces, before one that is only a load."""
    begun_s = time.process_time()
    for _ in range(10):
        _title("c=8", "a" + " " * 3900 + "b")
    assert time.process_time() - begun_s < 1
    assert _title("c=8", "Llama (FP16)  c=4") == "Llama (FP16) c=8"


def test_what_a_benchmark_calls_an_api_is_known() -> None:
    """Several of our APIs are `openai` to it; that type sends to completions."""
    known = {"openai": "completions", "vllm": "completions", "openai-chat": "chat", "openai-embeddings": "embeddings"}
    assert {name: endpoint_of(name) for name in (*known, "vllm-rerank", "?")} == known | {"vllm-rerank": "rerank", "?": ""}
