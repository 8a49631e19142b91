"""The referee's server, its accounts of processes, its page and its command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import requests

from benchmarks.referee.chart import chart
from benchmarks.referee.clients import CLIENTS, caches
from benchmarks.referee.matching import true_ms
from benchmarks.referee.page import CHARTS, PAGE, README, between_marks, drawn, generated, picture, readme_table
from benchmarks.referee.process_group import ProcessGroup, Usage
from benchmarks.referee.results import RESULTS, Results
from benchmarks.referee.scenarios import SCENARIOS
from benchmarks.referee.server import Schedule, compiled, read_truth, serving
from benchmarks.referee.tokenizer import make_tokenizer
from tests.conftest import REPOSITORY

needs_compiler = pytest.mark.skipif(compiled() is None, reason="no C compiler, or not Linux")
HTTP = requests.Session()


def ask(url: str, tokens: int = 5, request_id: str = "x", path: str = "chat/completions", **further: object) -> list[str]:
    """The events of one answer."""
    body = {"messages": [{"role": "user", "content": 'say "max_tokens": 9'}], "max_tokens": tokens, "stream": True} | further
    answer = HTTP.post(f"{url}/v1/{path}", json=body, headers={"X-Request-Id": request_id}, timeout=20)
    assert answer.status_code == 200, answer.text
    return [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]


@needs_compiler
def test_the_server_sends_its_schedule_and_logs_it(tmp_path: Path) -> None:
    """Tokens are never early; the log names the request, and the kernel's timestamp of the first token is not before the log's."""
    with serving(Schedule(first_token_ms=20, interval_ms=4), tmp_path / "log") as url:
        events = ask(url, 5, "one", stream_options={"include_usage": True})
        ask(url, 3, "two")
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in chunks[:-1]) == " 1 tok tok tok tok"
    assert chunks[-1]["usage"]["completion_tokens"] == 5 and chunks[-2]["choices"][0]["finish_reason"] == "length"
    truth = read_truth(tmp_path / "log")
    assert [(each["request_id"], each["outcome"], len(each["sent_mono_ns"])) for each in truth.requests] == [
        ("one", "ok", 5),
        ("two", "ok", 3),
    ]
    for entry in truth.requests:
        figures = true_ms(entry)
        assert figures["ttft"] >= 20 and figures["e2el"] >= 20 + 4 * (len(entry["sent_mono_ns"]) - 1)
        assert entry["kernel_first_mono_ns"] >= entry["sent_mono_ns"][0]
    assert truth.server["tokens"] == 8 and truth.server["cpu_s"] > 0


@needs_compiler
def test_synchronous_streams_share_their_instants(tmp_path: Path) -> None:
    """Two requests, the second some milliseconds later: the instants of their tokens differ by multiples of the interval, up to the
    lateness that the server logs of itself."""
    with serving(Schedule(first_token_ms=20, interval_ms=10, synchronous=True), tmp_path / "log") as url:
        ask(url, 5)
        ask(url, 5)
    truth = read_truth(tmp_path / "log")
    first, second = (np.array(entry["sent_mono_ns"]) / 1e6 for entry in truth.requests)
    apart = (second - first) / 10
    assert np.abs(apart - np.round(apart)).max() * 10 <= 2 * truth.server["late_p99_ns"] / 1e6 + 0.1


@needs_compiler
def test_the_server_refuses_what_it_cannot_answer(tmp_path: Path) -> None:
    with serving(Schedule(), tmp_path / "log") as url:
        assert HTTP.get(f"{url}/health", timeout=5).status_code == 200
        assert HTTP.get(f"{url}/v1/models", timeout=5).json()["data"][0]["id"] == "simulated"
        assert HTTP.get(f"{url}/metrics", timeout=5).status_code == 404
        whole = {"messages": [], "max_tokens": 5}
        assert HTTP.post(f"{url}/v1/chat/completions", json=whole, timeout=5).status_code == 400
        assert HTTP.post(f"{url}/v1/chat/completions", json={"stream": True}, timeout=5).status_code == 400
        texts = [json.loads(event)["choices"][0]["text"] for event in ask(url, 2, path="completions", prompt="a b")[:-1]]
        assert texts == [" 1", " tok"]
    assert len(read_truth(tmp_path / "log").requests) == 1


@needs_compiler
def test_a_client_that_hangs_up_is_in_the_log_as_that(tmp_path: Path) -> None:
    with serving(Schedule(first_token_ms=10, interval_ms=10), tmp_path / "log") as url:
        body = {"messages": [], "max_tokens": 1000, "stream": True}
        with requests.post(f"{url}/v1/chat/completions", json=body, stream=True, timeout=5) as answer:
            next(answer.iter_lines())
        ask(url, 5)
    outcomes = [entry["outcome"] for entry in read_truth(tmp_path / "log").requests]
    assert outcomes == ["client closed", "ok"]


def test_cpu_time_between_two_instants_is_interpolated() -> None:
    """A second of CPU in 2 s, then none: half a second in the first of them."""
    usage = Usage([(0, 0), (2_000_000_000, 1_000_000_000), (4_000_000_000, 1_000_000_000)])
    assert usage.cpu_s() == 1
    assert usage.cpu_s(0, 1_000_000_000) == 0.5
    assert usage.cpu_s(2_000_000_000, 3_000_000_000) == 0


def test_the_cpu_time_of_a_child_that_its_parent_left_is_counted(tmp_path: Path) -> None:
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
    assert not [path for path in Path("/sys/fs/cgroup").glob("*/llama-load-referee-*") if str(os.getpid()) in path.name]


def test_every_word_is_a_token() -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(make_tokenizer(caches() / "referee-tokenizer") / "tokenizer.json"))
    assert len(tokenizer.encode(" 17" + " tok" * 99).ids) == 100
    words = tokenizer.decode([9, 8, 7])
    assert tokenizer.encode(words).ids == [9, 8, 7]


def test_the_page_the_charts_and_the_table_of_the_readme_are_those_of_the_results() -> None:
    """After a measurement: python -m benchmarks.referee --render"""
    results = Results(RESULTS)
    for page, new in ((PAGE, generated(results)), (README, readme_table(results))):
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
    assert svg.count("<circle") == 2 and "144.0" in svg and "1,000,000" in svg and ">k6<" not in svg and "a &lt; b" in svg
    assert max(float(x) for x in re.findall(r'cx="([\d.]+)"', svg)) < 860


def test_a_failed_client_stands_in_the_table_with_its_reason(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.json")
    results.machine = {"date": "d", "system": "s", "cores": 2, "python": "p", "server": "server.c"}
    results.cells = {"64/guidellm": {"failed": "exit code 3 | no\nresult"}}
    assert "| guidellm | FAILED: exit code 3 / no result |" in generated(results)


def test_cells_that_were_measured_are_skipped_and_names_are_checked(tmp_path: Path) -> None:
    """Every client of this scenario has a cell, so there is nothing to do."""
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"cells": {f"1/{client.name}": {"failed": "x"} for client in CLIENTS}}))
    command = [sys.executable, "-m", "benchmarks.referee", "--results", str(path), "--scenarios"]
    before = path.read_bytes()
    done = subprocess.run([*command, "1"], capture_output=True, text=True, cwd=REPOSITORY, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "") and path.read_bytes() == before
    wrong = subprocess.run([*command, "65"], capture_output=True, text=True, cwd=REPOSITORY, check=False, timeout=60)
    assert wrong.returncode == 2 and "invalid choice: '65'" in wrong.stderr
