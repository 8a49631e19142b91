"""Runs in stages: each level exactly kept, its own warm-up and prompts, a block and a row a stage,
thresholds of stages for CI."""

from __future__ import annotations

import re
import signal
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_load.ground.bundled import bundled
from llama_load.run_folder.observed.records import Records
from llama_load.servers.serving.launch import Server
from llama_load.servers.serving.simulated import read_log
from tests.conftest import Finished, Simulated
from tests.swarms import indices_of, swarm, wait_until

Run = Callable[..., Finished]
QUICK = ("--first-token-ms", "20", "--interval-ms", "5")


def most_in_flight(records: Records) -> int:
    """By the client's stamps."""
    steps = [(int(at), 1) for at in records.instants("started_mono_ns")] + [
        (int(at), -1) for at in records.instants("ended_mono_ns")
    ]
    return int(np.cumsum([step for _, step in sorted(steps)]).max())


def test_levels_on_the_real_server(
    llama_server: Server, run_locust: Run, tmp_path: Path
) -> None:
    """Three levels with their own amounts. Every record knows its stage; prompts are fresh in each,
    also those of the warm-ups; a barrier is between; block, table, JSON and Markdown agree; a
    threshold of a stage that comes true is exit code 1 and a failure in the JUnit file."""
    junit = tmp_path / "ci" / "thresholds.xml"
    flags = [
        "--stages",
        "1:2,2:4,4:8",
        "--max-tokens",
        "4",
        "--warmup",
        "2",
        "--junit",
        str(junit),
    ]
    flags += ["--cache-prompt", "off"]  # the server has had prompts of other tests
    flags += [
        "--fail-if",
        "mean_ttft_ms{stage=4}>0.001",
        "--fail-if",
        "completed{stage=1}<2",
    ]
    done = run_locust(llama_server.url, *flags)
    assert done.code == 1, done.err + done.out
    records = done.records
    measured = records.measured()
    assert indices_of(done) == list(range(14))
    assert len(set(records.strings("prompt_sha256"))) == 14 + 6
    ended = 0
    for stage, (level, count) in enumerate([(1, 2), (2, 4), (4, 8)]):
        own = measured.where(measured.equals("stage", stage))
        assert len(own) == count
        assert most_in_flight(own) == level
        assert own.instants("started_mono_ns").min() > ended
        ended = int(own.instants("ended_mono_ns").max())
        figures = done.summary["llama_load"]["by_stage"][str(level)]
        assert figures["completed"] == count
        assert figures["users"] == figures["peak_in_flight"] == level
        assert figures["mean_ttft_ms"] == pytest.approx(own.numbers("ttft_ms").mean())
        # A dagger is there where the machine was too busy for a stage's figures to be the server's.
        assert re.search(
            rf"\| tiny \| c={level} († )?\| ",
            (done.folder / "report.md").read_text().replace("**", ""),
        )
    assert records.where(records.equals("warmup", True)).strings("stage") == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]
    titles = [line.strip("=- ") for line in done.out.splitlines() if "Stage" in line]
    assert titles == ["Stage 1", "Stage 2", "Stage 4", "Stages"]
    assert done.out.count(" Serving Benchmark Result ") == 3
    assert [line for line in done.report_lines if len(line.rstrip()) > 80] == []
    suite = ET.parse(junit).getroot()
    failed = [
        case.get("name")
        for case in suite.iter("testcase")
        if case.find("failure") is not None
    ]
    assert failed == ["mean_ttft_ms{stage=4} <= 0.001"]


def test_the_same_prompts_in_every_stage(llama_server: Server, run_locust: Run) -> None:
    """Only where no cache can know them; the report says so."""
    done = run_locust(
        llama_server.url,
        "--stages",
        "1,2",
        "--num-prompts",
        "2",
        "--stage-prompts",
        "same",
        "--cache-prompt",
        "off",
        "--max-tokens",
        "4",
    )
    assert done.code == 0, done.err + done.out
    measured = done.records.measured()
    first, second = (
        measured.where(measured.equals("stage", stage)) for stage in (0, 1)
    )
    assert sorted(first.strings("prompt_sha256")) == sorted(
        second.strings("prompt_sha256")
    )
    assert not measured.numbers("cached_tokens").any()
    assert "prompts: the same in every stage" in done.out


SPIKE = """
from locust import task
from llama_load import LlamaUser, ShareGPT, Spike

class Load(Spike):
    level, peak, time = "2", "6", "1s"

class Chat(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        self.chat(max_tokens=8)
"""


