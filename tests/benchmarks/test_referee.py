"""The referee's clients, its pages, charts and command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.referee.better import where_others_are_better
from benchmarks.referee.chart import chart
from benchmarks.referee.clients import CLIENTS, Client
from benchmarks.referee.kept import Cell, cells_of, kept_columns
from benchmarks.referee.pages import (
    CHARTS,
    between_marks,
    drawn,
    parts_of_pages,
    picture,
)
from benchmarks.referee.tables import ARRIVALS, COSTS, ERRORS, table
from tests.conftest import REPOSITORY
from truth.cases import read_cases
from truth.columns import Column
from truth.tools import tool_named
from truth.work import work_of

MATCHED = "1.0 / 2.0"
Case = dict[str, Any]


def case_of(
    latency: str = "E2EL",
    p99s: tuple[float, ...] = (),
    cpu_us: tuple[float, ...] = (),
    seen: str = MATCHED,
    failed: str = "",
) -> Case:
    """A case of a file of truth's --save, with the figures of each run."""
    error = {
        "figure": f"error of {latency}, p50 / p99, ms",
        "seen": seen,
        "values": [[0.5, p99] for p99 in p99s],
    }
    costs = [{"cpu_us_per_token": each, "memory_mib": 90.0} for each in cpu_us]
    return {
        "verdict": "failed" if failed else "wrong",
        "failed": failed,
        "void": "",
        "findings": [error] if p99s else [],
        "costs": costs,
    }


def columns_with(**cases: Case) -> dict[str, Column]:
    """Clients (their names with underscores) with their case T3."""
    titles = {name.replace("_", " "): {"T3": case} for name, case in cases.items()}
    return {title: Column(title, [], found) for title, found in titles.items()}


def test_pages_and_charts_are_those_of_the_kept_results() -> None:
    """After a measurement: python -m benchmarks.referee --render"""
    columns = kept_columns()
    for page, new in parts_of_pages(columns).items():
        text = page.read_text(encoding="utf-8")
        assert text == between_marks(text, new)
    for latency in CHARTS:
        assert picture(latency).read_text(encoding="utf-8") == drawn(columns, latency)


def test_what_the_page_says_first_is_true_of_every_run() -> None:
    """At 400 streams: llama-load below 1 ms, all others that report a TTFT above 15 ms."""
    ours, *others = cells_of(kept_columns(), "T3")
    assert ours.is_ours
    assert max(map(abs, ours.errors_of("TTFT")[1])) < 1
    p99s = [p99 for cell in others for p99 in cell.errors_of("TTFT")[1]]
    assert len(p99s) >= 5 * 5
    assert min(map(abs, p99s)) > 15


def test_a_row_has_medians_with_the_lowest_and_highest_run() -> None:
    """Without a figure a cell is empty; a star where only distributions are compared."""
    cases = {
        "aiperf": case_of("TTFT", (9.0, 1.0, 2.0), (40.0,)),
        "k6": case_of("TTFT", (3.0,), seen="1 / 2 (distributions)"),
    }
    cells = cells_of(columns_with(**cases), "T3")
    assert table(cells, ERRORS)[2:] == [
        "| aiperf | 0.50 / 2.0 (1.0 to 9.0) |  |  |  |",
        "| k6 | 0.50 / 3.0\\* |  |  |  |",
    ]
    assert table(cells[:1], COSTS[:1])[2:] == ["| aiperf | 40.0 |"]


def test_the_process_of_arrivals_has_its_sign() -> None:
    case = case_of()
    values = {"rate error": -0.01, "gap cv": 0.99, "gap autocorrelation": 0.5}
    case["findings"] = [
        {"figure": name, "seen": "", "values": [[value]]}
        for name, value in values.items()
    ]
    (row,) = table([Cell("aiperf", case)], ARRIVALS)[2:]
    assert row == "| aiperf | -1.00% | +0.99 | +0.50 |  | wrong |"


