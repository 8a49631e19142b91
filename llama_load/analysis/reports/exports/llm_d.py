"""llm-d's Benchmark Report 0.2.

Source: llm-d/llm-d-benchmark, llmdbenchmark/analysis/benchmark_report/br_v0_2_json_schema.json.
Latencies are in ms. Its `time_per_output_token` is our TPOT, its `inter_token_latency` our ITL. The
verdict is in the description of the run and among its keywords, because the report has no field for
it. Servers are components of the kind "generic": the kind "inference_engine" requires a number of
accelerators, which a client does not know.
"""

from __future__ import annotations

import hashlib
import math
import uuid
from datetime import datetime
from typing import Any

import msgspec

from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.reports.exports.export_samples import (
    Sample,
    column_sample,
    latency_sample,
    ok_records,
    wall_times,
)
from llama_load.analysis.reports.private_paths import without_paths
from llama_load.analysis.results.keys import configured_load
from llama_load.analysis.results.results import Results
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.run_folder.vocabulary.document_caches import DIFFERENT

VERSION = "0.2"
# Its names of percentiles that have a decimal point.
_PERCENTILE_NAMES = {0.1: "p0p1", 99.9: "p99p9"}
# Its name of a latency: ours, and its unit.
_LATENCIES = {
    "time_to_first_token": ("ttft", "ms"),
    "time_per_output_token": ("tpot", "ms/token"),
    "inter_token_latency": ("itl", "ms/token"),
    "request_latency": ("e2el", "ms"),
}
# Its name of a length: our column.
_LENGTHS = {"input_length": "prompt_tokens", "output_length": "output_tokens"}
# workloads whose prompts are made of random words
_RANDOM = frozenset(("synthetic", "embeddings", "rerank"))
# What is known of a server, as further fields of its component.
_TRAITS = (
    "model",
    "quantization",
    "n_params",
    "slots",
    "context_per_slot",
    "batch",
    "micro_batch",
    "threads",
    "layers_offloaded",
)


def benchmark_report(results: Results) -> dict[str, Any]:
    """The report as plain values."""
    servers = results.run.manifest.servers
    stack = []
    for number, server in enumerate(servers, 1):
        stack.append(_component(f"server-{number}", server))

    return {
        "version": VERSION,
        "run": _run(results),
        "scenario": {
            "stack": stack,
            "load": _load_section(results, ok_records(results)),
        },
        "results": {"request_performance": {"aggregate": _aggregate(results)}},
    }


def _run(results: Results) -> dict[str, Any]:
    manifest = results.run.manifest
    measured = results.run.records.measured()
    first_id = next(iter(measured.strings("request_id")), "")
    keywords = ["llama-load", *results.verdict.shown]
    if manifest.label:
        keywords.append(manifest.label)

    run: dict[str, Any] = {
        "uid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{manifest.date} {first_id}")),
        "description": results.verdict.headline,
        "keywords": keywords,
    }

    times = wall_times(measured)
    if times is not None:
        began, ended = times
        run["time"] = {
            "start": _utc(began),
            "end": _utc(ended),
            "duration": f"PT{results.total.duration_s:.6f}S",
        }

    return run


def _utc(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def _component(label: str, server: ServerDescription) -> dict[str, Any]:
    about: dict[str, Any] = {
        "kind": "generic",
        "tool": server.backend or "unknown",
        "tool_version": server.build or "unknown",
    }

    for name in _TRAITS:
        value = getattr(server, name)
        if value is not None:
            about[name] = value

    return {
        "metadata": {"label": label, "cfg_id": _digest(about)},
        "standardized": about,
        "native": {},
    }


def _load_section(results: Results, ok: Records) -> dict[str, Any]:
    manifest = results.run.manifest
    most, rate = configured_load(manifest)
    is_random = manifest.workload in _RANDOM or DIFFERENT in str(manifest.prompts)
    about: dict[str, Any] = {
        "tool": "llama-load",
        "tool_version": manifest.version,
        "parallelism": max(1, len(manifest.workers)),
        "source": "random" if is_random else "sampled",
        "input_seq_len": _lengths(column_sample(ok, "prompt_tokens")),
        "multi_turn": {"enabled": bool(ok.has("turn").any())},
    }
    if manifest.fixed_lengths:
        about["output_seq_len"] = _lengths(column_sample(ok, "max_tokens"))
    if rate is not None and math.isfinite(rate) and rate > 0:
        about["rate_qps"] = rate
    if most is not None:
        about["concurrency"] = most

    given = {}
    for name, value in manifest.options.items():
        if value not in (None, "", False, []):
            flag = f"--{name.replace('_', '-')}"
            given[flag] = without_paths(str(value))

    return {
        "metadata": {"cfg_id": _digest(about)},
        "standardized": about,
        "native": {"args": given},
    }


def _lengths(sample: Sample | None) -> dict[str, Any]:
    """Lengths in tokens; 0 where they are not known, which the schema cannot say otherwise."""
    if sample is None:
        return {"distribution": "other", "value": 0}
    if sample.least == sample.most:
        return {"distribution": "fixed", "value": sample.mean}

    return {
        "distribution": "other",
        "value": sample.mean,
        "std_dev": sample.std,
        "min": int(sample.least),
        "max": int(sample.most),
    }


def _aggregate(results: Results) -> dict[str, Any]:
    ok = ok_records(results)
    latency = {}
    for name, (key, unit) in _LATENCIES.items():
        sample = latency_sample(ok, key)
        if sample is not None:
            latency[name] = _statistics(sample, unit)

    return {
        "requests": _requests(results.total, ok),
        "throughput": _throughput(results.total),
        "latency": latency,
    }


def _requests(total: Summary, ok: Records) -> dict[str, Any]:
    requests: dict[str, Any] = {
        "total": total.completed + total.failed + total.cancelled + total.aborted,
        "failures": total.failed,
        "incomplete": total.cancelled + total.aborted,
    }

    for name, column in _LENGTHS.items():
        sample = column_sample(ok, column)
        if sample is not None:
            requests[name] = _statistics(sample, "count")

    return requests


def _throughput(total: Summary) -> dict[str, Any]:
    output = total.output_throughput
    both = total.total_token_throughput
    prompts = None if output is None or both is None else both - output
    rates = {
        "input_token_rate": (prompts, "tokens/s"),
        "output_token_rate": (output, "tokens/s"),
        "total_token_rate": (both, "tokens/s"),
        "request_rate": (total.request_throughput, "queries/s"),
    }
    known = {}
    for name, (rate, unit) in rates.items():
        if rate is not None:
            known[name] = {"units": unit, "mean": rate}

    return known


def _statistics(sample: Sample, unit: str) -> dict[str, Any]:
    """Percentiles that the sample is too small for are left out."""
    plain: dict[str, Any] = {
        "units": unit,
        "mean": sample.mean,
        "stddev": sample.std,
        "min": sample.least,
        "max": sample.most,
    }
    for p, value in sample.percentiles.items():
        plain[_PERCENTILE_NAMES.get(p, f"p{p:g}")] = value

    return plain


def _digest(value: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]
