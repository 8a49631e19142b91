"""A run as OpenTelemetry's OTLP: a span per request with the parts of its time below it, and histograms of the client's metrics.

Messages are in OTLP's JSON encoding, which needs no SDK and which collectors accept over HTTP (`llama-load report --push`) and from
files. Names are those of the semantic conventions for generative AI; what they do not name begins with `llama_load.`. Ids are made
of the run and the request: a run that is sent twice has the same ids.

Sources: opentelemetry-proto, docs/specification.md (JSON Protobuf encoding: ids in hexadecimal, 64-bit integers as text);
opentelemetry.io/docs/specs/semconv/gen-ai.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from llama_load.analysis.results import Results
from llama_load.metrics.time_parts import KEYS
from llama_load.observed.record import OK
from llama_load.observed.records import Records
from llama_load.reports.exports.export_samples import ok_records

Object = dict[str, Any]
# Spans in a message: 500 requests with 5 spans of 1 KiB stay below the 4 MiB that receivers take by default.
BATCH = 500
CLIENT, INTERNAL = 3, 1  # kinds of spans
OK_STATUS, ERROR_STATUS = 1, 2
CUMULATIVE = 2
_OPERATIONS = {"chat": "chat", "completions": "text_completion", "embeddings": "embeddings"}
# A part of a request that is one interval: from which instant to which.
_PARTS = (
    ("client queue", "scheduled_mono_ns", "started_mono_ns"),
    ("connect", "started_mono_ns", "connected_mono_ns"),
    ("tls", "connected_mono_ns", "secured_mono_ns"),
    ("first token", "sent_mono_ns", "first_token_mono_ns"),
    ("stream", "first_token_mono_ns", "last_token_mono_ns"),
)
# Attributes of a span: our column.
_ATTRIBUTES = {
    "gen_ai.request.model": "model",
    "gen_ai.response.model": "answered_model",
    "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.request.choice.count": "choices",
    "gen_ai.conversation.id": "conversation",
    "gen_ai.usage.input_tokens": "prompt_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
    "gen_ai.usage.cache_read.input_tokens": "cached_tokens",
    "http.response.status_code": "http_status",
    "llama_load.request_id": "request_id",
    "llama_load.worker": "worker",
    "llama_load.workload": "workload",
    "llama_load.stage": "stage",
    "llama_load.warmup": "warmup",
    "llama_load.turn": "turn",
    "llama_load.clock_source": "clock_source",
    "llama_load.ttft_ms": "ttft_ms",
    "llama_load.tpot_ms": "tpot_ms",
    "llama_load.e2el_ms": "e2el_ms",
}
# Boundaries that the conventions advise, s and tokens.
DURATIONS = tuple(0.01 * 2**power for power in range(14))
FIRST_CHUNKS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
CHUNKS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
COUNTS = tuple(4.0**power for power in range(14))


def traces(results: Results) -> Iterator[Object]:
    """Messages with the spans of all requests, warm-ups included, in batches."""
    resource, parts = _resource(results), results.time_parts.requests
    columns = {key: parts[key] for key in KEYS}
    run = _run_id(results)

    def spans() -> Iterator[list[Object]]:
        number = 0
        for batch in results.run.records.batches():
            for row in batch.table.to_pylist():
                times = {key: float(values[number]) for key, values in columns.items() if math.isfinite(values[number])}
                yield _spans(row, run, results.run.manifest.backend, times)
                number += 1

    requests = spans()
    while some := list(islice(requests, BATCH)):
        scope = {"scope": _scope(results), "spans": [span for of_request in some for span in of_request]}
        yield {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def metrics(results: Results) -> Object:
    """One message with the histograms of the measured requests that were answered."""
    ok = ok_records(results)
    began, ended = _window(results.run.records.measured())
    durations = {
        "gen_ai.client.operation.duration": (ok.numbers("e2el_ms"), DURATIONS),
        "gen_ai.client.operation.time_to_first_chunk": (ok.numbers("ttft_ms"), FIRST_CHUNKS),
    }
    points = [_histogram(name, "s", [_point([ms / 1e3], bounds, began, ended)]) for name, (ms, bounds) in durations.items()]
    gaps = _point((piece / 1e3 for piece in ok.gap_pieces()), CHUNKS, began, ended)
    points.append(_histogram("gen_ai.client.operation.time_per_output_chunk", "s", [gaps]))
    tokens = [
        _point([ok.numbers(column)], COUNTS, began, ended) | {"attributes": _attributes({"gen_ai.token.type": kind})}
        for kind, column in (("input", "prompt_tokens"), ("output", "output_tokens"))
    ]
    points.append(_histogram("gen_ai.client.token.usage", "{token}", tokens))
    scope = {"scope": _scope(results), "metrics": [point for point in points if point["histogram"]["dataPoints"]]}
    return {"resourceMetrics": [{"resource": _resource(results), "scopeMetrics": [scope]}]}


# ---------------------------------------------------------------------- what both have


def _resource(results: Results) -> Object:
    """The run, and how far its figures can be trusted."""
    manifest, verdict = results.run.manifest, results.verdict
    return {
        "attributes": _attributes(
            {
                "service.name": "llama-load",
                "service.version": manifest.version,
                "service.instance.id": _run_id(results),
                "llama_load.label": manifest.label,
                "llama_load.verdict": ", ".join(verdict.words),
                "llama_load.headline": verdict.headline,
                "llama_load.end": manifest.end,
            }
        )
    }


def _scope(results: Results) -> Object:
    return {"name": "llama_load", "version": results.run.manifest.version}


def _run_id(results: Results) -> str:
    return f"{results.run.manifest.date}-{results.run.manifest.label or results.run.manifest.workload}"


def _attributes(values: Mapping[str, object]) -> list[Object]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: object) -> Object:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}


# ---------------------------------------------------------------------- spans


def _spans(row: Mapping[str, Any], run: str, backend: str, times_ms: Mapping[str, float]) -> list[Object]:
    """The span of a request, and those of the parts of its time that are one interval each."""
    digest = hashlib.sha256(f"{run} {row['request_id']}".encode()).hexdigest()
    trace, root = digest[:32], digest[32:48]
    wall_ns = row["started_wall_ns"] - row["started_mono_ns"]
    operation = _OPERATIONS.get(row["endpoint"], row["endpoint"])
    began = row["started_mono_ns"] if row["scheduled_mono_ns"] is None else min(row["scheduled_mono_ns"], row["started_mono_ns"])
    address = urlsplit(row["host"])
    about = {name: row[column] for name, column in _ATTRIBUTES.items()} | {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": backend,
        "gen_ai.response.finish_reasons": None if row["finish_reason"] is None else [row["finish_reason"]],
        "server.address": address.hostname,
        "server.port": address.port,
        "error.type": None if row["status"] == OK else row["status"],
        **{f"llama_load.part.{key}_ms": value for key, value in times_ms.items()},
    }
    failed = row["status"] != OK
    status = {"code": ERROR_STATUS, "message": row["error"] or row["status"]} if failed else {"code": OK_STATUS}
    name = f"{operation} {row['model']}" if row["model"] else operation
    request = _span((trace, root), name, CLIENT, (wall_ns + began, wall_ns + row["ended_mono_ns"]))
    spans = [request | {"attributes": _attributes(about), "status": status}]
    for number, (part, start, end) in enumerate(_PARTS):
        if row[start] is not None and row[end] is not None and row[end] >= row[start]:
            span = hashlib.sha256(f"{root} {number}".encode()).hexdigest()[:16]
            times_ns = (wall_ns + row[start], wall_ns + row[end])
            spans.append(_span((trace, span), part, INTERNAL, times_ns) | {"parentSpanId": root})
    return spans


def _span(ids: tuple[str, str], name: str, kind: int, times_ns: tuple[int, int]) -> Object:
    return {
        "traceId": ids[0],
        "spanId": ids[1],
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(times_ns[0]),
        "endTimeUnixNano": str(times_ns[1]),
    }


# ---------------------------------------------------------------------- histograms


def _window(measured: Records) -> tuple[str, str]:
    """When the first measured request began and the last one ended, ns since 1970."""
    if not len(measured):
        return "0", "0"
    began = measured.instants("started_wall_ns")
    took = measured.instants("ended_mono_ns") - measured.instants("started_mono_ns")
    return str(int(began.min())), str(int((began + took).max()))


def _histogram(name: str, unit: str, points: list[Object]) -> Object:
    return {
        "name": name,
        "unit": unit,
        "histogram": {"aggregationTemporality": CUMULATIVE, "dataPoints": [point for point in points if point["count"] != "0"]},
    }


def _point(pieces: Iterable[np.ndarray[Any, Any]], bounds: tuple[float, ...], began: str, ended: str) -> Object:
    """A data point: how many values lie in each bucket, whose upper bound belongs to it."""
    counts = np.zeros(len(bounds) + 1, dtype=np.int64)
    total, least, most = 0.0, math.inf, -math.inf
    for piece in pieces:
        known = piece[np.isfinite(piece)].astype(np.float64)
        if len(known):
            counts += np.bincount(np.searchsorted(bounds, known, side="left"), minlength=len(counts))
            total += float(known.sum())
            least, most = min(least, float(known.min())), max(most, float(known.max()))
    ends = {"min": least, "max": most} if counts.any() else {}
    return {
        "attributes": [],
        "startTimeUnixNano": began,
        "timeUnixNano": ended,
        "count": str(int(counts.sum())),
        "sum": total,
        "bucketCounts": [str(int(count)) for count in counts],
        "explicitBounds": list(bounds),
        **ends,
    }
