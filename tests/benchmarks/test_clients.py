"""The referee's readers, on what the real tools wrote: three requests of five tokens, and the
server's log of the same run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.referee.clients import CLIENTS, Client
from benchmarks.referee.scenarios import SCENARIOS, Job, Scenario
from tests.conftest import REPOSITORY
from truth.log import read_log
from truth.matching import errors, lost, rate_errors
from truth.tools import READING_FAILED

RECORDED = REPOSITORY / "tests" / "data" / "referee"
SCENARIO = Scenario("recorded", "three requests", 3, tokens=5, streams=3)
# Those that keep no gaps: guidellm and endpoints by default, genai-bench; k6 has no tokens.
METRICS = {
    "vllm bench serve": {"ttft", "itl", "tpot", "e2el"},
    "aiperf": {"ttft", "itl", "tpot", "e2el"},
    "guidellm": {"ttft", "tpot", "e2el"},
    "inference-perf": {"ttft", "itl", "tpot", "e2el"},
    "MLCommons endpoints": {"ttft", "tpot", "e2el"},
    "genai-bench": {"ttft", "tpot", "e2el"},
    "Locust HttpUser": {"ttft", "itl", "tpot", "e2el"},
    "k6": {"e2el"},
}
UNNAMED = {"genai-bench"}
BY_NAME = {client.name: client for client in CLIENTS}


def folder_of(name: str) -> Path:
    return RECORDED / name.lower().replace(" ", "_").replace("-", "_")


def job_in(folder: Path) -> Job:
    return Job(SCENARIO, "http://127.0.0.1:1", folder, folder)


@pytest.mark.parametrize("name", METRICS)
def test_what_a_client_wrote_is_read_and_matched(name: str) -> None:
    """All requests, with the metrics that it has. The recording machine was busy: clients were
    late, by less than a token's time or some of them, and none is early by more than the 0.1 ms
    that the server's own timestamp may be late."""
    result = BY_NAME[name].read(job_in(folder_of(name)))
    log = read_log(folder_of(name) / "truth.jsonl").entries
    found = errors(result.requests, log)
    assert found.keys() == METRICS[name]
    assert all(error.matched != (name in UNNAMED) for error in found.values())
    # genai-bench looks at its limit of requests only now and then.
    requests = 15 if name == "genai-bench" else 3
    assert found["e2el"].count == requests and (
        "itl" not in found or found["itl"].count == requests * 4
    )
    assert all(
        -0.1 <= found[metric].middle < 200
        for metric in ("ttft", "e2el")
        if metric in found
    )
    counts = lost(3, result.requests, log)
    assert (
        counts["lost"],
        counts["invented"],
        counts["reported"],
        counts["served"],
    ) == (
        0,
        0,
        requests,
        requests,
    )


@pytest.mark.parametrize("name", METRICS)
def test_the_figures_of_the_clients_own_summary_are_in_ms_and_per_second(
    name: str,
) -> None:
    """They lie between the smallest and largest of its own requests; three requests of 5 tokens in
    about 0.2 s."""
    result = BY_NAME[name].read(job_in(folder_of(name)))
    for metric in METRICS[name] - {"itl"}:
        values = [getattr(request, f"{metric}_ms") for request in result.requests]
        for p in (50, 99):
            assert (
                min(values) * 0.999 - 0.01
                <= result.reported[f"p{p}_{metric}_ms"]
                <= max(values) * 1.001 + 0.01
            ), metric
    if name not in ("Locust HttpUser", "k6"):
        assert 0.5 < result.reported["request_rps"] < 20
        assert result.reported["output_tok_per_s"] > 2 * result.reported["request_rps"]
        assert rate_errors(
            result, read_log(folder_of(name) / "truth.jsonl").entries
        ).keys() == {
            "request_rps",
            "output_tok_per_s",
        }


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
        ("vllm bench serve", late_vllm),
        ("aiperf", late_aiperf),
        ("MLCommons endpoints", late_endpoints),
        ("inference-perf", late_inference_perf),
    ],
)
def test_five_planted_milliseconds_are_found(
    name: str, plant: Callable[[Path], None], tmp_path: Path
) -> None:
    log = read_log(folder_of(name) / "truth.jsonl").entries
    before = errors(BY_NAME[name].read(job_in(folder_of(name))).requests, log)[
        "ttft"
    ].middle
    shutil.copytree(folder_of(name), tmp_path / "run")
    plant(tmp_path / "run")
    after = errors(BY_NAME[name].read(job_in(tmp_path / "run")).requests, log)[
        "ttft"
    ].middle
    assert after - before == pytest.approx(5, abs=1e-3)


@pytest.mark.parametrize("name", METRICS)
def test_half_a_result_is_no_result(name: str, tmp_path: Path) -> None:
    """Every file is cut in the middle, and nothing else than the errors that `measure` expects is
    raised; so without any file. k6's file has a line per request: what it lacks is lost."""
    with pytest.raises(READING_FAILED):
        BY_NAME[name].read(job_in(tmp_path))
    shutil.copytree(folder_of(name), tmp_path / "run")
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if name == "k6":
        log = read_log(folder_of(name) / "truth.jsonl").entries
        assert (
            lost(3, BY_NAME[name].read(job_in(tmp_path / "run")).requests, log)["lost"]
            > 0
        )
        return
    with pytest.raises(READING_FAILED):
        BY_NAME[name].read(job_in(tmp_path / "run"))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_command_names_the_server_the_requests_and_the_tokens(
    client: Client, tmp_path: Path
) -> None:
    """In its words, its environment or the file that it is given; scenarios that it cannot do have
    a reason."""
    for scenario in SCENARIOS:
        if reason := client.unable(scenario):
            assert len(reason) > 5
            continue
        job = Job(scenario, "http://127.0.0.1:1234", tmp_path, tmp_path / "tokenizer")
        words: list[Any] = [*client.command(job), *client.env(job).values()]
        text = " ".join(map(str, words))
        assert "http://127.0.0.1:1234" in text and str(scenario.tokens) in text
        given = {
            str(scenario.requests),
            str(round(scenario.requests / scenario.rate_rps))
            if scenario.rate_rps
            else "",
        }
        assert any(value and value in text for value in given)
