"""aiperf's result files: profile_export_aiperf.json (a run) and profile_export.jsonl (a line per request).

Source: ai-dynamo/aiperf 0.13, common/models/export_models.py and record_models.py. aiperf's `inter_token_latency` is our TPOT, its
`inter_chunk_latency` our ITL. Both files take further fields: the verdict is under `llama_load`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from llama_load.analysis.results import Results
from llama_load.observed.record import OK, UNFINISHED
from llama_load.observed.records import Records
from llama_load.reports.exports.export_samples import (
    Sample,
    column_sample,
    latency_sample,
    ok_records,
    values_sample,
    wall_times,
)

SCHEMA = "1.4"
MS, TOKENS, REQUESTS, SECONDS = "ms", "tokens", "requests", "sec"
PER_USER = "tokens/sec/user"
_PERCENTILES = frozenset((1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0))
_LATENCIES = {
    "time_to_first_token": "ttft",
    "request_latency": "e2el",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "itl",
}
_LENGTHS = {"input_sequence_length": "prompt_tokens", "output_sequence_length": "output_tokens"}
# aiperf's name of a figure of a request: our column, and the unit.
_OF_REQUEST = {
    "time_to_first_token": ("ttft_ms", MS),
    "request_latency": ("e2el_ms", MS),
    "inter_token_latency": ("tpot_ms", MS),
    "inter_chunk_latency": ("itl_ms", MS),
    "input_sequence_length": ("prompt_tokens", TOKENS),
    "output_sequence_length": ("output_tokens", TOKENS),
    "reasoning_token_count": ("reasoning_tokens", TOKENS),
}


def run_export(results: Results) -> dict[str, Any]:
    """profile_export_aiperf.json as plain values; a figure that was not measured is left out."""
    total, ok = results.total, ok_records(results)
    tpot = ok.numbers("tpot_ms")
    with np.errstate(divide="ignore"):
        of_user = np.where(tpot > 0, 1e3 / tpot, np.nan)
    samples = {name: (latency_sample(ok, key), MS) for name, key in _LATENCIES.items()}
    samples |= {name: (column_sample(ok, column), TOKENS) for name, column in _LENGTHS.items()}
    samples["output_token_throughput_per_user"] = values_sample(of_user), PER_USER
    figures = {
        "request_throughput": (total.request_throughput, f"{REQUESTS}/{SECONDS}"),
        "request_count": (total.completed, REQUESTS),
        "error_request_count": (total.failed, REQUESTS),
        "goodput": (total.request_goodput, f"{REQUESTS}/{SECONDS}"),
        "good_request_count": (total.good_requests, REQUESTS),
        "output_token_throughput": (total.output_throughput, f"{TOKENS}/{SECONDS}"),
        "total_token_throughput": (total.total_token_throughput, f"{TOKENS}/{SECONDS}"),
        "benchmark_duration": (total.duration_s, SECONDS),
        "total_isl": (total.total_input_tokens, TOKENS),
        "total_osl": (total.total_output_tokens, TOKENS),
    }
    times = wall_times(results.run.records.measured())
    verdict = results.verdict
    return {
        "schema_version": SCHEMA,
        **{name: _metric(sample, unit) for name, (sample, unit) in samples.items() if sample is not None},
        **{name: {"unit": unit, "avg": value} for name, (value, unit) in figures.items() if value is not None},
        "was_cancelled": results.run.manifest.end in ("interrupted", "stopped", "aborted"),
        **({} if times is None else {"start_time": times[0].isoformat(), "end_time": times[1].isoformat()}),
        "llama_load": {"version": results.run.manifest.version, "verdict": verdict.words, "headline": verdict.headline},
    }


def _metric(sample: Sample, unit: str) -> dict[str, Any]:
    """Percentiles that the sample is too small for are left out."""
    shown = {f"p{p:g}": value for p, value in sample.percentiles.items() if p in _PERCENTILES}
    ends = {"min": sample.least, "max": sample.most, "std": sample.std, "count": sample.count}
    return {"unit": unit, "avg": sample.mean} | shown | ends


def request_lines(records: Records) -> Iterator[dict[str, Any]]:
    """profile_export.jsonl: an object per request, warm-ups included."""
    number = 0
    for batch in records.batches():
        for row in batch.table.to_pylist():
            yield _line(row, number)
            number += 1


def _line(row: dict[str, Any], number: int) -> dict[str, Any]:
    wall_ns = row["started_wall_ns"] - row["started_mono_ns"]
    is_cancelled = row["status"] in UNFINISHED
    ended_ns = wall_ns + row["ended_mono_ns"]
    headers = row["headers_mono_ns"]
    return {
        "metadata": {
            "session_num": number if row["prompt_index"] is None else row["prompt_index"],
            "x_request_id": row["request_id"],
            "conversation_id": row["conversation"],
            "turn_index": None if row["turn"] is None else row["turn"] - 1,
            "request_start_ns": row["started_wall_ns"],
            "request_ack_ns": None if headers is None else wall_ns + headers,
            "request_end_ns": ended_ns,
            "worker_id": row["worker"],
            "record_processor_id": row["worker"],
            "benchmark_phase": "warmup" if row["warmup"] else "profiling",
            "was_cancelled": is_cancelled,
            "cancellation_time_ns": ended_ns if is_cancelled else None,
        },
        "metrics": _metrics(row) if row["status"] == OK else _of_failure(row),
        "error": None if row["status"] == OK else _error(row),
    }


def _metrics(row: dict[str, Any]) -> dict[str, Any]:
    metrics = {
        name: {"value": row[column], "unit": unit}
        for name, (column, unit) in _OF_REQUEST.items()
        if row[column] is not None and row[column] != []
    }
    if row["output_tokens"] is not None:
        metrics["output_token_count"] = {"value": row["output_tokens"] - (row["reasoning_tokens"] or 0), "unit": TOKENS}
    if row["itl_ms"]:
        metrics["time_to_second_token"] = {"value": row["itl_ms"][0], "unit": MS}
    if row["tpot_ms"]:
        metrics["output_token_throughput_per_user"] = {"value": 1e3 / row["tpot_ms"], "unit": PER_USER}
    return metrics


def _of_failure(row: dict[str, Any]) -> dict[str, Any]:
    tokens = row["prompt_tokens"]
    return {} if tokens is None else {"error_isl": {"value": tokens, "unit": TOKENS}}


def _error(row: dict[str, Any]) -> dict[str, Any]:
    return {"code": row["http_status"], "type": row["status"], "message": row["error"] or row["status"]}
