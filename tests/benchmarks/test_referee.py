"""The referee's server, its accounts of processes, its page and its command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.referee.better import where_others_are_better
from benchmarks.referee.chart import chart
from benchmarks.referee.clients import CLIENTS, caches
from benchmarks.referee.page import (
    CHARTS,
    between_marks,
    drawn,
    generated,
    parts_of_pages,
    picture,
)
from benchmarks.referee.process_group import ProcessGroup, Usage
from benchmarks.referee.results import RESULTS, Results
from benchmarks.referee.scenarios import SCENARIOS
from tests.conftest import REPOSITORY
from truth.tokenizer import make_tokenizer


def results_of(folder: Path, date: str) -> Results:
    """Without cells, of a measurement on this day."""
    results = Results(folder / "r.json")
    results.machine = {
        "date": date,
        "system": "s",
        "cores": 2,
        "python": "p",
        "server": "server.c",
    }
    return results


def test_cpu_time_between_two_instants_is_interpolated() -> None:
    """A second of CPU in 2 s, then none: half a second in the first of them."""
    usage = Usage(
        [(0, 0), (2_000_000_000, 1_000_000_000), (4_000_000_000, 1_000_000_000)]
    )
    assert usage.cpu_s() == 1
    assert usage.cpu_s(0, 1_000_000_000) == 0.5
    assert usage.cpu_s(2_000_000_000, 3_000_000_000) == 0


def test_the_cpu_time_of_a_child_that_its_parent_left_is_counted(
    tmp_path: Path,
) -> None:
    """Only with control groups; without, at least that of the process itself is."""
    burn = "import os, time\nif os.fork() == 0: os.setsid()\nbegin = time.process_time()\nwhile time.process_time() - begin < 0.3: pass\n"
    group = ProcessGroup()
    try:
        process = subprocess.Popen([sys.executable, "-c", burn], preexec_fn=group.join)
        with group.measure(process.pid) as usage:
            process.wait(20)
            while group.counted and group.pids(process.pid):
                pass
    finally:
        group.close()
    assert usage.cpu_s() > (0.55 if group.counted else 0.1)
    assert not [
        path
        for path in Path("/sys/fs/cgroup").glob("*/llama-load-referee-*")
        if str(os.getpid()) in path.name
    ]


def test_every_word_is_a_token() -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(
        str(make_tokenizer(caches() / "referee-tokenizer") / "tokenizer.json")
    )
    assert len(tokenizer.encode(" 17" + " tok" * 99).ids) == 100
    words = tokenizer.decode([9, 8, 7])
    assert tokenizer.encode(words).ids == [9, 8, 7]


def test_a_tokenizer_of_other_words_is_made_anew(tmp_path: Path) -> None:
    """A cache may have one of an earlier version."""
    whole = (make_tokenizer(tmp_path) / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text("kept")
    assert (make_tokenizer(tmp_path) / "tokenizer.json").read_text() == "kept"
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": 4000}')
    assert (make_tokenizer(tmp_path) / "tokenizer.json").read_text() == whole


def test_the_page_the_charts_and_the_short_table_are_those_of_the_results() -> None:
    """After a measurement: python -m benchmarks.referee --render"""
    results = Results(RESULTS)
    for page, new in parts_of_pages(results).items():
        text = page.read_text(encoding="utf-8")
        assert text == between_marks(text, new)
    for metric in CHARTS:
        assert picture(metric).read_text(encoding="utf-8") == drawn(results, metric)


def test_a_chart_has_a_row_per_client_and_its_p99(tmp_path: Path) -> None:
    """On the logarithmic axis; a value beyond its end is drawn at the end, with its number."""
    error = {"matched": True, "p50": 0.03, "p99": 144.0}
    cells = {
        "64/llama-load": {"errors": {"ttft": error}},
        "64/aiperf": {"errors": {"ttft": error | {"p99": 1e6}}},
        "64/k6": {"errors": {}},
    }
    (tmp_path / "r.json").write_text(json.dumps({"cells": cells}))
    svg = chart(Results(tmp_path / "r.json"), SCENARIOS, "ttft", "a < b")
    assert (
        svg.count("<circle") == 2
        and "144.0" in svg
        and "1,000,000" in svg
        and ">k6<" not in svg
        and "a &lt; b" in svg
    )
    assert max(float(x) for x in re.findall(r'cx="([\d.]+)"', svg)) < 860


def test_a_failed_client_stands_in_the_table_with_its_reason(tmp_path: Path) -> None:
    results = results_of(tmp_path, "d")
    results.cells = {"400/guidellm": {"failed": "exit code 3 | no\nresult"}}
    assert "| guidellm | FAILED: exit code 3 / no result |" in generated(results)


def test_cells_that_were_measured_are_skipped_and_names_are_checked(
    tmp_path: Path,
) -> None:
    """Every client of this scenario has a cell, so there is nothing to do."""
    path = tmp_path / "r.json"
    path.write_text(
        json.dumps(
            {"cells": {f"1/{client.name}": {"failed": "x"} for client in CLIENTS}}
        )
    )
    command = [
        sys.executable,
        "-m",
        "benchmarks.referee",
        "--results",
        str(path),
        "--scenarios",
    ]
    before = path.read_bytes()
    done = subprocess.run(
        [*command, "1"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "") and path.read_bytes() == before
    wrong = subprocess.run(
        [*command, "65"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
        timeout=60,
    )
    assert wrong.returncode == 2 and "invalid choice: '65'" in wrong.stderr


def test_clients_that_were_measured_on_other_days_are_named(tmp_path: Path) -> None:
    results = results_of(tmp_path, "2026-11-27")
    dates = {"llama-load": "2026-11-27", "guidellm": "2026-11-22", "k6": "2026-11-22"}
    for client, date in dates.items():
        results.cells[f"400/{client}"] = {"failed": "x", "date": date}
    text = generated(results)
    assert "2026-11-22 (the others), 2026-11-27 (llama-load), s, 2 cores" in text
    for cell in results.cells.values():
        cell["date"] = "2026-11-27"
    assert "\nMeasured 2026-11-27, s, 2 cores" in generated(results)


def test_where_another_client_is_better_stands_first(tmp_path: Path) -> None:
    """Less error or cost than ours; not what is only compared as a distribution, rounds to the same,
    or is ours with another flag."""
    results = results_of(tmp_path, "2026-11-27")

    def cell(p99_ms: float, cpu_us: float, matched: bool = True) -> dict[str, object]:
        error = {"p50": 0, "p99": p99_ms, "matched": matched}
        return {"errors": {"e2el": error}, "cpu_us_per_token": cpu_us}

    results.cells = {
        "400/llama-load": cell(-0.5, 16.9),
        "400/llama-load --client-priority normal": cell(0.1, 1),
        "400/guidellm": cell(0.1, 90, matched=False),
        "400/aiperf": cell(0.5, 16.91),
        "400/k6": cell(-0.2, 15.4),
        "64/llama-load": cell(0.1, 20),
        "64/k6": cell(0.2, 30),
    }
    text = where_others_are_better(results)
    assert text.splitlines()[2:] == [
        "- 400 streams: p99 of the E2EL error (ms): k6 0.20, llama-load 0.50; CPU (us/token): k6 15.4, llama-load 16.9"
    ]
    del results.cells["400/k6"]
    assert "No other client is better than llama-load" in where_others_are_better(
        results
    )
