"""summary.json read back: what our writer made, and what somebody damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from llama_load.analysis.reports.write import write_reports
from llama_load.analysis.results.results import analyze
from llama_load.analysis.results.run_summary import SUMMARY, read_summary, summary_of
from llama_load.run_folder import Run
from tests.make_records import failed, manifest, record, table


def test_a_summary_is_read_as_it_was_written(tmp_path: Path) -> None:
    """One of three requests failed. A p99 of two values is uncertain, so it is no number of the
    run."""
    records = table(record(0), record(1, start_ms=100), failed(2))
    found = analyze(
        Run(
            tmp_path,
            manifest(num_prompts=3, percentiles=[99.0]),
            records,
            recovered=False,
        )
    )
    write_reports(found)
    summary = read_summary(tmp_path)
    assert (
        summary.words == list(found.verdict.words)
        and summary.headline == found.verdict.headline
    )
    assert summary.verdict is not None
    assert [(check.name, check.ok) for check in summary.verdict.checks] == [
        (check.name, check.ok) for check in found.verdict.checks
    ]
    assert summary.numbers("completed", "failed", "p99_ttft_ms", "no_such_key") == {
        "completed": 2,
        "failed": 1,
    }
    assert (
        summary.figures["p99_ttft_ms"] is not None
        and "values, 100 needed" in summary.doubts()["p99_ttft_ms"]
    )


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"text"', "[" * 100_000])
def test_what_is_no_summary_is_one_error(text: str, tmp_path: Path) -> None:
    (tmp_path / SUMMARY).write_text(text)
    with pytest.raises(ValueError, match=r"\S"):
        read_summary(tmp_path)


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / SUMMARY).write_text("{}" + " " * 100)
    with pytest.raises(ValueError, match="limit"):
        read_summary(tmp_path, 100)


@pytest.mark.parametrize(
    "ours",
    [
        [],
        "text",
        {"verdict": 1, "by_stage": [], "uncertain": "x", "telemetry": 3},
        {
            "verdict": {"words": "VALID"},
            "by_stage": {"1": 2},
            "telemetry": {"by_stage": []},
        },
        {"verdict": {"words": [1]}, "uncertain": ["completed"]},
    ],
)
def test_parts_of_other_types_are_left_out_and_the_figures_stay(ours: object) -> None:
    summary = summary_of(
        {
            "completed": 3,
            "request_throughput": 1e400,
            "duration": True,
            "failed": 10**400,
            "llama_load": ours,
        }
    )
    assert summary.words == [] and summary.verdict is None and summary.headline == ""
    assert (
        dict(summary.stages) == {}
        and dict(summary.telemetry()) in ({}, {"by_stage": []})
        and dict(summary.telemetry("1")) == {}
    )
    assert summary.numbers("completed", "request_throughput", "duration", "failed") == {
        "completed": 3
    }


def test_texts_are_printable_and_a_stage_has_its_own_doubts() -> None:
    stage = {
        "completed": 1,
        "p99_ttft_ms": 5.0,
        "uncertain": {"p99_ttft_ms": "few\x1b"},
    }
    verdict = {"word": "FAILED", "headline": "\u202eevil\x1b[31m"}
    summary = summary_of(
        msgspec.json.decode(
            msgspec.json.encode(
                {"llama_load": {"by_stage": {"1": stage}, "verdict": verdict}}
            )
        )
    )
    assert (
        summary.words == ["FAILED"]
        and "\x1b" not in summary.headline
        and "\u202e" not in summary.headline
    )
    assert (
        summary.certain("1")["p99_ttft_ms"] is None
        and summary.doubts("1") == {"p99_ttft_ms": "few\ufffd"}
        and summary.doubts() == {}
    )


def test_the_verdict_on_a_stage_has_no_failure_of_another() -> None:
    """Requests that failed at 16 users are among those of the run, too."""
    failing = {"name": "failure_ratio", "ok": False, "text": "12 of 20 failed"}
    checks = [failing, failing | {"stage": "16"}]
    verdict = {"words": ["FAILED"], "headline": "FAILED: 12 of 20", "checks": checks}
    stages: dict[str, Any] = {"1": {}, "16": {}}
    summary = summary_of({"llama_load": {"verdict": verdict, "by_stage": stages}})
    assert summary.judged_in("1").words == ["VALID"]
    assert summary.judged_in("16").words == ["FAILED"]
    assert summary.judged_in("16").headline == "FAILED: 12 of 20 failed"
    assert summary.judged_in("").headline == "FAILED: 12 of 20"
