"""Living with Locust: own locustfiles, its statistics, its web UI, its events."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from locust.stats import RequestStats

from llama_load.loadgen.swarm.locust_stats import log_many
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import Server
from tests import web_client
from tests.conftest import (
    REPOSITORY,
    SHAREGPT,
    Finished,
    Simulated,
    environment,
    run_program,
    start_program,
)
from tests.swarms import wait_until, web_ui

Run = Callable[..., Finished]


def test_the_locustfile_of_the_guide_runs_as_it_stands(
    llama_server: Server, run_locust: Run, tmp_path: Path
) -> None:
    """Exactly the text that docs/guide.md shows."""
    guide = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from locust import .*?)```", guide, re.DOTALL)
    assert len(code.strip().splitlines()) <= 18
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    done = run_locust(
        llama_server.url,
        "-u",
        "2",
        "--num-prompts",
        "6",
        locustfile=tmp_path / "mine.py",
    )
    assert done.code in (0, 1), done.err
    assert done.summary["completed"] == 6
    assert "Traceback" not in done.err


def test_two_classes_with_own_prompts_weights_and_http_calls(
    llama_server: Server, run_locust: Run, tmp_path: Path
) -> None:
    """Counted together to exactly --num-prompts, separated by workload; self.client calls stay
    Locust's own."""
    (tmp_path / "two.py").write_text(
        """
from locust import constant, events, task
from llama_load import LlamaUser, ShareGPT

seen = []

@events.llm_request.add_listener
def on_llm_request(record, **_):
    seen.append(record)

@events.quitting.add_listener
def tell(**_):
    print("SEEN", len(seen), sum(not record.warmup for record in seen))

class Chat(LlamaUser):
    weight = 3
    workload = ShareGPT()
    @task
    def ask(self):
        self.client.get("/health")
        self.chat(max_tokens=5)

class Short(LlamaUser):
    weight = 1
    wait_time = constant(0.01)
    @task
    def ask(self):
        answer = self.chat([{"role": "user", "content": "你好"}], max_tokens=4, name="greeting")
        assert answer.ok and answer.text and answer.record.output_tokens == 4
    @task
    def go_on(self):
        assert self.complete("Once upon a time", max_tokens=3).record.endpoint == "completions"
""",
        encoding="utf-8",
    )
    stats = tmp_path / "stats"
    done = run_locust(
        llama_server.url,
        "-u",
        "4",
        "--num-prompts",
        "30",
        "--csv",
        str(stats),
        locustfile=tmp_path / "two.py",
    )
    assert done.code in (0, 1), done.err
    assert "Traceback" not in done.err
    measured = done.records.measured()
    assert sorted(measured.numbers("prompt_index")) == list(range(30))
    assert set(done.summary["llama_load"]["by_workload"]) == {"sharegpt", "Short"}
    assert {"sharegpt", "greeting"} <= set(measured.values_of("name"))
    assert "SEEN 31 30" in done.out
    requests = list(
        csv.DictReader((tmp_path / "stats_requests.csv").open(encoding="utf-8"))
    )
    assert [row["request_id"] for row in requests] == done.records.strings("request_id")
    rows = {
        (row["Name"], row["Type"]): row
        for row in csv.DictReader((tmp_path / "stats_stats.csv").open())
    }
    requests_made = sum(
        int(row["Request Count"])
        for (_, kind), row in rows.items()
        if kind in ("chat", "completions")
    )
    assert requests_made == 30
    health = int(rows["/health", "GET"]["Request Count"])
    assert int(rows["Aggregated", ""]["Request Count"]) == 30 + health
    chats = measured.where(measured.equals("name", "sharegpt"))
    assert int(rows["sharegpt", "TTFT"]["Request Count"]) == len(chats)
    assert int(rows["sharegpt", "ITL"]["Request Count"]) == len(
        chats.lists("itl_ms")[1]
    )
    assert float(rows["sharegpt", "TTFT"]["Average Response Time"]) == pytest.approx(
        chats.numbers("ttft_ms").mean(), rel=0.01
    )


def test_folding_is_the_same_as_logging_each() -> None:
    """Against Locust's own StatsEntry.log, value by value."""
    values = [0.0, 0.4, 0.5, 1.5, 2.5, 99.4, 99.6, 100, 104.9, 105, 999, 1049, 9999.9, 12345.6] * 3  # fmt: skip
    one, other = RequestStats(), RequestStats()
    for value in values:
        one.get("x", "ITL").log(value, 0)
    log_many(other.get("x", "ITL"), values)
    a, b = one.get("x", "ITL"), other.get("x", "ITL")
    names = ("num_requests", "min_response_time", "max_response_time", "response_times")
    for name in names:
        assert getattr(a, name) == getattr(b, name), name
    assert a.total_response_time == pytest.approx(b.total_response_time)
    assert sum(b.num_reqs_per_sec.values()) == len(values)
    assert other.total.num_requests == 0


