"""The readers of clients' results, on what the real tools wrote: three requests of five tokens, and
the server's log of the same run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.referee import http_user_rows, k6_rows
from benchmarks.referee.rows import write_rows
from tests.conftest import REPOSITORY
from truth.log import read_log
from truth.matching import errors, named, rate_errors
from truth.result import Result
from truth.tools import READING_FAILED, tool_named

RECORDED = REPOSITORY / "tests" / "data" / "referee"
ALL = {"ttft", "itl", "tpot", "e2el"}
# Those that keep no gaps: guidellm and endpoints by default, genai-bench; k6 has no tokens.
METRICS = {
    "vllm": ALL,
    "aiperf": ALL,
    "guidellm": ALL - {"itl"},
    "inference-perf": ALL,
    "endpoints": ALL - {"itl"},
    "genai-bench": ALL - {"itl"},
    "llama-benchy": {"ttft", "e2el"},
    "evalscope": ALL,
    "http-user": ALL,
    "k6": {"e2el"},
}
WITH_ROWS = ("http-user", "k6")
UNNAMED = {"genai-bench"}
# Their own summary has means alone.
WITHOUT_SUMMARY = {*WITH_ROWS, "llama-benchy"}


def recorded(name: str) -> Path:
    return RECORDED / name.replace("-", "_")


def read(name: str, folder: Path) -> Result:
    """As truth reads it; of those that write rows, the rows."""
    rows = folder / "rows.csv"
    if name == "k6":
        write_rows(rows, k6_rows.COLUMNS, k6_rows.rows_of(folder / "points.json"))
    if name == "http-user":
        found = http_user_rows.rows_of(folder / "out.json")
        write_rows(rows, http_user_rows.COLUMNS, found)
    if name in WITH_ROWS:
        return tool_named("csv").read(rows)
    tool = tool_named(name)
    return tool.read(tool.result(folder))


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(recorded(name), tmp_path / "run"))

    return copy


@pytest.mark.parametrize("name", METRICS)
def test_what_a_client_wrote_is_read_and_matched(
    name: str, copied: Callable[[str], Path]
) -> None:
    """All requests, with the metrics that it has. The recording machine was busy: clients were
    late, by less than a token's time or some of them, and none is early by more than the 0.1 ms
    that the server's own timestamp may be late."""
    result = read(name, copied(name))
    log = read_log(recorded(name) / "truth.jsonl").entries
    found = errors(result.requests, log)
    assert found.keys() == METRICS[name]
    assert all(error.matched != (name in UNNAMED) for error in found.values())

    # genai-bench looks at its limit of requests only now and then.
    requests = 15 if name == "genai-bench" else 3
    assert found["e2el"].compared == requests
    if "itl" in found:
        assert found["itl"].compared == requests
    for metric in {"ttft", "e2el"} & found.keys():
        assert -0.1 <= found[metric].middle < 200

    assert len(result.requests) == len(log) == requests
    if name not in UNNAMED:
        assert len(named(result.requests, log)) == requests


@pytest.mark.parametrize(
    "name", [name for name in METRICS if name not in WITHOUT_SUMMARY]
)
def test_the_figures_of_the_clients_own_summary_are_in_ms_and_per_second(
    name: str,
) -> None:
    """They lie between the smallest and largest of its own requests; three requests of 5 tokens in
    about 0.2 s."""
    result = read(name, recorded(name))
    for metric in METRICS[name] - {"itl"}:
        values = [getattr(request, f"{metric}_ms") for request in result.requests]
        least = min(values) * 0.999 - 0.01
        most = max(values) * 1.001 + 0.01
        for percent in (50, 99):
            assert least <= result.reported[f"p{percent}_{metric}_ms"] <= most, metric

    assert 0.5 < result.reported["request_rps"] < 20
    assert result.reported["output_tok_per_s"] > 2 * result.reported["request_rps"]
    log = read_log(recorded(name) / "truth.jsonl").entries
    assert rate_errors(result, log).keys() == {"request_rps", "output_tok_per_s"}


def late_vllm(folder: Path) -> None:
    path = folder / "result.json"
    result = json.loads(path.read_text())
    result["ttfts"] = [value + 0.005 for value in result["ttfts"]]
    path.write_text(json.dumps(result))


def late_aiperf(folder: Path) -> None:
    path = folder / "artifacts" / "profile_export.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["metrics"]["time_to_first_token"]["value"] += 5
    path.write_text("\n".join(map(json.dumps, rows)))


def late_endpoints(folder: Path) -> None:
    path = folder / "report" / "events.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        event["timestamp_ns"] += (
            5_000_000 if event["event_type"] == "sample.recv_first" else 0
        )
    path.write_text("\n".join(map(json.dumps, events)))


def late_inference_perf(folder: Path) -> None:
    path = folder / "reports" / "per_request_lifecycle_metrics.json"
    rows = json.loads(path.read_text())
    for row in rows:
        row["start_time"] -= 0.005
    path.write_text(json.dumps(rows))


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("vllm", late_vllm),
        ("aiperf", late_aiperf),
        ("endpoints", late_endpoints),
        ("inference-perf", late_inference_perf),
    ],
)
def test_five_planted_milliseconds_are_found(
    name: str, plant: Callable[[Path], None], copied: Callable[[str], Path]
) -> None:
    log = read_log(recorded(name) / "truth.jsonl").entries
    before = errors(read(name, recorded(name)).requests, log)["ttft"].middle
    folder = copied(name)
    plant(folder)
    after = errors(read(name, folder).requests, log)["ttft"].middle
    assert after - before == pytest.approx(5, abs=1e-3)


@pytest.mark.parametrize("name", METRICS)
def test_half_a_result_is_no_result(
    name: str, tmp_path: Path, copied: Callable[[str], Path]
) -> None:
    """Every file is cut in the middle, and nothing else than the errors that are expected is raised;
    so without any file. k6's file has a line per request: what it lacks is lost."""
    with pytest.raises(READING_FAILED):
        read(name, tmp_path)
    folder = copied(name)
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    if name == "k6":
        assert len(read(name, folder).requests) < 3
        return
    with pytest.raises(READING_FAILED):
        read(name, folder)
