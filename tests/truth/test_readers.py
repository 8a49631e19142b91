"""Readers of CSV, OpenTelemetry and llama-load's run folder, and what other clients write when
something fails. What they write otherwise is read in test_recorded.py."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, Finished
from truth.problem import Problem
from truth.result import COUNTS, LOAD, PERCENTILES, RATES, TIMES, TOPICS, Doubt
from truth.tools import as_read, tool_named
from truth.tools.llama_load import _topics

RECORDED = REPOSITORY / "tests" / "data" / "referee"
DEMO = REPOSITORY / "tests" / "data" / "printed" / "demo"


def test_rows_in_csv(tmp_path: Path) -> None:
    """What is empty was not measured; a row with another status has failed."""
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "number,status,ttft_ms,e2el_ms,itl_ms,output_tokens\n"
        "1,ok,10.5,30.5,10 10,3\n2,cut,9,,,\n3,ok,,20,,\n"
    )
    result = as_read(tool_named("csv"), rows)
    assert (result.completed, result.failed, result.output_tokens) == (2, 1, None)
    assert (
        result.requests[0].itl_ms == [10.0, 10.0] and result.requests[1].ttft_ms is None
    )
    rows.write_text("a,b\n1,2\n")
    with pytest.raises(Problem, match="no column number, request_id or e2el_ms"):
        as_read(tool_named("csv"), rows)


def test_the_summary_of_rows_in_csv(tmp_path: Path) -> None:
    """Figures and doubts of the client, and requests that it ended itself."""
    rows = tmp_path / "rows.csv"
    text = "# p99_ttft_ms = 12.5\n# doubt times, load = the client was late\n# doubt = odd\n"
    rows.write_text(text + "number,status,late_ms\n1,ok,3.5\n2,cancelled,\n3,cut,\n")
    result = as_read(tool_named("csv"), rows)
    assert result.reported == {"p99_ttft_ms": 12.5}
    assert result.doubts == [
        Doubt("the client was late", (TIMES, LOAD)),
        Doubt("odd", TOPICS),
    ]
    assert (result.completed, result.failed) == (1, 1)
    assert result.requests[0].late_ms == 3.5
    for wrong in ("# p99\n", "# doubt clocks = x\n"):
        rows.write_text(wrong + "number\n1\n")
        with pytest.raises(Problem, match=r"is no figure|no topic clocks"):
            as_read(tool_named("csv"), rows)


def test_spans_of_our_own_export_and_our_run_folder_are_the_same_requests(
    tmp_path: Path, run_report: Callable[..., Finished]
) -> None:
    """The demo's run, exported in both forms by llama-load itself."""
    shutil.copytree(DEMO, tmp_path / "run")
    for form, name in (
        ("otlp-traces", "traces.jsonl"),
        ("jsonl", "requests.jsonl"),
        ("json", "summary.json"),
    ):
        target = tmp_path / "run" / name
        report = run_report(tmp_path / "run", "--format", form, "--output", str(target))
        assert report.code == 0, report.err
    spans = as_read(tool_named("otlp"), tmp_path / "run" / "traces.jsonl")
    folder = as_read(tool_named("llama-load"), tmp_path / "run")
    assert spans.completed == folder.completed == 150
    assert spans.output_tokens == folder.output_tokens
    by_id = {seen.request_id: seen for seen in folder.requests}
    own_delays = {}
    for line in (tmp_path / "run" / "requests.jsonl").read_text().splitlines():
        row = json.loads(line)
        own_delays[row["request_id"]] = row["own_delay_ms"]
    for seen in spans.requests:
        # what the reader of the folder adds: truth's clients begin when they were asked to
        own_delay_ms = own_delays[seen.request_id]
        assert seen.ttft_ms is not None
        assert seen.ttft_ms + own_delay_ms == pytest.approx(
            by_id[seen.request_id].ttft_ms
        )


def test_a_run_folder_without_rows_says_how_to_write_them(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"llama-load report .* --format jsonl"):
        as_read(tool_named("llama-load"), tmp_path)


