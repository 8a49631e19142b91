"""What people read: the block in vLLM's layout, summary.json in its keys, report.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.run_list import run_row
from llama_load.analysis.reports.vllm_block import vllm_block
from llama_load.analysis.reports.write import write_reports
from llama_load.analysis.results.results import Results, analyze
from llama_load.run_folder import (
    MANIFEST,
    Manifest,
    PreflightRow,
    Run,
    RunWriter,
    StageRecord,
    load_run,
)
from llama_load.run_folder.observed.hang_up_check import HangUpCheck
from llama_load.run_folder.observed.record import RequestRecord
from tests.make_records import MS, failed, manifest, record, table

# Laid out by hand from the format strings of vllm bench serve 0.33: names in 40 columns, a space,
# values in 10.
GOLDEN = """\
============ Serving Benchmark Result ============
Successful requests:                     2         
Failed requests:                         0         
Maximum request concurrency:             4         
Benchmark duration (s):                  1.36      
Total input tokens:                      20        
Total generated tokens:                  6         
Request throughput (req/s):              1.47      
Request goodput (req/s):                 0.73      
Output token throughput (tok/s):         4.41      
Peak output token throughput (tok/s):    3.00      
Peak concurrent requests:                1.00      
Total token throughput (tok/s):          19.10     
---------------Time to First Token----------------
Mean TTFT (ms):                          200.00    
Median TTFT (ms):                        200.00    
P99 TTFT (ms):                           298.00     *
P99.9 TTFT (ms):                         299.80     *
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          25.00     
Median TPOT (ms):                        25.00     
P99 TPOT (ms):                           29.90      *
P99.9 TPOT (ms):                         29.99      *
---------------Inter-token Latency----------------
Mean ITL (ms):                           25.00     
Median ITL (ms):                         20.00     
P99 ITL (ms):                            49.10      *
P99.9 ITL (ms):                          49.91      *
----------------End-to-end Latency----------------
Mean E2EL (ms):                          250.00    
Median E2EL (ms):                        250.00    
P99 E2EL (ms):                           357.80     *
P99.9 E2EL (ms):                         359.78     *
=================================================="""


def results(
    *records: RequestRecord, about: Manifest | None = None, path: Path = Path("run")
) -> Results:
    return analyze(
        Run(
            path,
            about or manifest(num_prompts=len(records)),
            table(*records),
            recovered=False,
        )
    )


def test_the_block_is_laid_out_as_vllm_prints_it() -> None:
    about = manifest(
        percentiles=[99.0, 99.9],
        percentile_metrics=["ttft", "tpot", "itl", "e2el"],
        goodput=["ttft:200"],
    )
    found = results(
        record(0), record(1, start_ms=1000, first_ms=300, gaps_ms=(10, 50)), about=about
    )
    assert "\n".join(vllm_block(about, found.total)) == GOLDEN


def test_nothing_measured_prints_na_and_is_null_in_json(tmp_path: Path) -> None:
    """Never a zero that could be taken for a figure."""
    found = results(failed(), path=tmp_path)
    assert f"{'Mean TTFT (ms):':<40} {'n/a':<10}" in block(found).splitlines()
    write_reports(found)
    assert (
        msgspec.json.decode((tmp_path / "summary.json").read_bytes())["mean_ttft_ms"]
        is None
    )


def test_failures_stand_above_the_block_once_a_class() -> None:
    lines = block(
        results(record(0), failed(1), failed(2), failed(3, kind="cut_off"))
    ).splitlines()
    assert lines[:3] == [
        "Failed requests during benchmark run detected (capping to 10):",
        "Error 0: 2 x http_500: boom",
        "Error 1: 1 x cut_off: boom",
    ]


def test_no_line_of_the_block_is_wider_than_80_columns() -> None:
    wide = results(
        record(0, merged_events=2, first_merged=True, cached_tokens=9),
        record(1, clock_source="user"),
    )
    assert max(map(len, block(wide).splitlines())) <= 80


def test_a_run_in_which_no_user_hung_up_says_so() -> None:
    """Else --abort-rate would seem to have worked."""
    about = manifest(num_prompts=2, hang_ups=[HangUpCheck(host="http://127.0.0.1:1")])
    given_up = record(1, status="aborted", ttft_ms=None, e2el_ms=None)
    assert "no user hung up (--abort-rate)" in block(
        results(record(0), record(1), about=about)
    )
    assert "no user hung up" not in block(results(record(0), given_up, about=about))
    assert "no user hung up" not in block(results(record(0), record(1)))


def test_summary_json_has_vllms_keys_and_ours_apart(tmp_path: Path) -> None:
    write_reports(results(record(0), record(1, workload="other"), path=tmp_path))
    summary = msgspec.json.decode((tmp_path / "summary.json").read_bytes())
    wanted = [
        "date",
        "endpoint_type",
        "backend",
        "label",
        "model_id",
        "tokenizer_id",
        "num_prompts",
        "request_rate",
        "burstiness",
        "max_concurrency",
        "duration",
        "completed",
        "failed",
        "total_input_tokens",
        "total_output_tokens",
        "request_throughput",
        "request_goodput",
        "output_throughput",
        "total_token_throughput",
        "max_output_tokens_per_s",
        "max_concurrent_requests",
    ]
    wanted += [
        f"{what}_{key}_ms"
        for key in ("ttft", "tpot", "itl", "e2el")
        for what in ("mean", "median", "std", "p99")
    ]
    assert set(wanted) <= set(summary)
    assert summary["request_rate"] == "inf"
    assert set(summary["llama_load"]["by_workload"]) == {"sharegpt", "other"}
    assert summary["llama_load"]["verdict"]["word"] == "VALID"


def test_vllms_keys_have_the_numbers_of_vllms_formulas(tmp_path: Path) -> None:
    """numpy's linear percentile of four values, as vLLM prints it; a threshold on it has too few
    values all the same."""
    records = [
        record(number, start_ms=1000 * number, first_ms=100 + number)
        for number in range(4)
    ]
    found = results(
        *records,
        about=manifest(num_prompts=4, fail_if=["p99_ttft_ms>500"]),
        path=tmp_path,
    )
    write_reports(found)
    summary = msgspec.json.decode((tmp_path / "summary.json").read_bytes())
    assert summary["p99_ttft_ms"] == pytest.approx(
        np.percentile([100, 101, 102, 103], 99)
    )
    assert summary["llama_load"]["uncertain"]["p99_ttft_ms"] == "4 values, 100 needed"
    assert set(summary["llama_load"]["uncertain"]) == {
        f"p99_{key}_ms" for key in ("ttft", "tpot", "itl", "e2el", "e2el_per_token")
    }
    assert (
        found.thresholds[0].failed
        and found.thresholds[0].why == "n/a (4 values, 100 needed)"
    )
    (tmp_path / MANIFEST).write_text("{}")
    assert run_row(tmp_path)[-2] == "n/a", "nor does the list of runs show it"


def test_rates_of_a_run_in_stages_are_numbers_and_named_as_uncertain(
    tmp_path: Path,
) -> None:
    """Two requests a stage, 2 s between the stages: 4 / 3.171 s by vLLM's formula."""
    records = [
        record(number, start_ms=at, stage=number // 2)
        for number, at in enumerate((0, 30, 3000, 3030))
    ]
    stages = [
        StageRecord(
            str(users), users, begun_mono_ns=at * MS, ended_mono_ns=(at + 500) * MS
        )
        for users, at in ((1, 0), (2, 3000))
    ]
    write_reports(
        results(*records, about=manifest(num_prompts=2, stages=stages), path=tmp_path)
    )
    summary = msgspec.json.decode((tmp_path / "summary.json").read_bytes())
    assert summary["request_throughput"] == pytest.approx(4 / 3.171)
    ours = summary["llama_load"]
    assert (
        ours["uncertain"]["output_throughput"]
        == "the pauses and warm-ups between the stages are in it"
    )
    assert "output_throughput" not in ours["by_stage"]["1"]["uncertain"]
    (tmp_path / MANIFEST).write_text("{}")
    assert run_row(tmp_path)[-4] == "n/a"


def test_report_md_holds_everything_and_survives_any_text(tmp_path: Path) -> None:
    about = manifest(
        label="四路并行 | 测试 😀",
        num_prompts=2,
        preflight=[PreflightRow("slots", "4 | four", "warning")],
        command=["locust", "a b"],
    )
    write_reports(
        results(record(0), failed(1, kind="http_500"), about=about, path=tmp_path)
    )
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for piece in (
        "四路并行",
        "Serving Benchmark Result",
        "| http_500 | 1 | at 0.1 s | HTTP status 500; an error inside the server: see its log | boom |",
        "4 \\| four",
        "locust 'a b'",
        "Verdict: FAILED",
    ):
        assert piece in text


@pytest.mark.parametrize(
    ("records", "about", "code"),
    [
        ([record(0)], {"num_prompts": 1}, 0),
        ([record(0), failed(1)], {"num_prompts": 2}, 1),
        ([record(0)], {"num_prompts": 1, "fail_if": ["mean_ttft_ms>50"]}, 1),
        ([record(0)], {"num_prompts": 1, "fail_if": ["mean_ttft_ms>150"]}, 0),
        ([record(0)], {"num_prompts": 2}, 3),
        ([record(0)], {"end": "interrupted"}, 3),
        ([record(0)], {"num_prompts": 2, "end": "time"}, 0),
    ],
)
def test_exit_codes(records: list[RequestRecord], about: dict, code: int) -> None:
    """0 good, 1 a threshold came true, 3 incomplete; -t ends a run well however many prompts were
    planned."""
    assert (
        results(
            *records, about=manifest(**{"fail_if": ["failure_ratio>0.01"]} | about)
        ).exit_code
        == code
    )


def test_the_report_command_finishes_a_killed_run(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", manifest(end="running", num_prompts=5))
    writer.append([record(0), record(1)])
    writer.release()  # its process is gone
    done = subprocess.run(
        [sys.executable, "-m", "llama_load.cli.main", "report", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert (
        "3 of 5 planned requests have no record: the run was killed, or its disk was full"
        in " ".join(done.stdout.split())
    )
    assert load_run(tmp_path / "run").manifest.end == "interrupted"


def test_reading_reports_needs_neither_gevent_nor_locust() -> None:
    code = "import sys, llama_load.analysis.reports.write, llama_load.analysis.figures, llama_load.run_folder; print('gevent' in sys.modules, 'locust' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
