"""Locust's own rules hold: its failures count, its shapes and its -t end a run, --json has stdout
for itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Finished, Simulated
from tests.swarms import own_port

Run = Callable[..., Finished]

FAILS = """
from locust import task
from llama_load import LlamaUser, ShareGPT

class Failing(LlamaUser):
    workload = ShareGPT()
    @task
    def ask(self):
        self.client.get("/health")
        self.client.get("/nonexistent")
        self.chat(max_tokens=3)
        raise RuntimeError("after every answer")
"""

SHAPED = """
from locust import LoadTestShape, task
from llama_load import LlamaUser, ShareGPT

class Chat(LlamaUser):
    workload = ShareGPT()
    @task
    def ask(self):
        self.chat(max_tokens=3)

class Two(LoadTestShape):
    def tick(self):
        return (2, 2) if self.get_run_time() < 2 else None
"""

BESIDE = """
from locust import HttpUser, constant, task
from llama_load import LlamaUser, ShareGPT

class Chat(LlamaUser):
    workload = ShareGPT()
    @task
    def ask(self):
        self.chat(max_tokens=20)

class Web(HttpUser):
    wait_time = constant(0.1)
    @task
    def look(self):
        self.client.get("/health")
"""

SELDOM = """
import gevent
from locust import task
from llama_load import LlamaUser, ShareGPT

class Seldom(LlamaUser):
    workload = ShareGPT()
    asked = False
    @task
    def ask(self):
        if not Seldom.asked and {sends}:
            Seldom.asked = True
            self.chat(max_tokens=3)
        gevent.sleep(0.1)
