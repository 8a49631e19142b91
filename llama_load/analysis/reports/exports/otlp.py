"""A run as OpenTelemetry's OTLP: spans of requests, and histograms of the client's metrics.

A request is a span with the parts of its time below it. Messages are in OTLP's JSON encoding, which
needs no SDK and which collectors accept over HTTP (`llama-load report --push`) and from files.
Names are those of the semantic conventions for generative AI; what they do not name begins with
`llama_load.`. Ids are made of the run and the request: a run that is sent twice has the same ids.

Sources: opentelemetry-proto, docs/specification.md (JSON Protobuf encoding: ids in hexadecimal,
64-bit integers as text); opentelemetry.io/docs/specs/semconv/gen-ai.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from llama_load.analysis.figures.time_parts import KEYS
from llama_load.analysis.reports.exports.export_samples import ok_records
from llama_load.analysis.results.results import Results
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records

Object = dict[str, Any]
# Spans in a message: 500 requests with 5 spans of 1 KiB stay below the 4 MiB that receivers take by
# default.
BATCH = 500
# Kinds of spans, and their ends.
CLIENT = 3
INTERNAL = 1
OK_STATUS = 1
ERROR_STATUS = 2
CUMULATIVE = 2
_OPERATIONS = {
    "chat": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
}
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
FIRST_CHUNKS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
CHUNKS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
COUNTS = tuple(4.0**power for power in range(14))


def traces(results: Results) -> Iterator[Object]:
    """Messages with the spans of all requests, warm-ups included, in batches."""
    resource = _resource(results)
    of_requests = _spans_of_requests(results)
    while some := list(islice(of_requests, BATCH)):
        spans = list(chain.from_iterable(some))
        scope = {"scope": _scope(results), "spans": spans}
        yield {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _spans_of_requests(results: Results) -> Iterator[list[Object]]:
    """The spans of one request after the other."""
    parts = results.time_parts.requests
    columns = {key: parts[key] for key in KEYS}
    run = _run_id(results)
    backend = results.run.manifest.backend
    number = 0
    for batch in results.run.records.batches():
        for row in batch.table.to_pylist():
            times_ms = {}
            for key, values in columns.items():
                if math.isfinite(values[number]):
                    times_ms[key] = float(values[number])

            yield _spans(row, run, backend, times_ms)
            number += 1


def metric_lines(results: Results) -> Iterator[Object]:
    """The message of `metrics`, as the only line."""
    yield metrics(results)


def metrics(results: Results) -> Object:
    """One message with the histograms of the measured requests that were answered."""
    ok = ok_records(results)
    began, ended = _window(results.run.records.measured())

    def point(
        pieces: Iterable[np.ndarray[Any, Any]], bounds: tuple[float, ...]
    ) -> Object:
        return _point(pieces, bounds, began, ended)

    operation = point([ok.numbers("e2el_ms") / 1e3], DURATIONS)
    first_chunk = point([ok.numbers("ttft_ms") / 1e3], FIRST_CHUNKS)
    gaps = point((piece / 1e3 for piece in ok.gap_pieces()), CHUNKS)
    prompts = point([ok.numbers("prompt_tokens")], COUNTS)
    prompts["attributes"] = _attributes({"gen_ai.token.type": "input"})
    answers = point([ok.numbers("output_tokens")], COUNTS)
    answers["attributes"] = _attributes({"gen_ai.token.type": "output"})

    histograms = [
        _histogram("gen_ai.client.operation.duration", "s", [operation]),
        _histogram("gen_ai.client.operation.time_to_first_chunk", "s", [first_chunk]),
        _histogram("gen_ai.client.operation.time_per_output_chunk", "s", [gaps]),
        _histogram("gen_ai.client.token.usage", "{token}", [prompts, answers]),
    ]
    known = []
    for histogram in histograms:
        if histogram["histogram"]["dataPoints"]:
            known.append(histogram)

    scope = {"scope": _scope(results), "metrics": known}

    return {
        "resourceMetrics": [{"resource": _resource(results), "scopeMetrics": [scope]}]
    }


# ---------------------------------------------------------------------- what both have


def _resource(results: Results) -> Object:
    """The run, and how far its figures can be trusted."""
    manifest = results.run.manifest
    verdict = results.verdict
    attributes = {
        "service.name": "llama-load",
        "service.version": manifest.version,
        "service.instance.id": _run_id(results),
        "llama_load.label": manifest.label,
        "llama_load.verdict": ", ".join(verdict.shown),
        "llama_load.headline": verdict.headline,
        "llama_load.end": manifest.end,
    }

    return {"attributes": _attributes(attributes)}


def _scope(results: Results) -> Object:
    return {"name": "llama_load", "version": results.run.manifest.version}


def _run_id(results: Results) -> str:
    manifest = results.run.manifest
    return f"{manifest.date}-{manifest.label or manifest.workload}"


def _attributes(values: Mapping[str, object]) -> list[Object]:
    """What is not known has none."""
    attributes = []
    for key, value in values.items():
        if value is not None:
            attributes.append({"key": key, "value": _value(value)})
    return attributes


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


def _spans(
    row: Mapping[str, Any], run: str, backend: str, times_ms: Mapping[str, float]
) -> list[Object]:
    """The span of a request, and those of the parts of its time that are one interval each."""
    digest = _digest(f"{run} {row['request_id']}")
    trace_id = digest[:32]
    root_id = digest[32:48]
    wall_ns = row["started_wall_ns"] - row["started_mono_ns"]
    began_ns = row["started_mono_ns"]
    if row["scheduled_mono_ns"] is not None:
        began_ns = min(row["scheduled_mono_ns"], began_ns)

    name = _operation(row)
    if row["model"]:
        name += f" {row['model']}"

    times_ns = (wall_ns + began_ns, wall_ns + row["ended_mono_ns"])
    request = _span((trace_id, root_id), name, CLIENT, times_ns)
    request["attributes"] = _attributes(_span_attributes(row, backend, times_ms))
    request["status"] = _status(row)

    spans = [request]
    for number, (part, start, end) in enumerate(_PARTS):
        if row[start] is not None and row[end] is not None and row[end] >= row[start]:
            span_id = _digest(f"{root_id} {number}")[:16]
            times_ns = (wall_ns + row[start], wall_ns + row[end])
            span = _span((trace_id, span_id), part, INTERNAL, times_ns)
            span["parentSpanId"] = root_id
            spans.append(span)

    return spans


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _operation(row: Mapping[str, Any]) -> str:
    endpoint: str = row["endpoint"]
    return _OPERATIONS.get(endpoint, endpoint)


def _span_attributes(
    row: Mapping[str, Any], backend: str, times_ms: Mapping[str, float]
) -> dict[str, object]:
    """The attributes of a request's span."""
    address = urlsplit(row["host"])
    reason = row["finish_reason"]
    about = {name: row[column] for name, column in _ATTRIBUTES.items()}
    about |= {
        "gen_ai.operation.name": _operation(row),
        "gen_ai.provider.name": backend,
        "gen_ai.response.finish_reasons": None if reason is None else [reason],
        "server.address": address.hostname,
        "server.port": address.port,
        "error.type": None if row["status"] == OK else row["status"],
    }
    for key, value in times_ms.items():
        about[f"llama_load.part.{key}_ms"] = value

    return about


