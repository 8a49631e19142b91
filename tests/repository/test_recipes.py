"""The recipes of docs/architecture.md, followed to the letter in a copy of the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llama_load.run_folder import RunWriter
from llama_load.run_folder.observed.record import RequestRecord
from tests.conftest import REPOSITORY, Finished, Simulated
from tests.foreign_readers import finished_run
from tests.json_server import json_server, streamed
from tests.make_records import manifest, record
from tests.recipes import (
    CHECK,
    COMMAND,
    EXPORT,
    FLAG,
    METRIC,
    NEW_API,
    NEW_SERVER,
    TABLE,
    TOPIC,
    WORKLOAD,
    copy_of_package,
    follow,
    recipe,
)

pytestmark = pytest.mark.heavy

Run = Callable[..., Finished]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy that goes before the installed package on PYTHONPATH."""
    return copy_of_package(tmp_path)


def test_a_new_metric_takes_four_files(
    simulate: Callable[..., Simulated], run_locust: Run, package: Path
) -> None:
    """A column, a function, its call and a row: block, summary.json, thresholds, objectives, flags'
    help and docs have it. Catches a place that the recipe for a metric does not name."""
    touched = follow(recipe(METRIC), package)
    assert len(touched) == 4
    server = simulate("--first-token-ms", "40", "--interval-ms", "1")
    arguments = [
        "-u",
        "1",
        "--num-prompts",
        "3",
        "--warmup",
        "0",
        "--percentile-metrics",
        "sent_ttft",
        "--goodput",
        "sent_ttft:9999",
    ]
    done = run_locust(
        server.url,
        *arguments,
        "--fail-if",
        "mean_sent_ttft_ms>1",
        PYTHONPATH=str(package),
    )
    assert done.code == 1, done.err  # the threshold
    assert 1 < done.summary["mean_sent_ttft_ms"] <= done.summary["mean_ttft_ms"]
    assert done.summary["count_sent_ttft"] == 3
    assert done.summary["request_goodput"] == done.summary["request_throughput"]
    assert "-Time to First Token after Sending-" in done.out
    assert "Mean TTFT after sending (ms):" in done.out
    assert "✗ mean_sent_ttft_ms <= 1:" in done.out
    code = "from scripts.make_docs import flags_page, metrics_page; print(flags_page(), metrics_page())"
    path = os.pathsep.join((str(package), str(REPOSITORY)))
    pages = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=package,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert (
        "| TTFT after sending | `sent_ttft` | Time to first token after sending, ms: first token - sent."
        in pages.stdout
    ), pages.stderr
    assert "latencies in the block: sent_ttft,ttft" in pages.stdout


def test_a_new_topic_takes_one_file_and_one_row(
    simulate: Callable[..., Simulated], run_locust: Run, package: Path
) -> None:
    """Block, summary.json, report.md and report.html have it, in Chinese, too. Catches a place that
    the recipe for a topic does not name."""
    touched = follow(recipe(TOPIC), package)
    assert touched == [
        "llama_load/analysis/topics/longest_answers.py",
        "llama_load/analysis/topics/__init__.py",
    ]
    server = simulate("--first-token-ms", "5", "--interval-ms", "1")
    arguments = ["-u", "2", "--num-prompts", "6", "--warmup", "0", "--max-tokens", "9"]
    arguments += ["--lang", "zh"]
    with_page = {"LLAMA_LOAD_NO_REPORT_HTML": "false", "PYTHONPATH": str(package)}
    done = run_locust(server.url, *arguments, **with_page)
    longest = done.summary["llama_load"]["longest_answers"]
    assert list(longest.values()) == [9, 9, 9], done.err
    assert "Longest Answers" in done.out
    for page in ("report.md", "report.html"):
        text = (done.folder / page).read_text(encoding="utf-8")
        assert "最长的回答" in text
        assert next(iter(longest)) in text


def test_a_new_workload_takes_three_files(
    simulate: Callable[..., Simulated], run_locust: Run, package: Path
) -> None:
    """A class, its name in the package's face and a locustfile; it is planned, sent and reported.
    Catches a place that the recipe for a workload does not name."""
    touched = follow(recipe(WORKLOAD), package)
    assert touched == [
        "llama_load/loadgen/workloads/greetings.py",
        "llama_load/__init__.py",
        "locustfiles/greetings.py",
    ]
    server = simulate("--first-token-ms", "5", "--interval-ms", "1")
    arguments = ["-u", "2", "--num-prompts", "6", "--save-texts", "--seed", "0"]
    done = run_locust(
        server.url,
        *arguments,
        locustfile=package / touched[-1],
        PYTHONPATH=str(package),
    )
    assert done.summary["completed"] == 6, done.err
    assert done.manifest["workload"] == "greetings"
    sent = sorted(
        row["prompt_text"] for row in done.records.measured().table.to_pylist()
    )
    assert sent == [f"Number {number}: good morning!" for number in range(6)]


