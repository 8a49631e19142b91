"""aiperf's result files.

profile_export_aiperf.json (a run) and profile_export.jsonl (a line per request). Source:
ai-dynamo/aiperf 0.13, common/models/export_models.py and record_models.py. aiperf's
`inter_token_latency` is our TPOT, its `inter_chunk_latency` our ITL. Both files take further
fields: the verdict is under `llama_load`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.reports.exports.export_samples import (
    Sample,
    column_sample,
    latency_sample,
    ok_records,
    values_sample,
    wall_times,
)
from llama_load.analysis.results.results import Results
from llama_load.run_folder.observed.record import OK, UNFINISHED
from llama_load.run_folder.observed.records import Records

SCHEMA = "1.4"
MS = "ms"
TOKENS = "tokens"
REQUESTS = "requests"
SECONDS = "sec"
PER_USER = "tokens/sec/user"
_PERCENTILES = frozenset((1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0))
_LATENCIES = {
    "time_to_first_token": "ttft",
    "request_latency": "e2el",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "itl",
}
_LENGTHS = {
    "input_sequence_length": "prompt_tokens",
    "output_sequence_length": "output_tokens",
}
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
    plain: dict[str, Any] = {"schema_version": SCHEMA}
    ok = ok_records(results)
    for name, key in _LATENCIES.items():
        plain[name] = _metric(latency_sample(ok, key), MS)
    for name, column in _LENGTHS.items():
        plain[name] = _metric(column_sample(ok, column), TOKENS)

    per_user = values_sample(_tokens_per_s_per_user(ok))
    plain["output_token_throughput_per_user"] = _metric(per_user, PER_USER)
    for name, (value, unit) in _aiperf_figures(results.total).items():
        plain[name] = None if value is None else {"unit": unit, "avg": value}

    plain["was_cancelled"] = results.run.manifest.end in (
        "interrupted",
        "stopped",
        "aborted",
    )
    times = wall_times(results.run.records.measured())
    if times is not None:
        began, ended = times
        plain["start_time"] = began.isoformat()
        plain["end_time"] = ended.isoformat()

    plain["llama_load"] = {
        "version": results.run.manifest.version,
        "verdict": results.verdict.shown,
        "headline": results.verdict.headline,
    }

    return {name: value for name, value in plain.items() if value is not None}


def _tokens_per_s_per_user(ok: Records) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of each request; NaN where its TPOT is not known."""
    tpot_ms = ok.numbers("tpot_ms")
    with np.errstate(divide="ignore"):
        return np.where(tpot_ms > 0, 1e3 / tpot_ms, np.nan)


def _aiperf_figures(total: Summary) -> dict[str, tuple[float | None, str]]:
    """aiperf's name of a figure of the run: its value, and its unit."""
    return {
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


def _metric(sample: Sample | None, unit: str) -> dict[str, Any] | None:
    """Percentiles that the sample is too small for are left out; None without a value."""
    if sample is None:
        return None

    plain: dict[str, Any] = {"unit": unit, "avg": sample.mean}
    for p, value in sample.percentiles.items():
        if p in _PERCENTILES:
            plain[f"p{p:g}"] = value

    plain["min"] = sample.least
    plain["max"] = sample.most
    plain["std"] = sample.std
    plain["count"] = sample.count

    return plain


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
    headers_ns = row["headers_mono_ns"]
    metadata = {
        "session_num": number if row["prompt_index"] is None else row["prompt_index"],
        "x_request_id": row["request_id"],
        "conversation_id": row["conversation"],
        "turn_index": None if row["turn"] is None else row["turn"] - 1,
        "request_start_ns": row["started_wall_ns"],
        "request_ack_ns": None if headers_ns is None else wall_ns + headers_ns,
        "request_end_ns": ended_ns,
        "worker_id": row["worker"],
        "record_processor_id": row["worker"],
        "benchmark_phase": "warmup" if row["warmup"] else "profiling",
        "was_cancelled": is_cancelled,
        "cancellation_time_ns": ended_ns if is_cancelled else None,
    }
    if row["status"] == OK:
        return {"metadata": metadata, "metrics": _metrics(row), "error": None}

    return {
        "metadata": metadata,
        "metrics": _metrics_of_failure(row),
        "error": _error(row),
    }


def _metrics(row: dict[str, Any]) -> dict[str, Any]:
    metrics = {}
    for name, (column, unit) in _OF_REQUEST.items():
        value = row[column]
        if value is not None and value != []:
            metrics[name] = {"value": value, "unit": unit}

    if row["output_tokens"] is not None:
        answer = row["output_tokens"] - (row["reasoning_tokens"] or 0)
        metrics["output_token_count"] = {"value": answer, "unit": TOKENS}
    if row["itl_ms"]:
        metrics["time_to_second_token"] = {"value": row["itl_ms"][0], "unit": MS}
    if row["tpot_ms"]:
        speed = 1e3 / row["tpot_ms"]
        metrics["output_token_throughput_per_user"] = {"value": speed, "unit": PER_USER}

    return metrics


def _metrics_of_failure(row: dict[str, Any]) -> dict[str, Any]:
    tokens = row["prompt_tokens"]
    if tokens is None:
        return {}
    return {"error_isl": {"value": tokens, "unit": TOKENS}}


def _error(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "code": row["http_status"],
        "type": row["status"],
        "message": row["error"] or row["status"],
    }