@pytest.mark.parametrize(
    ("name", "spoils", "topics"),
    [
        ("other_programs_ratio", ["all figures"], (TIMES, RATES)),
        ("late_p99_ms", ["comparisons"], (LOAD, RATES)),
        ("missing_records", ["all figures"], TOPICS),
        ("loop_lag_p99_ms", ["TTFT", "E2EL", "rates"], (TIMES, RATES)),
        ("excess_prompt_ratio", ["counts", "comparisons"], (COUNTS,)),
    ],
)
def test_a_doubt_concerns_the_figures_that_it_spoils(
    name: str, spoils: list[str], topics: tuple[str, ...]
) -> None:
    """A busy machine is no excuse for a wrong count."""
    assert _topics({"name": name, "spoils": spoils}) == topics


def test_percentiles_of_few_values_are_doubts(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").write_text("")
    about = {"verdict": {"word": "VALID", "checks": []}}
    about["uncertain"] = {
        "p99_ttft_ms": "10 values, 100 needed",
        "p50_ttft_ms": "the client was slow",
    }
    summary = {
        "completed": 0,
        "failed": 0,
        "total_output_tokens": 0,
        "total_input_tokens": 0,
    }
    summary |= {
        "request_throughput": 1.0,
        "output_throughput": 1.0,
        "llama_load": about,
    }  # type: ignore[dict-item]
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (doubt,) = as_read(tool_named("llama-load"), tmp_path).doubts
    assert doubt.about == (PERCENTILES,) and "p99_ttft_ms" in doubt.text


def copied_events(report: Path) -> list[dict[str, Any]]:
    """Those of a recording of endpoints, of which `report` becomes a copy."""
    shutil.copytree(RECORDED / "endpoints" / "report", report)
    return [json.loads(line) for line in (report / "events.jsonl").open()]


def write_changed(
    report: Path, events: list[dict[str, Any]], lost: tuple[str, str], failed: str
) -> None:
    """Without the event of a sample and type, and with the error of a sample."""
    kept = [
        event for event in events if (event["sample_uuid"], event["event_type"]) != lost
    ]
    kept.append({"event_type": "error.generic", "sample_uuid": failed, "data": []})
    lines = [json.dumps(event) + "\n" for event in kept]
    (report / "events.jsonl").write_text("".join(lines))


def test_a_failed_sample_of_endpoints_is_not_completed(tmp_path: Path) -> None:
    """One of three was answered with status 500: it has no first token. Without a first token of any
    there are no percentiles of TTFT."""
    report = tmp_path / "report"
    events = copied_events(report)
    refused = next(event["sample_uuid"] for event in events if event["sample_uuid"])
    write_changed(report, events, (refused, "sample.recv_first"), failed=refused)

    file = report / "performance" / "result_summary.json"
    summary = json.loads(file.read_text())
    summary["n_samples_failed"] = 1
    summary["ttft"] = {}
    file.write_text(json.dumps(summary))

    result = tool_named("endpoints").read(report)
    assert (result.completed, result.failed, len(result.requests)) == (2, 1, 2)
    assert "p99_ttft_ms" not in result.reported
    assert "p99_e2el_ms" in result.reported


def test_only_samples_of_endpoints_that_were_answered_whole_have_times(
    tmp_path: Path,
) -> None:
    """One of three failed after its first token, and one never ended."""
    report = tmp_path / "report"
    events = copied_events(report)
    issued = [each for each in events if each["event_type"] == "sample.issued"]
    cut, open_one, whole = (event["sample_uuid"] for event in issued)
    write_changed(report, events, (open_one, "sample.complete"), failed=cut)

    times = {
        event["event_type"]: event["timestamp_ns"]
        for event in events
        if event["sample_uuid"] == whole
    }
    ttft_ns = times["sample.recv_first"] - times["sample.issued"]
    (seen,) = tool_named("endpoints").read(report).requests
    assert seen.ttft_ms == ttft_ns / 1e6


def test_a_check_of_an_earlier_version_spoils_all_figures() -> None:
    """Its summary does not say which."""
    assert _topics({"name": "first_merged_shift"}) == TOPICS
