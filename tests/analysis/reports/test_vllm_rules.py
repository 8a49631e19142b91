"""summary.json goes through vLLM's performance evaluation (vllm-project/perf-eval, lib/, November
2026): the rules by which its scripts aggregate, assert and ingest results of `vllm bench serve`."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.results.results import analyze
from llama_load.run_folder import load_run
from scripts.record_printed import PRINTED
from tests.printed import analyzed

# What repeated results must agree on to be aggregated.
IDENTITY = ("backend", "model_id", "tokenizer_id", "num_prompts", "max_concurrency")
# Names under which the scripts look for failures; each that is there must be the integer 0.
FAILED = ("failed", "errored", "failed_requests", "num_failed_requests")
# Figures that its workloads assert on.
ASSERTED = (
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "mean_ttft_ms",
    "median_ttft_ms",
    "mean_tpot_ms",
    "median_itl_ms",
)


@cache
def summary() -> dict[str, Any]:
    """That of a recorded run, as a reader of JSON gets it."""
    results = analyzed("demo")
    return json.loads(json.dumps(result_json(results)))


def test_a_result_can_be_asserted_on() -> None:
    """Whole numbers where the scripts compare types, and finite numbers where they compare bounds;
    no key that marks a result as aggregated already."""
    result = summary()
    assert type(result["model_id"]) is str and type(result["backend"]) is str
    assert type(result["max_concurrency"]) is int
    assert type(result["num_prompts"]) is int
    assert result["completed"] == result["num_prompts"]
    assert type(result["completed"]) is int
    failures = {name: result[name] for name in FAILED if name in result}
    assert failures == {"failed": 0}
    for name in ASSERTED:
        assert type(result[name]) in (int, float) and math.isfinite(result[name]), name
    assert not {"aggregation_method", "aggregated_repetitions"} & result.keys()


def test_repeated_results_have_the_same_keys() -> None:
    """Also a run so short that it has no upper percentiles: what is not known is null, not left
    out."""
    run = load_run(PRINTED / "demo")
    keys = result_json(analyze(run)).keys()
    short = replace(run, records=run.records.take(np.arange(8)))
    assert result_json(analyze(short)).keys() == keys
    assert set(IDENTITY) <= keys


@pytest.mark.parametrize("parallel", [1, 8])
def test_a_result_can_be_ingested(parallel: int) -> None:
    """Throughputs per GPU, and every key that ends in _ms as a number of seconds: the scripts skip
    what is none, and read no list as a number."""
    result = summary()
    total = float(result["total_token_throughput"])
    output = float(result["output_throughput"])
    assert total > output > 0
    assert (total - output) / parallel > 0
    latencies = {name: value for name, value in result.items() if name.endswith("_ms")}
    assert len(latencies) > 10
    for name, value in latencies.items():
        assert value is None or float(value) >= 0, name