def test_a_new_flag_takes_at_most_three_files(run_locust: Run, package: Path) -> None:
    """Its row, its value and the place that uses it: here it comes to the server, from the command
    line and the environment. Catches a place that the recipe for a flag does not name."""
    touched = follow(recipe(FLAG), package)
    assert (
        touched[0] == "llama_load/loadgen/options/sections/servers_section.py"
        and len(touched) <= 3
    )
    with openai_server() as server:
        arguments = ["-u", "1", "--num-prompts", "2", "--warmup", "0"]
        done = run_locust(
            server.url, *arguments, "--top-k", "3", PYTHONPATH=str(package)
        )
        assert done.summary["completed"] == 2, done.err
        assert [
            body["top_k"] for path, body in server.bodies if path.startswith("/v1/chat")
        ] == [3, 3]
        assert done.manifest["options"]["top_k"] == "3"
        wrong = run_locust(
            server.url, *arguments, PYTHONPATH=str(package), LLAMA_LOAD_TOP_K="none"
        )
        assert "--top-k must be a whole number of at least 1, got 'none'" in wrong.err


PARROT = """#!{python}
import http.server, sys
http.server.BaseHTTPRequestHandler.do_GET = lambda answer: answer.send_response_only(200) or answer.end_headers()
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), http.server.BaseHTTPRequestHandler).serve_forever()
"""
READ = """
from llama_load.lab.sweep.short_form import plan_document
from llama_load.servers.serving.command_flags import read_command
from llama_load.servers.serving.describe import LOG_FACTS
from llama_load.servers.kinds.llama_cpp_log import read_log
print(read_command(["parrot", "--heads", "3"])["slots"])
print(read_log(["parrot version v7"], LOG_FACTS).facts["build"])
print(plan_document(["parrot --heads 3"], [], [], 1)["servers"])
"""


def parrot_serves(package: Path, folder: Path) -> None:
    """`llama-load serve` and plans of sweeps start it, and its log and flags are read."""
    program = folder / "parrot"
    program.write_text(PARROT.format(python=sys.executable))
    program.chmod(0o755)
    command = [
        sys.executable,
        "-m",
        "llama_load.cli.main",
        "serve",
        "parrot",
        "--program",
        str(program),
        "--port",
        "0",
    ]
    copied: Any = {
        "env": os.environ | {"PYTHONPATH": str(package)},
        "cwd": package,
        "text": True,
        "stdout": subprocess.PIPE,
    }
    with subprocess.Popen(
        [*command, "--", "--heads", "3"], stderr=subprocess.STDOUT, **copied
    ) as server:
        assert server.stdout is not None
        first = server.stdout.readline()
        server.terminate()
    assert "parrot is ready at" in first
    read = subprocess.run(
        [sys.executable, "-c", READ], check=True, **copied
    ).stdout.splitlines()
    assert read == [
        "3",
        "v7",
        "{'parrot': {'parrot': {'program': 'parrot', 'args': ['--heads 3']}}}",
    ]


def test_a_new_server_takes_one_file_and_one_row(
    run_locust: Run, package: Path, tmp_path: Path
) -> None:
    """It is detected, offered by --backend, its note shown, its tokens and counters read; and it is
    started. Catches a place that the recipe for a server does not name."""
    touched = follow(recipe(NEW_SERVER), package)
    assert touched == [
        "llama_load/servers/kinds/parrot_kind.py",
        "llama_load/servers/kinds/__init__.py",
    ]
    answers = {
        "/v1/models": {"data": [{"id": "m", "owned_by": "parrot"}]},
        "/v1/chat/completions": streamed(EVENT),
        "/count": lambda body: {"count": len(body["text"]) // 4},
        "/metrics": "# TYPE parrot_heard_total counter\nparrot_heard_total 7\n",
    }
    with json_server(answers) as server:
        done = run_locust(
            server.url,
            "-u",
            "1",
            "--num-prompts",
            "2",
            "--warmup",
            "0",
            PYTHONPATH=str(package),
        )
        assert done.summary["completed"] == 2, done.err
        assert (
            done.manifest["backend"] == "parrot"
            and done.manifest["tokenizer"] == "server"
        )
        assert "as many as it has heads" in str(done.manifest["preflight"])
        assert done.manifest["counters"]["prompt_tokens"] == 0
        wrong = run_locust(server.url, "--backend", "cockatoo", PYTHONPATH=str(package))
        assert "'tgi', 'parrot', 'openai'" in wrong.err
    parrot_serves(package, tmp_path)


TRANSCRIBE = """
from locust import task
from llama_load import LlamaUser

class Speech(LlamaUser):
    @task
    def transcribe(self):
        assert self.chat("{path}").text == "good day"
"""


def test_a_new_api_takes_one_file_and_one_row(
    run_locust: Run, package: Path, tmp_path: Path
) -> None:
    """A binary body: the file arrives as it is, in a form, and the answer's text is read. Catches a
    place that the recipe for an API does not name."""
    touched = follow(recipe(NEW_API), package)
    assert touched == [
        "llama_load/servers/apis/transcriptions_api.py",
        "llama_load/servers/apis/__init__.py",
    ]
    sound, locustfile = tmp_path / "speech.wav", tmp_path / "speech.py"
    sound.write_bytes(bytes(range(256)))
    locustfile.write_text(TRANSCRIBE.format(path=sound))
    models = {"data": [{"id": "m", "owned_by": "somebody"}]}
    with json_server(
        {"/v1/models": models, "/v1/audio/transcriptions": {"text": "good day"}}
    ) as server:
        arguments = [
            "-u",
            "1",
            "--num-prompts",
            "2",
            "--warmup",
            "0",
            "--endpoint",
            "transcriptions",
        ]
        done = run_locust(
            server.url, *arguments, locustfile=locustfile, PYTHONPATH=str(package)
        )
        assert done.summary["completed"] == 2, done.err
        sent = [
            body for path, body in server.bodies if path == "/v1/audio/transcriptions"
        ]
    assert len(sent) == 2 and all(
        bytes(range(256)) in body and b'filename="speech.wav"' in body for body in sent
    )
    assert set(done.records.measured().strings("endpoint")) == {"transcriptions"}


EVENT = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}


