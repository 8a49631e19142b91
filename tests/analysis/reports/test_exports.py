"""The formats of other programs: each is read back by the reader or the schema of the program that
it is for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from pytest import approx

from llama_load.analysis.reports.exports.mlperf_regions import region_bounds, region_of
from llama_load.cli.main import main
from llama_load.run_folder import RunWriter, StageRecord
from llama_load.run_folder.observed.server_description import ServerDescription
from tests.conftest import REPOSITORY
from tests.json_server import json_server
from tests.make_records import MS, failed, manifest, record

SCHEMAS = REPOSITORY / "tests" / "data" / "schemas"
EPOCH_NS = 1_700_000_000 * 1_000_000_000
# Two tokens each, 100 ms to the first; gaps of 10, 20, …: E2EL is 110, 120, …
GAPS_MS = [10.0 * number for number in range(1, 201)]


def request(number: int, **changed: Any) -> Any:
    start_ms = 1000.0 * number
    return record(
        number,
        start_ms=start_ms,
        gaps_ms=(GAPS_MS[number],),
        **{
            "started_wall_ns": EPOCH_NS + round(start_ms * MS),
            "headers_mono_ns": round((start_ms + 50) * MS),
            "answered_model": "tiny",
            "host": "http://server.test:8080",
        }
        | changed,
    )


RECORDS = [
    *map(request, range(200)),
    replace(
        failed(200, start_ms=200_000, end_ms=200_050, kind="http_503"),
        started_wall_ns=EPOCH_NS + 200_000 * MS,
    ),
    request(0, request_id="w", warmup=True),
]


def write(folder: Path, records: list[Any], **changed: Any) -> Path:
    server = ServerDescription(
        url="http://server.test:8080",
        backend="llama-server",
        build="b1234",
        slots=4,
        quantization="Q4_K_M",
    )
    writer = RunWriter(
        folder,
        manifest(**{"num_prompts": len(records) - 1, "servers": [server]} | changed),
    )
    writer.append(records)
    writer.finish()
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("runs") / "run", RECORDS, label="q4")


def exported(folder: Path, form: str, tmp_path: Path) -> bytes:
    file = tmp_path / "out"
    assert main(["report", str(folder), "--format", form, "--output", str(file)]) == 0
    return file.read_bytes()


@cache
def exported_once(folder: Path, form: str) -> bytes:
    """Of the run that all tests share."""
    return exported(folder, form, folder.parent)


def schema(name: str) -> Any:
    return msgspec.json.decode((SCHEMAS / name).read_bytes())


# ---------------------------------------------------------------------- llm-d


def test_llm_ds_schema_accepts_the_benchmark_report(run: Path, tmp_path: Path) -> None:
    report = msgspec.json.decode(exported_once(run, "llm-d"))
    jsonschema.validate(report, schema("llm-d-benchmark-report-0.2.json"))
    aggregate = report["results"]["request_performance"]["aggregate"]
    assert (
        aggregate["requests"]["total"] == 201 and aggregate["requests"]["failures"] == 1
    )
    # TPOT with two tokens is the gap: its mean is 1005 ms, its median between the 100th and the
    # 101st.
    tpot = aggregate["latency"]["time_per_output_token"]
    assert (tpot["units"], tpot["mean"], tpot["p50"], tpot["min"], tpot["max"]) == (
        "ms/token",
        approx(1005),
        approx(1005),
        10,
        2000,
    )
    assert aggregate["latency"]["request_latency"]["p99"] == approx(
        np.percentile(np.array(GAPS_MS) + 100, 99)
    )
    assert "p99p9" not in tpot, "200 values have no p99.9"
    assert report["scenario"]["load"]["standardized"]["concurrency"] == 4
    (server,) = report["scenario"]["stack"]
    assert (server["standardized"]["tool"], server["standardized"]["slots"]) == (
        "llama-server",
        4,
    )
    assert (
        report["run"]["keywords"][0] == "llama-load"
        and "q4" in report["run"]["keywords"]
    )
    assert report["run"]["time"]["start"].startswith("2023-11-14T22:13:20")


def test_llm_ds_schema_accepts_a_run_without_a_single_answer(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "run",
        [failed(0), failed(1)],
        num_prompts=2,
        request_rate=4.0,
        arrival="poisson",
    )
    report = msgspec.json.decode(exported(folder, "llm-d", tmp_path))
    jsonschema.validate(report, schema("llm-d-benchmark-report-0.2.json"))
    assert report["results"]["request_performance"]["aggregate"]["latency"] == {}
    assert "FAILED" in report["run"]["keywords"]


# ---------------------------------------------------------------------- aiperf


def test_aiperfs_model_of_a_request_accepts_every_line(
    run: Path, tmp_path: Path
) -> None:
    lines = [
        msgspec.json.decode(line)
        for line in exported_once(run, "aiperf-requests").splitlines()
    ]
    check = jsonschema.Draft202012Validator(
        schema("aiperf-0.13-metric-record-info.json")
    )
    assert [list(check.iter_errors(line)) for line in lines] == [[]] * 202
    first, broken, warmup = lines[0], lines[200], lines[201]
    assert first["metadata"]["request_start_ns"] == EPOCH_NS
    assert first["metadata"]["request_ack_ns"] == EPOCH_NS + 50 * MS
    assert first["metadata"]["request_end_ns"] == EPOCH_NS + 111 * MS
    assert first["metrics"]["time_to_first_token"] == {"value": 100, "unit": "ms"}
    assert first["metrics"]["inter_chunk_latency"]["value"] == [10]
    assert first["metrics"]["output_token_throughput_per_user"]["value"] == 100
    assert broken["error"] == {"code": None, "type": "http_503", "message": "boom"}
    assert "request_latency" not in broken["metrics"]
    assert [line["metadata"]["benchmark_phase"] for line in (first, warmup)] == [
        "profiling",
        "warmup",
    ]


def test_tpot_is_not_itl_in_any_format(tmp_path: Path) -> None:
    """Half of the answers have 11 gaps of 10 ms, half one of 40. TPOT: mean 25, p90 40 ms; ITL:
    mean 150 / 12, p90 10 ms."""
    answers = [(10.0,) * 11, (40.0,)] * 50
    records = [
        record(number, start_ms=1000 * number, gaps_ms=gaps)
        for number, gaps in enumerate(answers)
    ]
    folder = write(tmp_path / "runs" / "run", records, num_prompts=100)
    aiperf, llm_d = (
        msgspec.json.decode(exported(folder, form, tmp_path))
        for form in ("aiperf", "llm-d")
    )
    assert (
        aiperf["inter_token_latency"]["avg"],
        aiperf["inter_chunk_latency"]["avg"],
    ) == (approx(25), approx(12.5))
    latency = llm_d["results"]["request_performance"]["aggregate"]["latency"]
    assert (
        latency["time_per_output_token"]["mean"],
        latency["inter_token_latency"]["mean"],
    ) == (approx(25), approx(12.5))
    (point,) = msgspec.json.decode(exported(tmp_path / "runs", "mlperf", tmp_path))[
        "points"
    ]
    assert (point["tpot_p90_ms"], point["tps_per_user"]) == (40, 25)
    first = msgspec.json.decode(
        exported(folder, "aiperf-requests", tmp_path).splitlines()[0]
    )["metrics"]
    assert (
        first["inter_token_latency"]["value"],
        len(first["inter_chunk_latency"]["value"]),
    ) == (10, 11)


def test_aiperfs_model_of_a_metric_accepts_every_figure(
    run: Path, tmp_path: Path
) -> None:
    found = msgspec.json.decode(exported_once(run, "aiperf"))
    metrics = {
        name: value
        for name, value in found.items()
        if isinstance(value, dict) and name != "llama_load"
    }
    for value in metrics.values():
        jsonschema.validate(value, schema("aiperf-0.13-json-metric-result.json"))
    assert (
        metrics["request_count"]["avg"] == 200
        and metrics["error_request_count"]["avg"] == 1
    )
    # aiperf's inter-token latency is the mean gap of a request.
    assert (
        metrics["inter_token_latency"]["avg"] == approx(1005)
        and metrics["inter_token_latency"]["count"] == 200
    )
    assert metrics["time_to_first_token"]["p99"] == 100
    assert found["llama_load"]["verdict"]


# ---------------------------------------------------------------------- github-action-benchmark

ENTRY = {
    "type": "object",
    "required": ["name", "unit", "value"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "unit": {"type": "string"},
        "value": {"type": "number"},
        "range": {"type": "string"},
        "extra": {"type": "string"},
    },
    "additionalProperties": False,
}


def test_the_lists_for_charts_of_a_repository(run: Path, tmp_path: Path) -> None:
    """The action keeps name, unit, value, range and extra of each, and finds an entry again by its
    name."""
    smaller, bigger = (
        msgspec.json.decode(exported_once(run, form))
        for form in ("github-smaller", "github-bigger")
    )
    for entries in (smaller, bigger):
        jsonschema.validate(entries, {"type": "array", "minItems": 3, "items": ENTRY})
        names = [entry["name"] for entry in entries]
        assert len(set(names)) == len(names)
    of_smaller = {entry["name"]: entry for entry in smaller}
    assert (
        of_smaller["q4: p99 TTFT"]["value"] == 100
        and "range" not in of_smaller["q4: mean TTFT"]
    )
    assert of_smaller["q4: p99 E2EL"]["unit"] == "ms"
    assert {entry["name"]: entry["value"] for entry in bigger}[
        "q4: Successful requests"
    ] == approx(200 / 201)


# ---------------------------------------------------------------------- OTLP


def parsed(line: bytes, kind: str) -> Any:
    """The message as OpenTelemetry's own protocol buffers read it. Their JSON has ids in base64,
    OTLP in hexadecimal."""
    pytest.importorskip("opentelemetry.proto")
    from google.protobuf import json_format
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
    )

    message = {
        "traces": ExportTraceServiceRequest,
        "metrics": ExportMetricsServiceRequest,
    }[kind]()
    return json_format.Parse(line, message)


def test_otlps_reader_accepts_the_spans(run: Path, tmp_path: Path) -> None:
    lines = exported_once(run, "otlp-traces").splitlines()
    assert len(lines) == 1, "500 requests fit into a message"
    spans = list(parsed(lines[0], "traces").resource_spans[0].scope_spans[0].spans)
    requests = {span.trace_id: span for span in spans if not span.parent_span_id}
    assert len(requests) == 202 and len(
        {(span.trace_id, span.span_id) for span in spans}
    ) == len(spans)
    for span in spans:
        request = requests[span.trace_id]
        assert (
            request.start_time_unix_nano
            <= span.start_time_unix_nano
            <= span.end_time_unix_nano
            <= request.end_time_unix_nano
        )
    first = spans[0]
    assert (
        first.start_time_unix_nano == EPOCH_NS
        and first.kind == 3
        and first.status.code == 1
    )
    about = {each.key: each.value for each in first.attributes}
    assert about["gen_ai.operation.name"].string_value == "chat"
    assert about["gen_ai.usage.output_tokens"].int_value == 2
    assert (about["server.address"].string_value, about["server.port"].int_value) == (
        "server.test",
        8080,
    )
    names = {
        span.name: span.end_time_unix_nano - span.start_time_unix_nano
        for span in spans
        if span.trace_id == first.trace_id
    }
    assert names == {
        "chat": 111 * MS,
        "connect": MS,
        "first token": 99 * MS,
        "stream": 10 * MS,
    }
    (broken,) = [span for span in requests.values() if span.status.code == 2]
    assert broken.status.message == "boom"


def test_ids_of_spans_are_hexadecimal_and_the_same_each_time(
    run: Path, tmp_path: Path
) -> None:
    lines = [exported_once(run, "otlp-traces"), exported(run, "otlp-traces", tmp_path)]
    assert lines[0] == lines[1]
    spans = msgspec.json.decode(lines[0])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert {
        (len(bytes.fromhex(span["traceId"])), len(bytes.fromhex(span["spanId"])))
        for span in spans
    } == {(16, 8)}
    assert all(isinstance(span["startTimeUnixNano"], str) for span in spans), (
        "64 bits do not fit into a number of JSON"
    )


def test_a_long_run_is_sent_in_several_messages(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "run", [record(number) for number in range(1001)], num_prompts=1001
    )
    lines = [
        parsed(line, "traces")
        for line in exported(folder, "otlp-traces", tmp_path).splitlines()
    ]
    counts = [
        sum(
            not span.parent_span_id
            for span in message.resource_spans[0].scope_spans[0].spans
        )
        for message in lines
    ]
    assert counts == [500, 500, 1]


def test_otlps_reader_accepts_the_histograms(run: Path, tmp_path: Path) -> None:
    message = parsed(exported_once(run, "otlp-metrics"), "metrics")
    points = {
        metric.name: metric.histogram.data_points
        for metric in message.resource_metrics[0].scope_metrics[0].metrics
    }
    (duration,) = points["gen_ai.client.operation.duration"]
    assert (duration.count, duration.sum) == (
        200,
        approx(sum(100 + gap for gap in GAPS_MS) / 1e3),
    )
    assert (duration.min, duration.max) == (approx(0.11), approx(2.1))
    assert (
        sum(duration.bucket_counts) == 200
        and len(duration.bucket_counts) == len(duration.explicit_bounds) + 1
    )
    # 0.16 s is a bound: 110 to 160 ms are at most it, six values, none of which is below 0.08 s.
    assert list(duration.bucket_counts[:5]) == [0, 0, 0, 0, 6]
    assert {
        point.attributes[0].value.string_value: point.sum
        for point in points["gen_ai.client.token.usage"]
    } == {"input": 2000, "output": 400}


# ---------------------------------------------------------------------- MLPerf Endpoints


def test_mlperfs_checker_reads_the_points_of_a_search(tmp_path: Path) -> None:
    """Its own model computes the same figures from a point's summary, and its own algorithm the
    same regions."""
    regions = pytest.importorskip("submission_checker.models.regions")
    from submission_checker.models.file import PointSummary

    for users in (2, 16, 64, 100):
        write(tmp_path / "search" / f"u{users}", RECORDS, users=users)
    write(tmp_path / "search" / "open", RECORDS, arrival="poisson", request_rate=4.0)
    write(tmp_path / "search" / "stages", RECORDS, stages=[StageRecord("u2", users=2)])
    found = msgspec.json.decode(exported(tmp_path / "search", "mlperf", tmp_path))
    expected = regions.compute_regions(100, 2)
    bounds = found["regions"]
    assert bounds == {
        name: [getattr(expected, name).start, getattr(expected, name).end]
        for name in (
            "low_latency",
            "low_concurrency",
            "med_concurrency",
            "high_concurrency",
        )
    }
    assert sum(found["runs_left_out"].values()) == 2 and not found["is_submission"]
    assert [point["concurrency"] for point in found["points"]] == [2, 16, 64, 100]
    for point in found["points"]:
        assert point["region"] == regions.classify_concurrency(
            point["concurrency"], expected
        )
        read = PointSummary.model_validate(point["results_summary"])
        assert read.system_tps == approx(point["system_tps"])
        assert (read.tpot_p90_ms, read.ttft_p90_ms) == (
            approx(point["tpot_p90_ms"]),
            approx(point["ttft_p90_ms"]),
        )
        assert point["tps_per_user"] == approx(1e3 / read.tpot_p90_ms)
        assert not point["is_long_enough"], "201 s are too short"


@pytest.mark.parametrize(
    "pair", [(33, 1), (33, 32), (48, 32), (64, 7), (1024, 16), (4096, 3)]
)
def test_regions_are_those_of_the_checker(pair: tuple[int, int]) -> None:
    checker = pytest.importorskip("submission_checker.models.regions")
    most, least = pair
    bounds, why = region_bounds([least, most])
    expected = checker.compute_regions(most, least)
    assert not why
    assert [region_of(level, bounds) for level in range(1, most + 1)] == [
        checker.classify_concurrency(level, expected) for level in range(1, most + 1)
    ]


@pytest.mark.parametrize(
    ("levels", "why"),
    [([], "no point"), ([1, 32], "over 32"), ([33, 64], "at most 32")],
)
def test_levels_without_regions_are_explained(levels: list[int], why: str) -> None:
    bounds, reason = region_bounds(levels)
    assert not bounds and why in reason


def test_a_folder_without_runs_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path), "--format", "mlperf"]) == 2
    assert "contains no run folder" in capsys.readouterr().err


# ---------------------------------------------------------------------- --push


def test_a_collector_gets_spans_and_histograms(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """With the key of OpenTelemetry's own variable, which is printed nowhere."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=top%20secret%20value")
    with json_server(
        {"/v1/traces": {}, "/v1/metrics": {"partialSuccess": {}}}
    ) as collector:
        assert main(["report", str(run), "--push", f"{collector.url}/"]) == 0
        assert [path for path, _ in collector.bodies] == ["/v1/traces", "/v1/metrics"]
        assert {headers["X-Key"] for headers in collector.headers} == {
            "top secret value"
        }
        spans = collector.bodies[0][1]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    out = capsys.readouterr()
    assert f"{len(spans)} spans" in out.out and "top secret" not in out.out + out.err


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "answers 404"),
        ({"/v1/traces": (503, "later", {})}, "answers 503 (later)"),
        (
            {
                "/v1/traces": {
                    "partialSuccess": {"rejectedSpans": "7", "errorMessage": "full"}
                }
            },
            "rejected 7 of a message: full",
        ),
        (
            {"/v1/traces": {}, "/v1/metrics": (400, "no", {})},
            "answers 400 (no); 806 spans before it were taken",
        ),
    ],
)
def test_what_a_collector_does_not_take_is_one_sentence(
    run: Path, answers: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with json_server(answers) as collector:
        assert main(["report", str(run), "--push", collector.url]) == 3
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_collector_that_answers_with_nested_nonsense_has_taken_it(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gateway may say anything beside 200; this was a traceback."""
    nested = (200, b'{"x":' + b"[" * 5000, {})
    with json_server({"/v1/traces": nested, "/v1/metrics": nested}) as collector:
        assert main(["report", str(run), "--push", collector.url]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words", [["--push", "ftp://x"], ["--push", "http://h", "--format", "csv"]]
)
def test_a_push_that_cannot_be_is_wrong_use(
    run: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(run), *words]) == 2
    assert "--push" in capsys.readouterr().err