def test_a_failed_client_stands_in_the_table_with_its_reason() -> None:
    cells = [Cell("guidellm", case_of(failed="exit code 3 | no\nresult"))]
    assert "| guidellm | FAILED: exit code 3 / no result |" in table(cells, ERRORS)[2]


def test_a_chart_has_a_row_per_client_and_its_p99() -> None:
    """On the logarithmic axis; a value beyond its end is drawn at the end, with its number."""
    cells = [
        Cell("llama-load", case_of("TTFT", (144.0,))),
        Cell("aiperf", case_of("TTFT", (1e6,))),
        Cell("k6", case_of()),
    ]
    svg = chart([("64 streams", cells), ("none", cells[2:])], "TTFT", "a < b")
    assert svg.count("<circle") == 2
    assert "144" in svg
    assert "1,000,000" in svg
    assert ">k6<" not in svg
    assert ">none<" not in svg
    assert "a &lt; b" in svg
    assert max(float(x) for x in re.findall(r'cx="([\d.]+)"', svg)) < 860


def test_where_another_client_is_better_stands_first() -> None:
    """A median of less error or cost than ours; not what is only compared as a distribution, rounds
    to the same, or is ours with another flag."""
    columns = columns_with(
        **{"llama-load": case_of(p99s=(-0.5,), cpu_us=(16.9, 18.0, 10.0))},
        **{"llama-load at normal priority": case_of(p99s=(0.1,), cpu_us=(1.0,))},
        guidellm=case_of(p99s=(0.1,), cpu_us=(90.0,), seen="(distributions)"),
        aiperf=case_of(p99s=(0.503,), cpu_us=(16.91,)),
        k6=case_of(p99s=(-0.2,), cpu_us=(15.4,)),
    )
    assert where_others_are_better(columns, {"T3": "400 streams"})[2:] == [
        "- 400 streams: p99 of the E2EL error (ms): k6 0.20, llama-load 0.50; CPU (us/token):"
        " k6 15.4, llama-load 16.9 (10.0 to",
        "  18.0)",
    ]
    del columns["k6"]
    (text,) = where_others_are_better(columns, {"T3": "400 streams"})
    assert text.startswith("No other client is better than llama-load")


def test_a_void_case_says_nothing_of_its_client() -> None:
    columns = columns_with(aiperf=case_of() | {"verdict": "void"})
    assert cells_of(columns, "T3") == []


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_is_known_to_truth_and_has_a_place_in_the_results(
    client: Client,
) -> None:
    """Each case that it is to run can be asked of it, or has a reason."""
    command = client.command(5, Path("r.json"))
    assert command[command.index("--client-name") + 1] == client.title
    assert command[command.index("--runs") + 1] == "5"
    assert ("{load}" in command) == (client.tool == "csv")
    tool = tool_named(client.tool)
    for case in read_cases():
        work = work_of(case, "http://127.0.0.1:1", "folder")
        if client.tool != "csv" and not tool.unable(work):
            (first, *_) = tool.commands(work, Path("/tmp"))
            waves = case.load.requests // max(1, case.load.streams)
            # some ask for waves of users
            of_waves = "--runs" in first and str(waves) in first
            is_asked = str(case.load.requests) in " ".join(first)
            assert is_asked or of_waves or case.load.seconds


def test_a_client_that_has_its_file_is_not_run_again_and_names_are_checked(
    tmp_path: Path,
) -> None:
    """The table is made of the files that there are."""
    file = REPOSITORY / "truth" / "results" / "aiperf-times.json"
    (tmp_path / file.name).write_bytes(file.read_bytes())
    done = referee("--folder", str(tmp_path), "--clients", "aiperf")
    assert done.returncode == 0, done.stderr
    assert "is there" in done.stderr
    assert (
        "| T3 400 synchronous streams | wrong |" in (tmp_path / "README.md").read_text()
    )

    wrong = referee("--clients", "aipref")
    assert wrong.returncode == 2
    assert "invalid choice: 'aipref'" in wrong.stderr


def referee(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.referee", *words],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
        timeout=60,
    )