def test_the_web_ui_starts_edits_shows_and_stops_runs(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Two runs from the form, each in its own folder. The second goes from two users to five: five
    are in flight, and the most that was asked for is what the run is said to be of. The button
    stops it."""
    server, port = simulate("--first-token-ms", "60", "--interval-ms", "5"), free_port()
    command = ["locust", "-f", str(SHAREGPT), *web_ui(port)]
    command += [
        "--run-dir",
        str(tmp_path / "ui"),
        "--host",
        server.url,
        "--warmup",
        "1",
    ]
    process = start_program(command, tmp_path, environment())
    ui = f"http://127.0.0.1:{port}"
    form = {"host": server.url, "max_tokens": "2"}

    def start(**fields: str) -> None:
        answer = web_client.post(f"{ui}/swarm", data=form | fields, timeout=30)
        assert answer.json()["success"]

    try:
        wait_until(lambda: web_client.get(ui, timeout=10).ok)
        start(user_count="3", spawn_rate="3", num_prompts="9")
        wait_until((tmp_path / "ui" / "summary.json").exists)
        shown = web_client.get(f"{ui}/stats/requests", timeout=30).json()["stats"]
        names = {(row["name"], row["method"]) for row in shown}
        assert {("sharegpt", kind) for kind in ("chat", "TTFT", "TPOT", "ITL")} <= names

        start(user_count="2", spawn_rate="2", num_prompts="")
        wait_until(server.has_answered(10 + 8))
        start(user_count="5", spawn_rate="5", num_prompts="")
        wait_until(server.has_answered(10 + 40))
        assert web_client.post(f"{ui}/stop", timeout=10).ok
        wait_until((tmp_path / "ui-2" / "summary.json").exists)

        wrong = {"user_count": "3", "spawn_rate": "3", "num_prompts": "nonsense"}
        web_client.post(f"{ui}/swarm", data=form | wrong, timeout=30)
        web_client.get(f"{ui}/stats/requests", timeout=30)
        assert process.poll() is None, "a wrong form field must not end the web UI"
    finally:
        process.terminate()
        out = "".join(process.communicate(timeout=20))
    first = Finished(0, out, "", tmp_path / "ui")
    assert first.summary["completed"] == 9
    assert first.manifest["users"] == 3
    second = Finished(0, out, "", tmp_path / "ui-2")
    assert second.manifest["end"] == "stopped"
    assert second.summary["llama_load"]["verdict"]["word"] != "INCOMPLETE"
    assert [asked["users"] for asked in second.manifest["users_asked"]] == [2, 5]
    assert second.manifest["users"] == second.summary["max_concurrency"] == 5
    assert second.summary["llama_load"]["peak_in_flight"] == 5
    assert "--num-prompts must be a whole number" in out
    assert "Traceback" not in out


def test_autostart_keeps_the_run_time(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """With -t 1 it ends after a second, and with --autoquit Locust too. It never ended, and a rate,
    unlike users, was refused for having no end."""
    server = simulate("--first-token-ms", "20", "--interval-ms", "5")
    command = [
        "locust",
        "-f",
        str(SHAREGPT),
        *web_ui(free_port()),
        "--run-dir",
        str(tmp_path / "run"),
    ]
    command += [
        "--host",
        server.url,
        "--autostart",
        "--autoquit",
        "0",
        "-t",
        "1s",
        "--max-tokens",
        "2",
        "--request-rate",
        "20",
    ]
    ended = run_program(command, tmp_path, environment())
    done = Finished(ended.returncode, ended.stdout, ended.stderr, tmp_path / "run")
    assert done.manifest["run_time_s"] == 1.0, done.err
    assert done.manifest["end"] in ("time", "complete")
    assert done.summary["completed"] > 0


@pytest.mark.heavy
def test_a_ramp_of_locusts_is_obeyed(
    simulate: Callable[..., Simulated], run_locust: Callable[..., Finished]
) -> None:
    """-r 2: after six seconds there are some 12 users, not the 40 of -u; the manifest has how long
    all of them take. Catches a dispatcher that starts users beside Locust's ramp."""
    server = simulate("--first-token-ms", "90", "--interval-ms", "10")
    done = run_locust(
        server.url, "-u", "40", "-r", "2", "-t", "6s", "--max-tokens", "2"
    )
    assert done.code == 0, done.err
    assert 4 <= done.summary["llama_load"]["peak_in_flight"] <= 20
    assert done.manifest["ramp_s"] == 20.0
    assert [asked["users"] for asked in done.manifest["users_asked"]] == [40]


AWKWARD = """
import gevent
from gevent.pool import Pool
from locust import LoadTestShape, constant, events, task
from locust.exception import RescheduleTask
from llama_load import LlamaUser

class Talker(LlamaUser):
    @task
    def ask(self):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "flags", "code", "sentence"),
    [
        (
            "self.chat()",
            ["--num-prompts", "3"],
            2,
            "has no workload to take a prompt from",
        ),
        (
            "self.chat('x', extra={'foo': object()})",
            ["--num-prompts", "3"],
            2,
            "cannot be sent as JSON",
        ),
        (
            "self.complete([{'role': 'user', 'content': 'x'}])",
            ["--num-prompts", "3"],
            2,
            "only be sent to the chat endpoint",
        ),
        (
            "self.chat('x', max_tokens=2); raise RuntimeError('boom')",
            ["--num-prompts", "3"],
            1,
            "",
        ),
        (
            "Pool().map(lambda n: self.chat(f'x{n}', max_tokens=2, name=7), range(3))",
            ["--num-prompts", "9"],
            0,
            "",
        ),
        (
            "Pool().map(lambda n: self.chat(f'x{n}', max_tokens=5000), range(3))",
            ["-t", "1s", "--warmup", "0"],
            3,
            "",
        ),
    ],
)
def test_awkward_tasks_end_the_run_with_every_request_on_record(
    simulate: Callable[..., Simulated],
    run_locust: Run,
    tmp_path: Path,
    body: str,
    flags: list[str],
    code: int,
    sentence: str,
) -> None:
    """None of them hangs; what was asked for is on record; what can never work is said in a
    sentence."""
    (tmp_path / "awkward.py").write_text(AWKWARD.format(body=body))
    done = run_locust(
        simulate("--interval-ms", "2").url,
        "-u",
        "2",
        *flags,
        locustfile=tmp_path / "awkward.py",
    )
    assert done.code == code, done.err
    assert sentence in done.err
    if code == 0:
        assert done.summary["completed"] == int(flags[1])
    if code == 3:
        # -u, however many each user asks for at once
        assert done.summary["llama_load"]["cancelled"] == 2


def test_flags_become_values_once_before_a_headless_run(
    run_locust: Run, tmp_path: Path
) -> None:
    (tmp_path / "counted.py").write_text(
        AWKWARD.format(body="self.chat('x')")
        + """
import sys
from llama_load.loadgen.swarm import lifecycle

read = lifecycle.read_options
lifecycle.read_options = lambda namespace: print("flags are read", file=sys.stderr) or read(namespace)
"""
    )
    done = run_locust(
        "http://127.0.0.1:1", "--num-prompts", "3", locustfile=tmp_path / "counted.py"
    )
    assert done.code == 2
    assert "cannot reach" in done.err
    assert done.err.count("flags are read") == 1


def test_an_impatient_locustfile_makes_failures_not_repeats(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """A gevent.Timeout of the user's own around a slow answer is a failure of the class
    client_timeout."""
    body = "with gevent.Timeout(0.1, False): self.chat('x', max_tokens=2)"
    (tmp_path / "awkward.py").write_text(AWKWARD.format(body=body))
    done = run_locust(
        simulate("--first-token-ms", "500").url,
        "--num-prompts",
        "4",
        locustfile=tmp_path / "awkward.py",
    )
    assert done.code == 1, done.err
    assert [
        (f["kind"], f["count"]) for f in done.summary["llama_load"]["failures"]
    ] == [("client_timeout", 4)]


def test_a_listener_that_raises_stops_neither_the_barrier_nor_the_end(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """Locust lets RescheduleTask out of its event hooks on purpose."""
    text = AWKWARD.format(body="self.chat('x', max_tokens=2)") + (
        "\n@events.llm_request.add_listener\ndef on_request(record, **_):\n    raise RescheduleTask\n"
    )
    (tmp_path / "awkward.py").write_text(text)
    done = run_locust(
        simulate().url,
        "-u",
        "2",
        "--num-prompts",
        "4",
        locustfile=tmp_path / "awkward.py",
    )
    assert (done.code, done.summary["completed"]) == (0, 4), done.err


@pytest.mark.heavy
def test_a_shape_that_ends_the_run_while_csv_is_written_leaves_a_report(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """Users ramped down in mid-request give their prompts back; the end comes from the last record,
    then Locust quits again. Catches an end that Locust's own writer of CSV runs into."""
    text = AWKWARD.format(body="self.chat('x', max_tokens=20)") + (
        "\nclass Shape(LoadTestShape):\n    def tick(self):\n        t = self.get_run_time()\n"
        "        return (4, 4) if t < 2 else (1, 4) if t < 30 else None\n"
    )
    (tmp_path / "awkward.py").write_text(text)
    csv_flags = ("--csv", str(tmp_path / "stats"))
    done = run_locust(
        simulate().url,
        "--num-prompts",
        "20",
        *csv_flags,
        locustfile=tmp_path / "awkward.py",
    )
    assert done.code == 0, done.err
    assert done.summary["completed"] == 20
    assert sorted(set(done.records.measured().numbers("prompt_index"))) == list(
        range(20)
    )