"""


def test_failures_of_other_requests_and_exceptions_count(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """In exit code, console, summary.json and report.md; with --json stdout is JSON alone."""
    (tmp_path / "fails.py").write_text(FAILS)
    arguments = (
        "-u",
        "2",
        "--num-prompts",
        "10",
        "--json",
        "--exit-code-on-error",
        "7",
    )
    done = run_locust(
        simulate("--interval-ms", "1").url, *arguments, locustfile=tmp_path / "fails.py"
    )
    assert done.code == 7, done.err
    assert {row["name"] for row in json.loads(done.out)} >= {"/health", "/nonexistent"}
    assert "GET /nonexistent" in done.err
    assert "exception in a task: RuntimeError: after every answer" in done.err
    summary = done.summary["llama_load"]
    rows = {row["name"]: row for row in summary["other_requests"]}
    assert rows["/health"]["failures"] == 0
    assert all(
        row["max_ms"] > row["mean_ms"] > 0
        for row in rows.values()
        if row["requests"] > 1
    )
    assert rows["/nonexistent"]["failures"] == rows["/nonexistent"]["requests"] >= 10
    assert "404" in rows["/nonexistent"]["error"]
    assert summary["task_exceptions"][0]["count"] >= 9
    assert summary["verdict"]["word"] == "NOT COMPARABLE"
    assert "exceptions in tasks of the locustfile" in summary["verdict"]["headline"]
    assert "| GET /nonexistent |" in (done.folder / "report.md").read_text()


def test_what_workers_did_besides_is_counted_together(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """Each of two processes sends its own rows; every request of either is in the sum."""
    (tmp_path / "fails.py").write_text(FAILS)
    arguments = ("--processes", "2", *own_port(), "-u", "2", "--num-prompts", "10")
    done = run_locust(
        simulate("--interval-ms", "1").url, *arguments, locustfile=tmp_path / "fails.py"
    )
    assert done.code == 1, done.err
    of_workers = [worker["others"]["requests"] for worker in done.manifest["workers"]]
    rows = done.summary["llama_load"]["other_requests"]
    assert len(of_workers) == 2
    assert sum(row["requests"] for row in rows) == sum(
        row["requests"] for rows in of_workers for row in rows
    )
    assert sum(row["requests"] for row in rows if row["name"] == "/nonexistent") >= 10


def test_a_shape_that_comes_to_its_end_ends_the_run(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """No number of requests is expected of it."""
    (tmp_path / "shaped.py").write_text(SHAPED)
    done = run_locust(
        simulate("--interval-ms", "20").url, locustfile=tmp_path / "shaped.py"
    )
    assert done.code == 0, done.out
    assert done.manifest["end"] == "time"
    assert done.manifest["num_prompts"] is None
    assert done.manifest["ramp_s"] is None and "a ramp of" not in done.out, (
        "the shape starts its users, no -r does"
    )
    assert done.summary["completed"] > 5


def test_users_beside_ours_are_no_concurrency(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """Four users, two of which send LLM requests: c=2, which is kept. The number of requests ends
    the run: Locust does not say that nothing does."""
    (tmp_path / "beside.py").write_text(BESIDE)
    arguments = ("-u", "4", "--num-prompts", "12", "--loglevel", "INFO")
    done = run_locust(
        simulate("--interval-ms", "5").url,
        *arguments,
        locustfile=tmp_path / "beside.py",
    )
    assert done.code == 0, done.err
    assert (
        " · c=2 · " in done.out
        and done.summary["max_concurrency"]
        == done.summary["llama_load"]["peak_in_flight"]
        == 2
    )
    assert done.manifest["users"] == 2 and [
        each["users"] for each in done.manifest["users_asked"]
    ] == [2]
    assert (
        "No run time limit" not in done.err
        and "The run ends after 12 requests" in done.err
    )


@pytest.mark.heavy
def test_a_time_ends_a_run_in_which_nobody_sends(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """An open loop without a request, and one in which one is sent and no more. (Closed loops:
    tests/loadgen/run/test_controller.py.) Catches a run time that nobody looks at while nothing is sent."""
    url = simulate("--interval-ms", "1").url

    def run(name: str, *arguments: str) -> Finished:
        file = tmp_path / f"{name}.py"
        file.write_text(SELDOM.format(sends=name == "one"))
        return run_locust(
            url, "-t", "1s", *arguments, locustfile=file, folder=tmp_path / name
        )

    none, one = (
        run("none", "--request-rate", "4"),
        run("one", "--request-rate", "4", "--warmup", "0"),
    )
    assert (none.code, one.code) == (2, 0)
    assert "no request was sent" in none.err
    assert "arrivals were not sent or not answered at the end of the time" in one.out


@pytest.mark.parametrize("users", ["0", "-1"])
def test_a_number_of_users_below_one_is_refused(run_locust: Run, users: str) -> None:
    """In one sentence, before anything is asked of a server."""
    done = run_locust("http://127.0.0.1:9", "-u", users)
    assert done.code == 2
    assert (
        f"-u must be a whole number of at least 1 and at most 1,000,000, got {users}"
        in done.err
    )


@pytest.mark.heavy
def test_a_threshold_ends_a_run_that_goes_wrong(
    simulate: Callable[..., Simulated], run_locust: Run
) -> None:
    """With exit code 1 and a report that names it. The warm-up does not count. Catches a threshold
    whose exit code Locust overwrites."""
    url = simulate("--interval-ms", "10", "--tokens", "5", "--fault", "status").url
    arguments = (
        "--processes",
        "2",
        *own_port(),
        "-u",
        "4",
        "-t",
        "60s",
        "--max-tokens",
        "5",
    )
    done = run_locust(
        url,
        *arguments,
        "--abort-if",
        "failure_ratio>0.5",
        "--fail-if",
        "verdict!=VALID",
    )
    assert done.code == 1, done.err
    assert "--abort-if failure_ratio>0.5: 1 after" in done.err
    assert done.manifest["end"] == "aborted"
    assert done.manifest["aborted_by"]["text"] == "failure_ratio>0.5"
    aborted, of_verdict = done.summary["llama_load"]["thresholds"][:2]
    assert (aborted["text"], aborted["value"], aborted["failed"]) == (
        "failure_ratio>0.5",
        1.0,
        True,
    )
    assert (of_verdict["text"], of_verdict["failed"]) == ("verdict!=VALID", True)
    assert done.summary["failed"] >= 20
