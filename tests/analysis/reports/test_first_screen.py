"""The first screen after a run: what it says for few and many requests, failures, stages and
mixtures."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from llama_load.analysis.checks.verdict import Verdict
from llama_load.analysis.figures.check import limited
from llama_load.analysis.figures.check_limits import CHANGED
from llama_load.analysis.figures.gpu_figures import GpuFigures
from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.first_screen import (
    BAD,
    DIM,
    DOUBTFUL,
    GOOD,
    STRONG,
    first_screen,
)
from llama_load.analysis.reports.next_step import next_step, with_flags
from llama_load.analysis.reports.show import show
from llama_load.analysis.reports.titles import title_of
from llama_load.analysis.reports.write import RunReports, write_reports
from llama_load.analysis.results.results import Results, analyze
from llama_load.run_folder import Manifest, Run, RunWriter, StageRecord, load_run
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.tables.numbers import percent_of, short
from tests.make_records import MS, failed, manifest, record, table

SERVER = {
    "url": "http://h",
    "backend": "llama-server",
    "build": "b7522",
    "model": "qwen3-4b",
    "quantization": "Q6_K",
    "model_bytes": 3 << 30,
    "slots": 4,
    "ctx_per_slot": 4096,
}


def results(*records: RequestRecord, **about: object) -> Results:
    told: Manifest = manifest(
        **{
            "num_prompts": len(records),
            "targets": [SERVER],
            "workers": [WorkerHealth("local")],
        }
        | about
    )
    return analyze(Run(Path("runs/one"), told, table(*records), recovered=False))


def one_after_the_other(count: int) -> list[RequestRecord]:
    return [
        record(index, start_ms=200 * index, first_ms=100 + index % 7)
        for index in range(count)
    ]


def texts(found: Results) -> list[str]:
    return [line.text for line in first_screen(found)]


def row(name: str, lines: list[str]) -> str:
    (line,) = (line for line in lines if line.startswith(name))
    return " ".join(line.split())


def test_fewer_requests_than_users_are_the_concurrency() -> None:
    found = results(*one_after_the_other(10), users=50)
    lines = texts(found)
    assert title_of(found, str).endswith("10 at a time")
    assert "Maximum request concurrency:             10" in block(found)
    assert "c=10 " in " ".join(lines)


@pytest.mark.parametrize(
    ("count", "ttft"),
    [
        (1, "TTFT (ms) 100 100 n/a (1 value)"),
        (3, "TTFT (ms) 101 101 n/a (3 values)"),
        (10, "TTFT (ms) 102 102 n/a (10 values)"),
        (1000, "TTFT (ms) 103 103 106 (106 to 106)"),
    ],
)
def test_figures_of_few_and_many_requests(count: int, ttft: str) -> None:
    lines = texts(results(*one_after_the_other(count), users=1))
    assert row("TTFT", lines) == ttft
    assert f"{count} of {count} answered (100 %) · c=1" in " ".join(lines)
    # One user: 20 ms a token.
    assert "50.0 tok/s one user" in row("Output", lines)
    assert all(cell_len(line) <= 80 for line in lines if not line.startswith("  "))


def test_a_run_that_went_well_is_green_with_its_limit_beneath() -> None:
    seen = [limited(CHANGED, 1.0, "few", detects=1.5)]
    verdict = Verdict("VALID", seen, ["VALID"], "VALID: with 100 requests …")
    run = replace(results(*one_after_the_other(100), users=1), verdict=verdict)
    word, limit, *_ = first_screen(run)
    assert (word.text, word.style) == ("VALID", GOOD)
    assert limit.text == "  with 100 requests a slowdown below 1.5 x would not show"
    assert limit.style == DIM


def test_the_answer_is_in_one_look() -> None:
    good = first_screen(results(*one_after_the_other(100), users=1))
    assert (good[0].text, good[0].style) == ("VALID as far as seen", STRONG)
    assert good[1].style == DIM
    assert any("qwen3-4b Q6_K 3.00 GiB · 4 slots × 4096" in line.text for line in good)
    bad = first_screen(results(record(0), failed(1), failed(2)))
    assert (
        bad[0].text.startswith("FAILED: 2 of 3 requests failed") and bad[0].style == BAD
    )
    cached = first_screen(
        results(
            *(record(index, prompt_tokens=500, cached_tokens=450) for index in range(3))
        )
    )
    assert cached[0].text.startswith("NOT COMPARABLE: ") and cached[0].style == DOUBTFUL


def test_latencies_beside_many_failures_are_marked() -> None:
    lines = texts(results(record(0), record(1), failed(2)))
    assert row("TTFT", lines).endswith("of the survivors only")
    assert "2 of 3 answered (67 %)" in lines[1] + lines[2] + lines[3]
    assert not any("survivors" in line for line in texts(results(record(0), record(1))))


def test_a_run_without_an_answer_has_no_figures() -> None:
    lines = texts(results(failed(0), failed(1)))
    assert not any(
        line.startswith(("TTFT", "Output", " ")) and "ms" in line for line in lines[2:]
    )
    assert any("0 of 2 answered (0 %)" in line for line in lines)


def test_goodput_is_counted() -> None:
    lines = texts(results(*one_after_the_other(8), goodput=["ttft:102.5"]))
    # TTFT 100 … 106 and 100 again: 100, 101, 102 and 100 are good; 8 requests take 7 x 200 + 141
    # ms.
    assert row("Goodput", lines) == "Goodput 4 of 8 met ttft:102.5 · 2.60 req/s"


def test_stages_and_mixtures_show_their_table_instead() -> None:
    first, second = (
        StageRecord("1", users=1, begun_mono_ns=0, ended_mono_ns=500 * MS),
        StageRecord("2", users=2),
    )
    second = replace(second, begun_mono_ns=500 * MS, ended_mono_ns=1000 * MS)
    staged = texts(
        results(record(0), record(1, start_ms=500, stage=1), stages=[first, second])
    )
    assert any(line.startswith("c=1 ") for line in staged) and any(
        line.startswith("c=2 ") for line in staged
    )
    mixed = texts(
        results(record(0, workload="文档"), record(1, workload="图片", first_ms=300))
    )
    assert row("文档", mixed).split()[1:3] == ["1", "0"]
    assert row("图片", mixed).split()[5] == "300"
    assert cell_len(row("文档", mixed)) <= 80
    for lines in (staged, mixed):
        assert not any(line.startswith("TTFT (ms)") for line in lines)


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (12, 20, "60 %"),
        (999, 1000, "99.9 %"),
        (99_999, 100_000, "over 99.99 %"),
        (1, 100_000, "under 0.01 %"),
        (0, 0, "n/a"),
    ],
)
def test_only_all_is_100_per_cent(part: int, whole: int, text: str) -> None:
    assert percent_of(part, whole) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2072.4, "2072"),
        (99.96, "100"),
        (44.06, "44.1"),
        (9.996, "10.0"),
        (3.684, "3.68"),
        (None, "n/a"),
    ],
)
def test_figures_have_three_digits(value: float | None, text: str) -> None:
    assert short(value) == text


def test_where_the_time_went_in_one_line() -> None:
    """Two requests at a time on one slot: the second waits 140 ms for the first, of their 140 +
    281; 189 are prefill, 80 decode."""
    records = [
        record(
            0, server_prompt_ms=90.0, server_predict_ms=40.0, server_prompt_tokens=10
        )
    ]
    records.append(
        record(
            1,
            first_ms=241,
            headers_mono_ns=141 * MS,
            queue_ms=140.0,
            server_prompt_ms=99.0,
            server_predict_ms=40.0,
        )
    )
    lines = texts(results(*records, users=2, targets=[SERVER | {"slots": 1}]))
    assert (
        row("Time went", lines)
        == "Time went slot 33 % · prefill 45 % · decode 19 % · not known 2 %"
    )


def test_without_the_servers_times_a_wait_is_not_called_prefill() -> None:
    text = "\n".join(
        texts(results(record(0), record(1, start_ms=90, first_ms=300), users=2))
    )
    assert "decode beside others' wait or prefill" in text


def test_energy_and_memory_where_they_were_measured() -> None:
    found = results(record(0))
    assert not any("W" in line.split() for line in texts(found))
    telemetry = replace(
        found.telemetry,
        values={
            "vram_peak_mib": 6478.2,
            "watts": 27.04,
            "joules_per_output_token": 0.13,
        },
    )
    assert "buffers 6478 MiB · 27.0 W · 0.13 J/token" in texts(
        replace(found, telemetry=telemetry)
    )
    telemetry = replace(telemetry, gpus=[GpuFigures(source="gpus", gpu="0")])
    assert "VRAM 6478 MiB · 27.0 W · 0.13 J/token" in texts(
        replace(found, telemetry=telemetry)
    )


def test_a_run_with_a_label_is_held_against_the_last_one(tmp_path: Path) -> None:
    """100 to 106 ms TTFT before, 3 % more now; a run without the label, or none before it, has no
    such line."""
    for name, first_ms, label in (
        ("a", 100, "nightly"),
        ("x", 100, "other"),
        ("b", 103, "nightly"),
    ):
        told = manifest(
            num_prompts=10,
            label=label,
            targets=[SERVER],
            workers=[WorkerHealth("local")],
            date=f"2026-{name}",
        )
        writer = RunWriter(tmp_path / name, told)
        writer.append(
            [
                record(
                    index,
                    start_ms=200 * index,
                    first_ms=first_ms,
                    prompt_sha256=f"{index:064}",
                )
                for index in range(10)
            ]
        )
        writer.finish()
        found = analyze(load_run(tmp_path / name))
        write_reports(found)
        lines = [line.text for line in first_screen(found)]
        assert any(line.startswith("against last") for line in lines) == (name == "b")
    text = " ".join(" ".join(lines).split())
    assert (
        'against last "nightly" (a): set-up same, Mean TTFT +3 %, Mean TPOT +0 %,'
        in text
    )
    assert "(one run a side: not proven)" in text


# The next command


def test_the_next_command_answers_the_next_question() -> None:
    command = ["locust", "-f", "my chat.py", "-u", "4", "--run-dir", "runs/one"]
    few = next_step(
        results(
            *one_after_the_other(10), users=4, command=[*command, "--num-prompts=10"]
        )
    )
    assert few == (
        "p99 is n/a with 10 requests; for p99:",
        "locust -f 'my chat.py' -u 4 --num-prompts 100",
    )
    enough = next_step(results(*one_after_the_other(100), users=4, command=command))
    assert enough == (
        "To see how it scales:",
        "locust -f 'my chat.py' --stages 1,2,4,8",
    )
    stages = [StageRecord("1", users=1, begun_mono_ns=0, ended_mono_ns=500 * MS)]
    staged = next_step(results(record(0), stages=stages, command=command))
    assert staged == (
        "To compare it with another set-up:",
        "llama-load compare runs/one OTHER_RUN",
    )
    slow = [
        record(index, start_ms=200 * index, own_delay_ms=60.0) for index in range(100)
    ]
    assert next_step(results(*slow, users=1)) == (
        "To measure how many workers this load needs:",
        "llama-load calibrate",
    )


def test_where_a_check_says_what_to_do_no_other_command_is_given() -> None:
    taken = WorkerHealth("w_1", 60.0, 90.0, 0.3, machine_busy=0.99, own_share=0.08)
    assert (
        next_step(results(*one_after_the_other(10), users=1, workers=[taken])) is None
    )  # more workers do not help where others took the machine
    assert next_step(results(record(0), failed(1))) is None
    assert next_step(results(record(0), num_prompts=2)) is None


def test_flags_are_replaced_however_they_are_written() -> None:
    assert with_flags(
        ["locust", "-u8", "--users=4", "--users", "3", "-u", "2", "--url-x", "y"],
        ["-u", "--users"],
        ["-t", "5s"],
    ) == ("locust --url-x y -t 5s")


# Printing


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    found = results(
        record(0, model="[bold]x[/]"),
        targets=[SERVER | {"model": "[red]名[/]\x1b[31m"}],
    )
    plain, coloured = io.StringIO(), Terminal()
    reports = RunReports(found, "the block\n", {}, first_screen(found))
    show(reports, plain)
    show(reports, coloured, with_block=True)
    assert "\x1b" not in plain.getvalue()
    assert "\x1b[1" in coloured.getvalue()
    for out in (plain, coloured):
        assert "[red]名[/]\ufffd[31m" in out.getvalue()
        assert out.getvalue().endswith("the block\nRun folder: runs/one\n")