def test_a_spike_from_a_shape_in_the_locustfile(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """No pause in between; who crosses the end of a stage is in none of its figures, and
    counted."""
    (tmp_path / "spike.py").write_text(SPIKE)
    server = simulate(*QUICK)
    done = run_locust(server.url, locustfile=tmp_path / "spike.py")
    assert done.code == 0, done.err + done.out
    measured, stages = done.records.measured(), done.manifest["stages"]
    assert [stage["name"] for stage in stages] == ["2 before", "6 spike", "2 after"]
    for number, level in enumerate((2, 6, 2)):
        own = measured.where(measured.equals("stage", number))
        assert most_in_flight(own) == level
        figures = done.summary["llama_load"]["by_stage"][stages[number]["name"]]
        inside = own.where(
            own.instants("ended_mono_ns") <= stages[number]["ended_mono_ns"]
        )
        assert figures["completed"] == len(inside.ok())
        # The last stage begins when at most two requests of the spike are left in flight.
        assert figures["duration"] == pytest.approx(1) or (
            number == 2 and 0.5 < figures["duration"] < 1
        )
        assert figures["crossing"] == len(own) - len(inside)
    assert int(done.records.equals("warmup", True).sum()) == 1
    received = sorted(entry["received_mono_ns"] for entry in read_log(server.log))[1:]
    assert np.diff(received).max() < 1e9
    assert "left out of its latencies" in " ".join(done.out.split())


@pytest.mark.heavy
def test_users_in_a_long_wait_hold_up_no_stage(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """Each of them sends one request and then waits for an hour: others come in their place.
    Catches a stage that waits for users of the stage before."""
    file = tmp_path / "slow.py"
    file.write_text(
        "from locust import constant, task\nfrom llama_load import LlamaUser, ShareGPT\n\n\nclass Slow(LlamaUser):\n"
        "    workload = ShareGPT()\n    wait_time = constant(3600)\n\n    @task\n    def ask(self):\n        self.chat(max_tokens=2)\n"
    )
    done = run_locust(simulate(*QUICK).url, "--stages", "2:4,3:6", locustfile=file)
    assert done.code == 0, done.err + done.out
    assert [
        stage["completed"] for stage in done.summary["llama_load"]["by_stage"].values()
    ] == [4, 6]


@pytest.mark.heavy
def test_stages_in_a_swarm_are_as_exact(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """One request at a time over three workers, then four, then a rate: never more in flight at the
    server, and hardly a pause. Catches a level that is exact in one process and not in four."""
    server = simulate(*QUICK)
    arguments = ("--stages", "1:9,4:30,40/s:20", "--max-tokens", "4")
    with swarm(tmp_path / "s", server.url, 3, *arguments) as running:
        done = running.finish()
    assert done.code == 0, done.err + done.out
    assert indices_of(done) == list(range(59))
    stages = dict(
        zip(
            done.records.strings("request_id"),
            done.records.strings("stage"),
            strict=True,
        )
    )
    for stage, level in ((0, 1), (1, 4)):
        own = [
            entry
            for entry in read_log(server.log)
            if stages[entry["request_id"]] == stage
        ]
        steps = [(entry["received_mono_ns"], 1) for entry in own] + [
            (entry["sent_mono_ns"][-1], -1) for entry in own
        ]
        assert int(np.cumsum([step for _, step in sorted(steps)]).max()) == level
    measured = done.records.measured()
    assert len(set(measured.strings("worker"))) == 3
    assert (
        measured.where(measured.equals("stage", 0)).numbers("client_queue_ms").size == 9
    )
    assert np.isnan(
        measured.where(measured.equals("stage", 1)).numbers("client_queue_ms")
    ).all()
    rate = done.summary["llama_load"]["by_stage"]["40/s"]
    assert (rate["users"], rate["rate_rps"]) == (None, 40)


@pytest.mark.heavy
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_stage_in_which_a_worker_went_away_is_marked(
    simulate: Callable[..., Simulated], tmp_path: Path, how: signal.Signals
) -> None:
    """Only that one: the worker that is left reaches the level of the next alone. Catches a lost
    worker that marks every stage, or none."""
    server = simulate(*QUICK)
    with swarm(
        tmp_path / "s", server.url, 2, "--stages", "8:300,4:40", "--max-tokens", "20"
    ) as running:
        wait_until(server.has_answered(60))
        running.workers[0].send_signal(how)
        done = running.finish()
    assert done.code == (3 if how == signal.SIGKILL else 0)
    assert [stage["lost"] for stage in done.manifest["stages"]] == [1, 0]
    report = (running.run_dir / "report.md").read_text()
    assert [
        "†" in line
        for line in report.splitlines()
        if line.startswith("| simulated | c=")
    ] == [True, False]
    assert "† 8: 1 of the workers were lost during the stage" in report


def test_a_failing_stage_is_marked_and_never_the_best(
    simulate: Callable[..., Simulated], run_locust: Run
) -> None:
    """Every twentieth request fails: whichever stage has them stands in the table with a mark, and
    no figure of it is bold. Which one it is, and whether a busy machine spoils another, depends on
    the time: two rows without marks are ranked."""
    done = run_locust(
        *(
            simulate(*QUICK, "--fault", "cut", "--fault-every", "20").url,
            "--stages",
            "1:4,2:20,3:4",
            "--max-tokens",
            "4",
        ),
        *("--input-len", "32"),
        locustfile=bundled("locustfiles/synthetic.py"),
    )
    assert done.code == 1, done.err
    report = (done.folder / "report.md").read_text()
    rows = [line for line in report.splitlines() if line.startswith("| simulated | c=")]
    marked = [row for row in rows if "†" in row]
    assert len(rows) == 3
    assert marked
    assert not any("**" in row for row in marked)
    clean = [row for row in rows if "†" not in row and "!" not in row]
    assert len(clean) < 2 or any("**" in row for row in rows)
    assert "requests failed" in report


def test_a_run_that_is_stopped_in_a_stage_is_incomplete(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """A task that ends the run in the middle: the stages that did not end are named."""
    (tmp_path / "quits.py").write_text(
        "import gevent\nfrom locust import task\nfrom llama_load import LlamaUser\n"
        "class Quits(LlamaUser):\n    @task\n    def ask(self):\n"
        "        if self.chat('x', max_tokens=2).record.stage == 1:\n            gevent.spawn(self.environment.runner.quit)\n"
    )
    done = run_locust(
        simulate(*QUICK).url,
        "--stages",
        "1:2,2:50,4:50",
        locustfile=tmp_path / "quits.py",
    )
    assert done.code == 3, done.err + done.out
    checks: dict[str, Any] = {
        check["name"]: check
        for check in done.summary["llama_load"]["verdict"]["checks"]
    }
    assert checks["missing_stages"]["value"] == 2
    assert "stages that did not end: 2, 4" in done.out