@contextmanager
def openai_server() -> Iterator[Any]:
    """One model, and answers of one token."""
    models = {
        "object": "list",
        "data": [{"id": "m", "object": "model", "owned_by": "somebody"}],
    }
    with json_server(
        {"/v1/models": models, "/v1/chat/completions": streamed(EVENT)}
    ) as server:
        yield server


def reported(tmp_path: Path, package: Path, *records: RequestRecord) -> Path:
    """A run of these records, reported by the copy in Chinese."""
    run = tmp_path / "run"
    writer = RunWriter(run, manifest(num_prompts=len(records)))
    writer.append(records)
    writer.finish()
    writer.release()
    done = of_copy(package, tmp_path, "report", "run", "--lang", "zh")
    assert not done.returncode, done.stderr
    return run


def of_copy(
    package: Path, folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """The command of the copy."""
    return subprocess.run(
        [sys.executable, "-m", "llama_load.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(package)},
    )


def test_new_checks_and_tables_take_one_file_and_a_row_for_each_place(
    tmp_path: Path, package: Path
) -> None:
    """The check is in the verdict and in all reports, the table in report.md. Catches a place that
    the recipes for checks and tables do not name."""
    assert follow(recipe(CHECK), package) == [
        "llama_load/analysis/checks/connecting.py",
        "llama_load/analysis/figures/check_limits.py",
        "llama_load/analysis/checks/verdict.py",
    ]
    assert follow(recipe(TABLE), package) == [
        "llama_load/analysis/reports/worker_table.py",
        "llama_load/analysis/reports/write.py",
    ]
    slow = record(1, start_ms=150, connect_ms=1200.0)
    run = reported(tmp_path, package, record(0), slow)

    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    checks = {row["name"]: row for row in summary["llama_load"]["verdict"]["checks"]}
    found = checks["slow_connect_ratio"]
    assert (found["value"], found["ok"]) == (0.5, False)
    sentence = "1 of 2 connections took 1 s or more to open"
    markdown = (run / "report.md").read_text(encoding="utf-8")
    assert sentence in (run / "summary.txt").read_text(encoding="utf-8")
    assert sentence in markdown
    assert "| local | 2 | 100.00 |" in markdown


def test_a_new_command_takes_one_file_and_one_row(
    tmp_path: Path, package: Path
) -> None:
    """Catches a place that the recipe for a command does not name."""
    assert follow(recipe(COMMAND), package) == [
        "llama_load/cli/words_command.py",
        "llama_load/cli/main.py",
    ]
    run = tmp_path / "run"
    run.mkdir()
    finished_run(run)
    assert of_copy(package, tmp_path, "words", "run").stdout.isupper()
    assert "words" in of_copy(package, tmp_path, "more").stdout


def test_a_new_format_takes_one_file_and_one_row(tmp_path: Path, package: Path) -> None:
    """`report` has it among its formats, and writes it. Catches a place that the recipe for a
    format does not name."""
    touched = follow(recipe(EXPORT), package)
    assert touched == [
        "llama_load/analysis/reports/exports/slack.py",
        "llama_load/analysis/reports/exports/__init__.py",
    ]
    run = tmp_path / "run"
    run.mkdir()
    finished_run(run)
    done = of_copy(package, tmp_path, "report", "run", "--format", "slack")
    message = json.loads(done.stdout or "null")
    assert ": 2 requests answered, median TTFT " in message["text"], done.stderr