def _status(row: Mapping[str, Any]) -> Object:
    if row["status"] == OK:
        return {"code": OK_STATUS}
    return {"code": ERROR_STATUS, "message": row["error"] or row["status"]}


def _span(
    ids: tuple[str, str], name: str, kind: int, times_ns: tuple[int, int]
) -> Object:
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
    """Points without a value are left out."""
    histogram = {
        "aggregationTemporality": CUMULATIVE,
        "dataPoints": [point for point in points if point["count"] != "0"],
    }
    return {"name": name, "unit": unit, "histogram": histogram}


def _point(
    pieces: Iterable[np.ndarray[Any, Any]],
    bounds: tuple[float, ...],
    began: str,
    ended: str,
) -> Object:
    """A data point: how many values lie in each bucket, whose upper bound belongs to it."""
    counts = np.zeros(len(bounds) + 1, dtype=np.int64)
    total = 0.0
    least = math.inf
    most = -math.inf
    for piece in pieces:
        known = piece[np.isfinite(piece)].astype(np.float64)
        if not len(known):
            continue

        buckets = np.searchsorted(bounds, known, side="left")
        counts += np.bincount(buckets, minlength=len(counts))
        total += float(known.sum())
        least = min(least, float(known.min()))
        most = max(most, float(known.max()))

    point: Object = {
        "attributes": [],
        "startTimeUnixNano": began,
        "timeUnixNano": ended,
        "count": str(int(counts.sum())),
        "sum": total,
        "bucketCounts": [str(int(count)) for count in counts],
        "explicitBounds": list(bounds),
    }
    if counts.any():
        point["min"] = least
        point["max"] = most

    return point
