"""Many workers add up to one client, and lose nothing: real masters and workers on this machine."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import requests

from llama_load import __version__
from llama_load.run_folder.run_journal import read_run_journal
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.simulated import read_log
from tests import web_client
from tests.conftest import (
    SHAREGPT,
    Finished,
    Simulated,
    environment,
    locust_command,
    start_program,
)
from tests.scripted_server import ScriptedServer
from tests.swarms import (
    Swarm,
    indices_of,
    own_port,
    prompts_of,
    slow_link,
    swarm,
    wait_until,
)

QUICK = ("--first-token-ms", "20", "--interval-ms", "4", "--tokens", "12")


@pytest.mark.heavy
@pytest.mark.parametrize("workers", [2, 5])
def test_the_same_prompts_at_any_number_of_workers(
    run_locust: Callable[..., Finished],
    simulate: Callable[..., Simulated],
    tmp_path: Path,
    workers: int,
) -> None:
    """60 requests and 3 of warm-up whatever the number of workers; the summary is numpy's on the
    union of all records. Catches a prompt that is sent twice or never with more workers."""
    server = simulate(*QUICK)
    arguments = [
        "--num-prompts",
        "60",
        "-u",
        "10",
        "--warmup",
        "3",
        "--max-tokens",
        "12",
        "--seed",
        "5",
    ]
    arguments += ["--metric-percentiles", "50,90"]
    alone = run_locust(server.url, *arguments, folder=tmp_path / "alone")
    expected = prompts_of(alone)
    assert [index for index, _ in expected] == list(range(60))
    with swarm(tmp_path / str(workers), server.url, workers, *arguments) as running:
        done = running.finish()
    assert done.code == 0, done.err
    assert prompts_of(done) == expected
    records = done.records
    assert int(records.equals("warmup", True).sum()) == 3
    measured = records.measured()
    assert len(set(measured.strings("worker"))) == workers
    assert done.summary["completed"] == 60
    for p in (50, 90):
        assert done.summary[f"p{p}_ttft_ms"] == pytest.approx(
            np.percentile(measured.numbers("ttft_ms"), p)
        )
        assert done.summary[f"p{p}_itl_ms"] == pytest.approx(
            np.percentile(measured.lists("itl_ms")[1], p), rel=1e-5
        )
    # The barrier: nothing is measured before the warm-up is over, on one time axis (give or take
    # its uncertainty).
    warmup = records.where(records.equals("warmup", True))
    uncertainty = (
        max(worker["clock_uncertainty_ms"] for worker in done.manifest["workers"]) * 2e6
    )
    assert (
        measured.instants("started_mono_ns").min()
        >= warmup.instants("ended_mono_ns").max() - uncertainty
    )
    assert done.summary["llama_load"]["peak_in_flight"] <= 10
    assert not list((tmp_path / str(workers)).glob("worker-*/runs/spool-*"))


@pytest.mark.heavy
def test_fewer_users_than_workers(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Catches a worker without users that holds up the end."""
    with swarm(
        tmp_path / "s",
        simulate(*QUICK).url,
        3,
        "--num-prompts",
        "9",
        "-u",
        "2",
        "--max-tokens",
        "4",
    ) as running:
        done = running.finish()
    assert done.code == 0, done.err
    assert indices_of(done) == list(range(9))


WATCHED = """
import json, os, sys, time
import gevent
from locust import events, runners, task
from llama_load import LlamaUser, ShareGPT


class Chat(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        self.chat()


def watch():
    # CPU time, which other processes cannot take from this one's loop
    while True:
        since = time.thread_time()
        gevent.sleep(0.005)
        found["blocked_ms"] = max(found["blocked_ms"], (time.thread_time() - since) * 1e3)


def begin(self, *arguments, **more):
    found["before"] = set(sys.modules)
    gevent.spawn(watch)
    connect(self, *arguments, **more)  # says that it is ready


found = {"blocked_ms": 0.0, "before": set()}
connect, runners.WorkerRunner.__init__ = runners.WorkerRunner.__init__, begin


@events.quitting.add_listener
def report(environment, **_):
    kind = type(environment.runner).__name__
    found["imported"] = sorted(set(sys.modules) - found.pop("before"))
    with open(f"{kind}-{os.getpid()}.json", "w") as file:
        json.dump(found | {"pandas": "pandas" in sys.modules}, file)
"""


@pytest.mark.portable
def test_processes_of_one_command(
    run_locust: Callable[..., Finished],
    simulate: Callable[..., Simulated],
    tmp_path: Path,
) -> None:
    """Every prompt is sent once, by both. Nothing holds up a worker's loop for 100 ms, from the
    moment it says that it is ready: above all it imports nothing heavy there. Nobody imports
    pandas."""
    file = tmp_path / "watched.py"
    file.write_text(WATCHED)
    arguments = [
        "--processes",
        "2",
        *own_port(),
        "--num-prompts",
        "40",
        "-u",
        "20",
        "--max-tokens",
        "4",
    ]
    done = run_locust(simulate(*QUICK).url, *arguments, locustfile=file)
    assert done.code == 0, done.err
    assert indices_of(done) == list(range(40))
    assert len(set(done.records.measured().strings("worker"))) == 2
    (master,) = (
        json.loads(each.read_text()) for each in tmp_path.glob("MasterRunner-*.json")
    )
    workers = [
        json.loads(each.read_text()) for each in tmp_path.glob("WorkerRunner-*.json")
    ]
    assert len(workers) == 2
    assert not any(each["pandas"] for each in (master, *workers))
    for each in workers:
        assert 0 < each["blocked_ms"] < 100
        assert not [
            name
            for name in each["imported"]
            if name.split(".")[0]
            in ("numpy", "pyarrow", "rich", "locust", "llama_load")
        ]


@pytest.mark.heavy
def test_a_master_whose_workers_do_not_come(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Exit code 3 and a sentence. (Locust's own limit ends with 1, which is that of a failed
    threshold.) Catches Locust's own exit code, which is that of a failed threshold."""
    arguments = ("--num-prompts", "5", "--expect-workers-max-wait", "4")
    with swarm(
        tmp_path / "s", simulate(*QUICK).url, 1, *arguments, expect=2
    ) as running:
        done = running.finish()
    assert done.code == 3
    assert (
        "1 of 2 workers connected within 4 s (--expect-workers-max-wait); nothing was sent"
        in done.err
    )
    assert "Traceback" not in done.err


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_late_workers_get_work(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Two join in the middle of a run, one after the other, one is killed, a third one joins: each
    gets users, and so do those that are left. (Locust moves users once.) What was not lost with the
    killed one is sent once. Catches users that stay where Locust put them once."""
    server = simulate("--first-token-ms", "50", "--interval-ms", "20")

    def on_record(since: int = 0) -> set[str]:
        return set(
            read_run_journal(running.run_dir).table()["worker"].to_pylist()[since:]
        )

    with swarm(
        tmp_path / "s",
        server.url,
        1,
        "--num-prompts",
        "100000",
        "-u",
        "6",
        "--max-tokens",
        "10",
    ) as running:
        for workers in (1, 2, 3):
            wait_until(
                lambda workers=workers: (
                    running.has_records() and len(on_record()) == workers
                )
            )
            running.add_worker()
        wait_until(lambda: len(on_record()) == 4)
        running.workers[1].kill()
        running.add_worker()
        wait_until(lambda: len(on_record()) == 5)
        running.workers[0].terminate()  # the first one had all users at the start
        running.workers[0].wait()
        since = len(read_run_journal(running.run_dir).table())
        wait_until(lambda: len(on_record(since)) == 3)
        running.master.terminate()
        done = running.finish()
    (lost,) = done.manifest["lost"]
    ended = indices_of(done)
    assert len(ended) == len(set(ended))
    assert not set(ended) & set(lost["possibly_sent"])
    assert len(unrecorded(server, done)) <= len(lost["possibly_sent"])


@pytest.mark.heavy
def test_a_worker_that_is_killed(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """kill -9 of one of two: the other sends the rest, soon; what the dead one may have sent is
    named; INCOMPLETE, exit code 3. Catches requests of a killed process that are lost without a
    word."""
    server = simulate("--first-token-ms", "100", "--interval-ms", "20")
    arguments = ("--num-prompts", "60", "-u", "6", "--max-tokens", "30")
    with swarm(tmp_path / "s", server.url, 2, *arguments) as running:
        wait_until(server.has_answered(8))
        running.workers[0].kill()
        killed_ns = time.monotonic_ns()
        done = running.finish()
    assert done.code == 3, done.err
    (lost,) = done.manifest["lost"]
    ended = indices_of(done)
    assert len(ended) == len(set(ended))
    assert sorted(ended + lost["possibly_sent"]) == list(range(60))
    assert 1 <= len(lost["possibly_sent"]) <= 6
    assert len(unrecorded(server, done)) <= len(lost["possibly_sent"])
    assert "Verdict:                                 INCOMPLETE" in done.out
    assert (
        f"was lost with {len(lost['possibly_sent'])} requests that it may have sent"
        in " ".join(done.out.split())
    )
    assert "its unsent requests go to other workers" in done.err
    assert done.records.instants("started_mono_ns").max() > killed_ns


@pytest.mark.heavy
def test_a_remote_worker_that_is_killed(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """kill -9 of a worker in another PID namespace, which is another machine to the master: its
    connections are closed, and new ones do not come. A worker that is only cut off would be given
    up as silent, after 30 s. Catches a worker on another machine whose closed connection nobody
    notices."""
    server = simulate("--first-token-ms", "100", "--interval-ms", "20")
    arguments = ("--num-prompts", "60", "-u", "6", "--max-tokens", "30")
    with swarm(tmp_path / "s", server.url, 1, *arguments, expect=2) as running:
        remote = running.add_worker("unshare", "--pid", "--fork", "--kill-child")
        time.sleep(1)  # unshare ends soon where it may not
        if remote.poll() is not None:
            pytest.skip(f"no PID namespaces here: {running.log(1)}")
        wait_until(server.has_answered(8))
        remote.kill()
        done = running.finish()
    assert done.code == 3, done.err
    assert (
        "has closed its connections; requests that it may have sent are not repeated"
        in done.err
    )
    (lost,) = done.manifest["lost"]
    assert sorted(indices_of(done) + lost["possibly_sent"]) == list(range(60))


# Makes a master that takes 6 ms to read a record.
SLOW_MASTER = """
import time
from llama_load.loadgen.swarm import ingest

read = ingest.read_batch


def slowly(data):
    batch = read(data)
    until = time.monotonic() + 0.006 * batch.num_rows
    while time.monotonic() < until:
        pass
    return batch


ingest.read_batch = slowly
"""


@pytest.mark.heavy
@pytest.mark.parametrize("end", ["time", "interrupted"])
def test_a_master_that_cannot_keep_up_catches_up(
    simulate: Callable[..., Simulated], tmp_path: Path, end: str
) -> None:
    """Twice as many records as it can read: it goes on leasing, measures clocks, hears SIGTERM,
    shows how far it is behind, and loses nothing. Catches a master that stops leasing under real
    records."""
    server = simulate("--first-token-ms", "60", "--interval-ms", "1")
    locustfile = tmp_path / "slow.py"
    locustfile.write_text(SHAREGPT.read_text() + SLOW_MASTER)
    port = free_port()
    arguments = (
        "-u",
        "24",
        "-t",
        "8s" if end == "time" else "60s",
        "--max-tokens",
        "4",
        "--metrics-port",
        str(port),
    )
    lags = []
    with swarm(
        tmp_path / "s", server.url, 2, *arguments, locustfile=locustfile
    ) as running:
        wait_until(running.has_records)
        stop_s = time.monotonic() + 5
        while running.master.poll() is None and len(lags) < 200:
            if end == "interrupted" and time.monotonic() > stop_s:
                running.master.terminate()
                break
            with suppress(requests.RequestException):
                text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
                lags += [
                    float(value)
                    for value in re.findall(
                        r"^llama_load_master_lag_seconds (\S+)$", text, re.MULTILINE
                    )
                ]
            time.sleep(0.2)  # between two looks
        done = running.finish()
    assert done.manifest["end"] == end, done.err
    assert not done.manifest["lost"]
    assert unrecorded(server, done) == set()
    assert len(done.records.measured()) > 100
    assert (
        max(worker["clock_uncertainty_ms"] for worker in done.manifest["workers"]) < 100
    )
    assert max(lags) > 0.2  # half a second of records, and more on a busy machine
    assert "records were on the master's disk within" in " ".join(done.out.split())
    assert not list((tmp_path / "s").glob("worker-*/runs/spool-*"))


@pytest.mark.heavy
def test_a_worker_that_is_killed_among_conversations(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Turns of 25 ms: several end and begin within the time in which workers send their records.
    All that reached the server are on record or named. Catches turns between two batches of a
    killed worker that nobody names."""
    server = simulate("--first-token-ms", "15", "--interval-ms", "5")
    arguments = ("--num-prompts", "600", "-u", "8", "--max-tokens", "3", "--turns", "8")
    with swarm(tmp_path / "s", server.url, 2, *arguments) as running:
        wait_until(server.has_answered(60))
        running.workers[0].kill()
        done = running.finish()
    (lost,) = done.manifest["lost"]
    assert sorted(indices_of(done) + lost["possibly_sent"]) == list(range(600))
    assert len(unrecorded(server, done)) <= len(lost["possibly_sent"])


@pytest.mark.heavy
def test_a_worker_that_is_killed_in_the_warm_up(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """What it may have sent is named as what it is, and the measurement is whole. Catches a loss in
    the warm-up that spoils the measurement."""
    server = simulate("--first-token-ms", "3000", "--interval-ms", "5")
    arguments = ("--num-prompts", "8", "-u", "4", "--max-tokens", "4", "--warmup", "4")
    with swarm(tmp_path / "s", server.url, 2, *arguments) as running:
        wait_until(lambda: server.clients() == 4)
        time.sleep(0.5)  # in the middle of the warm-up
        running.workers[0].kill()
        done = running.finish()
    (lost,) = done.manifest["lost"]
    assert lost["possibly_sent"] == []
    assert len(lost["possibly_sent_warmup"]) == len(unrecorded(server, done)) > 0
    assert indices_of(done) == list(range(8))


def unrecorded(server: Simulated, done: Finished) -> set[str]:
    """Requests that reached the server and are not in the records."""
    return {entry["request_id"] for entry in read_log(server.log)} - set(
        done.records.strings("request_id")
    )


def test_a_master_that_is_killed_leaves_everything_acknowledged(
    simulate: Callable[..., Simulated],
    tmp_path: Path,
    run_report: Callable[..., Finished],
) -> None:
    """Its workers see that its process has ended, spool their records and end, too. With the spools
    every request that reached the server is on record."""
    server = simulate(*QUICK)
    with swarm(
        tmp_path / "s",
        server.url,
        2,
        "--num-prompts",
        "5000",
        "-u",
        "6",
        "--max-tokens",
        "12",
    ) as running:
        wait_until(lambda: running.records_on_disk() > 30_000)
        running.master.kill()
        running.master.wait()
        wait_until(
            lambda: all(worker.poll() is not None for worker in running.workers), 15
        )
        assert [worker.returncode for worker in running.workers] == [1, 1]
        assert "the master is gone" in running.log(0)
        assert "Traceback" not in running.log(0) + running.log(1)
        done = run_report(running.run_dir)
        assert done.code == 3
        assert len(done.records.ok()) > 5
        assert "INCOMPLETE" in done.out
        spools = sorted((tmp_path / "s").glob("worker-*/runs/spool-*"))
        done = run_report(
            running.run_dir,
            *(word for spool in spools for word in ("--add", str(spool))),
        )
    assert unrecorded(server, done) == set()


def test_workers_of_processes_end_with_their_master(tmp_path: Path) -> None:
    """Also before there is a run: the master is killed in its preflight, which a server that
    answers nothing holds up. No worker has heard of its master then, and would wait for a
    minute."""
    workers: list[psutil.Process] = []
    with ScriptedServer(["hold"]) as server:
        command = locust_command(
            server.url, tmp_path / "run", "--processes", "2", *own_port()
        )
        master = start_program(command[2:], tmp_path, environment())
        try:
            wait_until(lambda: server.connections > 0)
            workers = psutil.Process(master.pid).children()
            assert len(workers) == 2
            master.kill()
            master.wait()
            _, left = psutil.wait_procs(workers, timeout=15)
            assert not left
        finally:
            for process in [master, *workers]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


@pytest.mark.parametrize("end", ["-t", pytest.param("Ctrl-C", marks=pytest.mark.heavy)])
def test_requests_in_flight_at_the_end_are_on_record(
    simulate: Callable[..., Simulated], tmp_path: Path, end: str
) -> None:
    """Answers take 30 s; after 3 s the run ends. Each of 4 users leaves a cancelled record, and
    nothing hangs."""
    server = simulate("--first-token-ms", "100", "--interval-ms", "300")
    arguments = [
        "--num-prompts",
        "50",
        "-u",
        "4",
        "--max-tokens",
        "100",
        "--warmup",
        "0",
    ]
    if end == "-t":
        arguments += ["-t", "3s"]
    with swarm(tmp_path / "s", server.url, 2, *arguments) as running:
        if end == "Ctrl-C":
            wait_until((running.run_dir / "run.json").exists)
            time.sleep(4)  # answers are under way
            running.master.send_signal(signal.SIGINT)
        done = running.finish(40)
    assert done.code == 3, done.err  # nothing ended within the time
    assert done.manifest["end"] == ("time" if end == "-t" else "interrupted")
    assert len(done.records.cancelled()) == 4
    assert not done.manifest["lost"]


# A worker whose environment names them is of another version, or has other messages.
OTHER = """
import os
from llama_load.loadgen.swarm import messages, worker

worker.__version__ = os.environ.get("OTHER_VERSION", worker.__version__)
if "OTHER_MESSAGES" in os.environ:
    messages.fingerprint = lambda: "other"
"""
OTHERS = [
    (
        {"OTHER_VERSION": "0.0.9"},
        f"runs llama-load 0.0.9, the master {__version__}; install the same on both",
    ),
    (
        {"OTHER_MESSAGES": ""},
        f"runs llama-load {__version__} like the master, but from other files; install the same on both",
    ),
]


@pytest.mark.heavy
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("env", "sentence"), OTHERS, ids=["version", "messages"])
def test_a_worker_of_another_version_is_refused(
    simulate: Callable[..., Simulated],
    tmp_path: Path,
    env: dict[str, str],
    sentence: str,
) -> None:
    """At the start it ends the run; one that joins a run is left out. One sentence says what to do.
    Catches a worker whose code differs and that takes part."""
    locustfile = tmp_path / "other.py"
    locustfile.write_text(SHAREGPT.read_text() + OTHER)
    server = simulate("--first-token-ms", "20", "--interval-ms", "10")
    with swarm(
        tmp_path / "first",
        server.url,
        0,
        "--num-prompts",
        "4",
        expect=1,
        locustfile=locustfile,
    ) as running:
        running.add_worker(env=env)
        done = running.finish()
    assert done.code == 2
    assert sentence in done.err
    arguments = ("--num-prompts", "100000", "-u", "4", "--max-tokens", "12")
    with swarm(
        tmp_path / "late", server.url, 1, *arguments, locustfile=locustfile
    ) as running:
        wait_until(running.has_records)
        running.add_worker(env=env)
        wait_until(lambda: sentence in running.log(1))
        answered = server.log.read_bytes().count(b"\n")
        wait_until(server.has_answered(answered + 20))
        running.master.terminate()
        done = running.finish()
    assert f"{sentence} (the run goes on without it)" in done.err
    assert done.manifest["end"] == "interrupted"
    assert not done.manifest["lost"]
    assert len(set(done.records.strings("worker"))) == 1


@pytest.mark.heavy
def test_a_worker_whose_clock_is_elsewhere(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """A time namespace whose monotonic clock is 1000 s ahead: records are on the master's axis all
    the same. Catches instants of another kernel clock that are taken for the master's."""
    server = simulate(*QUICK)
    with swarm(
        tmp_path / "s",
        server.url,
        1,
        "--num-prompts",
        "30",
        "-u",
        "4",
        "--max-tokens",
        "6",
        expect=2,
    ) as running:
        shifted = running.add_worker(
            "unshare", "--time", "--monotonic", "1000", "--fork", "--kill-child"
        )
        time.sleep(1)  # unshare ends soon where it may not
        if shifted.poll() is not None:
            pytest.skip(f"no time namespaces here: {running.log(1)}")
        done = running.finish()
    assert done.code == 0, done.err
    offsets = sorted(worker["clock_offset_ms"] for worker in done.manifest["workers"])
    assert offsets[0] == pytest.approx(-1_000_000, abs=100)
    assert offsets[1] == pytest.approx(0, abs=100)
    assert done.summary["duration"] < 60
    started = done.records.measured().instants("started_mono_ns")
    assert (started.max() - started.min()) / 1e9 < 60


@pytest.mark.heavy
def test_a_late_worker_whose_clock_is_elsewhere(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """It joins a closed loop in the middle, ten days ahead, and answers are quick: not even its
    first records are off the axis. Catches first records that come before the clock is known."""
    server = simulate(*QUICK)

    def workers_on_record(running: Swarm) -> int:
        return len(set(read_run_journal(running.run_dir).table()["worker"].to_pylist()))

    with swarm(
        tmp_path / "s",
        server.url,
        1,
        "--num-prompts",
        "100000",
        "-u",
        "8",
        "--max-tokens",
        "12",
    ) as running:
        wait_until(running.has_records)
        shifted = running.add_worker(
            "unshare", "--time", "--monotonic", "864000", "--fork", "--kill-child"
        )
        time.sleep(1)  # unshare ends soon where it may not
        if shifted.poll() is not None:
            pytest.skip(f"no time namespaces here: {running.log(1)}")
        wait_until(lambda: workers_on_record(running) == 2)
        time.sleep(1)  # both send for a while
        running.master.send_signal(signal.SIGINT)
        done = running.finish()
    assert done.manifest["end"] == "interrupted", done.err
    measured = done.records.measured()
    assert len(set(measured.strings("worker"))) == 2
    assert done.summary["duration"] < 60
    truth = {
        entry["request_id"]: entry["received_mono_ns"] for entry in read_log(server.log)
    }
    sent_ns = dict(
        zip(
            measured.strings("request_id"),
            measured.instants("sent_mono_ns"),
            strict=True,
        )
    )
    known_ms = max(
        worker["clock_uncertainty_ms"] for worker in done.manifest["workers"]
    )
    assert (
        max(abs(truth[request] - sent) for request, sent in sent_ns.items()) / 1e6
        < known_ms + 200
    )


@pytest.mark.heavy
@pytest.mark.parametrize("load", ["closed", "open"])
def test_a_worker_that_stands_still_is_not_lost(
    simulate: Callable[..., Simulated], tmp_path: Path, load: str
) -> None:
    """SIGSTOP for 7 s: its leases wait, the run ends complete, every request that reached the
    server is on record once, and how long it stood still is reported. Catches a stopped process
    that is given up too early."""
    server = simulate("--first-token-ms", "100", "--interval-ms", "10")
    arguments = ["--max-tokens", "10", "--num-prompts", "300"]
    arguments += ["-u", "8"] if load == "closed" else ["--request-rate", "25"]
    with swarm(tmp_path / "s", server.url, 2, *arguments) as running:
        wait_until(server.has_answered(60))
        running.workers[0].send_signal(signal.SIGSTOP)
        time.sleep(7)  # it stands still
        running.workers[0].send_signal(signal.SIGCONT)
        done = running.finish()
    assert done.manifest["end"] == "complete", done.err
    assert "is gone" not in done.err
    assert not done.manifest["lost"]
    assert indices_of(done) == list(range(300))
    at_server = [entry["request_id"] for entry in read_log(server.log)]
    assert sorted(at_server) == sorted(done.records.strings("request_id"))
    still, moving = sorted(
        (worker["longest_pause_ms"] for worker in done.manifest["workers"]),
        reverse=True,
    )
    assert still > 6000
    assert moving < 6000


@pytest.mark.heavy
def test_a_network_that_is_cut_for_a_while(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """10 s between one worker and the master, while both reach the server: nobody is lost, every
    request is on record once. Catches a cut between real sockets that loses a record or a lease."""
    server = simulate("--first-token-ms", "100", "--interval-ms", "10")
    arguments = ("--num-prompts", "300", "-u", "6", "--max-tokens", "10")
    with (
        swarm(tmp_path / "s", server.url, 1, *arguments, expect=2) as running,
        slow_link(running.port, 0.001, 0.001) as link,
    ):
        running.add_worker(port=link.port)
        wait_until(server.has_answered(60))
        link.flows.clear()
        time.sleep(10)  # the network is cut
        link.flows.set()
        done = running.finish()
    assert done.code == 0, done.err
    assert not done.manifest["lost"]
    assert indices_of(done) == list(range(300))
    assert unrecorded(server, done) == set()
    assert not list((tmp_path / "s").glob("worker-*/runs/spool-*"))


@pytest.mark.heavy
def test_a_busy_worker_whose_connection_is_reset_goes_on(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """A locustfile calls what Locust calls when a send queue is full, three times, with 300
    requests in flight. (With Locust's sockets the worker stood still at 100 % CPU for ever.)
    Catches a loop of ZeroMQ's that takes a core for ever."""
    server = simulate("--first-token-ms", "100", "--interval-ms", "20")
    locustfile = tmp_path / "reset.py"
    locustfile.write_text(SHAREGPT.read_text() + RESET)
    arguments = ("--num-prompts", "3000", "-u", "300", "--max-tokens", "10")
    with swarm(
        tmp_path / "s", server.url, 1, *arguments, locustfile=locustfile
    ) as running:
        done = running.finish()
        assert running.workers[0].wait(20) == 0
    assert done.code == 0, done.err
    assert not done.manifest["lost"]
    assert indices_of(done) == list(range(3000))
    assert len(running.log(0).splitlines()) < 20


@pytest.mark.heavy
@pytest.mark.timeout(240)
@pytest.mark.parametrize("then", ["it is open again", "SIGTERM"])
def test_a_busy_worker_that_is_cut_off(
    simulate: Callable[..., Simulated],
    tmp_path: Path,
    run_report: Callable[..., Finished],
    then: str,
) -> None:
    """The only worker, with 1200 requests in flight: the master's port is closed to it. It uses no
    core and logs next to nothing meanwhile. After 27 s the port is open again, and the worker goes
    on without one request lost; or it gets SIGTERM while the port is still closed, and ends, and
    with its spool every request that reached the server is on record. Catches what a cut-off worker
    does with 1200 sockets and one queue."""
    server = simulate("--first-token-ms", "2000", "--interval-ms", "250")
    arguments = ("--num-prompts", "3600", "-u", "1200", "--max-tokens", "10")
    with (
        swarm(tmp_path / "s", server.url, 0, *arguments, expect=1) as running,
        slow_link(running.port, 0.0, 0.0) as link,
    ):
        worker = psutil.Process(running.add_worker(port=link.port).pid)
        wait_until(server.has_answered(1300))
        link.close_port()
        time.sleep(12)  # the network is cut, and what was in flight ends
        before = sum(worker.cpu_times()[:2])
        time.sleep(15)  # the span that is measured
        # all that was in flight has ended: a fifth of a core at most
        assert sum(worker.cpu_times()[:2]) - before < 3
        assert len(running.log(0).splitlines()) < 20
        if then == "SIGTERM":
            worker.terminate()
            assert running.workers[0].wait(40) == 1
            running.master.send_signal(signal.SIGTERM)
            done = running.finish(90)
            (spool,) = (tmp_path / "s").glob("worker-*/runs/spool-*")
            assert (
                f"--add {spool.relative_to(tmp_path / 's' / 'worker-0')}'"
                in running.log(0)
            )
            done = run_report(running.run_dir, "--add", str(spool))
            assert done.code == 3
        else:
            link.open_port()
            done = running.finish(90)
            assert running.workers[0].wait(20) == 0
            assert done.code == 0, done.err
            assert not done.manifest["lost"]
            assert indices_of(done) == list(range(3600))
    assert unrecorded(server, done) == set()
    assert len(running.log(0).splitlines()) < 20


# Every two seconds a worker's connection is reset, as Locust does when it cannot send.
RESET = """
import gevent
from locust import events


@events.test_start.add_listener
def reset(environment, **_):
    def loop():
        for _ in range(3):
            gevent.sleep(2)
            environment.runner.reset_connection()

    if hasattr(environment.runner, "client"):
        gevent.spawn(loop)
"""


@pytest.mark.heavy
def test_a_worker_that_returns_after_it_was_given_up(
    simulate: Callable[..., Simulated], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent for longer than the limit (3 s here, 30 s by default), among conversations: what it
    held is sent by nobody else, and what it still sends counts. Every request that reached the
    server is on record, no prompt was sent twice. Catches a prompt that two workers send after one
    was silent."""
    monkeypatch.setattr(
        "tests.swarms.environment",
        lambda: environment() | {"LLAMA_LOAD_LOST_AFTER_S": "3"},
    )
    server = simulate("--first-token-ms", "100", "--interval-ms", "10")
    arguments = (
        "--max-tokens",
        "10",
        "--num-prompts",
        "600",
        "-u",
        "8",
        "--turns",
        "4",
    )
    with swarm(tmp_path / "s", server.url, 2, *arguments) as running:
        wait_until(server.has_answered(60))
        running.workers[0].send_signal(signal.SIGSTOP)
        time.sleep(8)  # it stands still
        running.workers[0].send_signal(signal.SIGCONT)
        done = running.finish()
    assert (
        "has been silent for 3 s; requests that it may have sent are not repeated"
        in done.err
    )
    (lost,) = done.manifest["lost"]
    ended = indices_of(done)
    assert len(ended) == len(set(ended))
    assert sorted(ended + lost["possibly_sent"]) == list(range(600))
    at_server = [entry["request_id"] for entry in read_log(server.log)]
    assert sorted(at_server) == sorted(done.records.strings("request_id"))


@pytest.mark.heavy
def test_a_worker_behind_a_slow_and_lopsided_link(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """150 ms to the master, 50 ms back: each prompt is sent once, and the clock is off by no more
    than the verdict reports. Catches an error of the clock that the verdict states too small."""
    server = simulate(*QUICK)
    arguments = ("--num-prompts", "200", "-u", "4", "--max-tokens", "6")
    with (
        swarm(tmp_path / "s", server.url, 1, *arguments, expect=2) as running,
        slow_link(running.port, 0.15, 0.05) as link,
    ):
        running.add_worker(port=link.port)
        done = running.finish()
    assert done.code == 0, done.err
    assert indices_of(done) == list(range(200))
    near, far = sorted(
        done.manifest["workers"], key=lambda worker: worker["clock_uncertainty_ms"]
    )
    assert near["clock_uncertainty_ms"] < 50
    assert 100 <= far["clock_uncertainty_ms"] < 300
    assert abs(far["clock_offset_ms"]) <= far["clock_uncertainty_ms"]
    assert f"synchronized within {far['clock_uncertainty_ms']:.2f} ms" in " ".join(
        done.out.split()
    )


@pytest.mark.heavy
def test_connections_that_are_reset_in_the_middle(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """A worker's connection breaks five times while messages are under way on it: leases and
    records that were lost with it are found missing, and every prompt is on record once. Catches a
    message that is lost with its TCP connection."""
    arguments = ("--num-prompts", "250", "-u", "12", "--max-tokens", "8")
    with (
        swarm(tmp_path / "s", simulate(*QUICK).url, 1, *arguments, expect=2) as running,
        slow_link(running.port, 0.04, 0.04) as link,
    ):
        running.add_worker(port=link.port)
        wait_until(running.has_records)
        for _ in range(5):
            time.sleep(0.3)  # between two cuts
            link.blip()
        done = running.finish()
    assert done.code == 0, done.err
    assert indices_of(done) == list(range(250))


@pytest.mark.heavy
def test_a_worker_that_is_stopped(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """SIGTERM to one of two while all but one of the users wait for the end of the warm-up: it says
    goodbye, and the other does the work without anything having been lost. Catches a goodbye that
    Locust's own handler prevents."""
    server = simulate("--first-token-ms", "4000", "--interval-ms", "4")
    with swarm(
        tmp_path / "s",
        server.url,
        2,
        "--num-prompts",
        "8",
        "-u",
        "4",
        "--max-tokens",
        "2",
    ) as running:
        wait_until((running.run_dir / "run.json").exists)
        time.sleep(3)  # users wait for the end of the warm-up
        running.workers[1].terminate()
        done = running.finish()
    assert done.code == 0, done.err
    assert indices_of(done) == list(range(8))
    assert not done.manifest["lost"]


@pytest.mark.heavy
def test_the_last_worker_is_killed(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Nobody is left to do the rest: the master reports what there is and ends. Catches a master
    that waits for ever."""
    with swarm(
        tmp_path / "s",
        simulate(*QUICK).url,
        1,
        "--num-prompts",
        "5000",
        "-u",
        "4",
        "--max-tokens",
        "4",
    ) as running:
        wait_until(running.has_records)
        running.workers[0].kill()
        done = running.finish()
    assert done.code == 3, done.err
    assert len(done.records.ok()) > 0
    assert "INCOMPLETE" in done.out


@pytest.mark.heavy
def test_workers_need_no_data(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """The data set is gone once the master has read it: workers get their prompts from the master.
    Catches a worker that opens the data set."""
    data = tmp_path / "data.json"
    pairs = [
        {
            "conversations": [
                {"from": "human", "value": f"问题 {n} please"},
                {"from": "gpt", "value": "words " * 20},
            ]
        }
        for n in range(30)
    ]
    data.write_text(json.dumps(pairs, ensure_ascii=False), encoding="utf-8")
    arguments = (
        "--num-prompts",
        "12",
        "-u",
        "4",
        "--max-tokens",
        "4",
        "--dataset-path",
        str(data),
    )
    with swarm(
        tmp_path / "s", simulate(*QUICK).url, 0, *arguments, expect=2
    ) as running:
        wait_until((running.run_dir / "run.json").exists)
        data.unlink()
        running.add_worker()
        running.add_worker()
        done = running.finish()
    assert done.code == 0, done.err
    assert indices_of(done) == list(range(12))


@pytest.mark.heavy
def test_runs_from_the_web_page_of_a_master(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """The first run completes, the second by the stop button with requests of 30 s in flight: all
    are on record, each run in its own folder, and the same workers serve both. Catches a second run
    of the same workers that begins with state of the first."""
    server, port = (
        simulate("--first-token-ms", "20", "--interval-ms", "300"),
        free_port(),
    )
    with swarm(
        tmp_path / "s", server.url, 2, "--warmup", "0", web_port=port
    ) as running:
        page, folder = f"http://127.0.0.1:{port}", running.run_dir
        second = folder.with_name("run-2")
        wait_until(
            lambda: (
                web_client.get(f"{page}/stats/requests", timeout=30)
                .json()
                .get("workers", [{}])[1:]
                != []
            )
        )
        form = {
            "user_count": "4",
            "spawn_rate": "4",
            "host": server.url,
            "num_prompts": "9",
            "max_tokens": "2",
        }
        assert web_client.post(f"{page}/swarm", data=form, timeout=10).json()["success"]
        wait_until((folder / "summary.json").exists)
        form |= {"num_prompts": "", "max_tokens": "100"}
        wait_until(
            lambda: (
                web_client.get(f"{page}/stats/requests", timeout=30).json()["state"]
                == "stopped"
            )
        )
        assert web_client.post(f"{page}/swarm", data=form, timeout=10).json()["success"]
        wait_until((second / "run.json").exists)
        time.sleep(3)  # answers are under way
        assert web_client.post(f"{page}/stop", timeout=20).ok
        wait_until((second / "summary.json").exists)
        running.master.terminate()
        out, err = running.master.communicate(timeout=30)
    first, stopped = Finished(0, out, err, folder), Finished(0, out, err, second)
    assert indices_of(first) == list(range(9))
    assert stopped.manifest["end"] == "stopped"
    assert len(stopped.records.cancelled()) == 4
    assert not stopped.manifest["lost"]
    assert set(first.records.strings("worker")) == set(
        stopped.records.strings("worker")
    )
    assert "could not" not in running.log(0) + running.log(1)
    assert "did not receive all records" not in running.log(0) + running.log(1)


@pytest.mark.heavy
def test_waiting_at_the_end_lets_every_answer_come(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """--at-end wait: answers of 3 s are under way when the time is over; none is cut. Catches an
    answer that Locust's end cuts off."""
    server = simulate("--first-token-ms", "100", "--interval-ms", "100")
    arguments = ("-u", "4", "--max-tokens", "30", "-t", "4s", "--at-end", "wait")
    with swarm(tmp_path / "s", server.url, 2, *arguments) as running:
        done = running.finish()
    assert done.code == 0, done.err
    records = done.records.measured()
    assert len(records.cancelled()) == 0
    assert len(records.ok()) == len(records) >= 8
    ended = records.instants("ended_mono_ns")
    assert (ended.max() - records.instants("started_mono_ns").min()) / 1e9 > 4


@pytest.mark.heavy
def test_what_a_worker_could_not_deliver_is_brought_in(
    simulate: Callable[..., Simulated],
    tmp_path: Path,
    run_report: Callable[..., Finished],
) -> None:
    """The master is stopped (SIGSTOP) and killed while the worker goes on; its spool completes the
    run. Catches a spool of a real worker that its run does not take."""
    server = simulate("--first-token-ms", "50", "--interval-ms", "20")
    with swarm(
        tmp_path / "s",
        server.url,
        1,
        "--num-prompts",
        "40",
        "-u",
        "4",
        "--max-tokens",
        "40",
    ) as running:
        wait_until(server.has_answered(6))
        running.master.send_signal(signal.SIGSTOP)
        time.sleep(2)  # answers that the master never hears of
        running.master.kill()
        running.master.wait()
        (spool,) = (tmp_path / "s" / "worker-0").rglob("spool-*")
        running.workers[0].kill()
        before = run_report(running.run_dir)
        had = len(before.records.ok())
        done = run_report(running.run_dir, "--add", str(spool))
    added = len(done.records.ok()) - had
    assert added > 0
    assert f"{added} requests added" in done.err
    assert len(set(done.records.strings("request_id"))) == len(done.records)
    again = run_report(running.run_dir, "--add", str(spool))
    assert "0 requests added" in again.err
    assert len(again.records) == len(done.records)


@pytest.mark.heavy
def test_a_folder_that_is_no_spool_is_refused(
    run_report: Callable[..., Finished],
    run_locust: Callable[..., Finished],
    simulate: Callable[..., Simulated],
    tmp_path: Path,
) -> None:
    """Catches a traceback of the command where a person names another folder."""
    done = run_locust(simulate(*QUICK).url, "--num-prompts", "2", "--max-tokens", "2")
    refused = run_report(done.folder, "--add", str(tmp_path))
    assert refused.code == 2
    assert "is not a worker's spool" in refused.err


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(place)],
        check=False,
        capture_output=True,
    ).returncode:
        pytest.skip("mounting needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.mark.heavy
def test_a_full_disk_at_the_master_loses_nothing(
    simulate: Callable[..., Simulated], small_disk: Path, tmp_path: Path
) -> None:
    """It says so once and acknowledges nothing; when there is room again, the workers' records come
    in after all. Catches a record that is acknowledged and not written."""
    server = simulate("--first-token-ms", "20", "--interval-ms", "2")
    arguments = (
        "--num-prompts",
        "300",
        "-u",
        "8",
        "--max-tokens",
        "100",
        "--run-dir",
        str(small_disk / "run"),
    )
    with swarm(tmp_path / "s", server.url, 2, *arguments) as running:
        journal = small_disk / "run" / "requests.arrows"
        wait_until(lambda: journal.exists() and journal.stat().st_size > 100_000)
        time.sleep(3)  # the disk is full
        subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
        done = running.finish()
    done = replace(done, folder=small_disk / "run")
    assert done.code == 0, done.err
    assert done.err.count("No space left on device; workers keep their records") == 1
    assert indices_of(done) == list(range(300))


@pytest.mark.heavy
def test_a_slow_disk_at_the_master_holds_up_nobody(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Every write takes 0.4 s (a wrapper's sleep: there is no slow disk here), some 20 batches a
    second come: the master goes on handing out leases and hearing heartbeats, and everything is on
    record at the end. Catches a write in the loop that hands out leases."""
    file = tmp_path / "slow.py"
    file.write_text(
        "from gevent import monkey\nfrom locust import task\nfrom llama_load import LlamaUser, ShareGPT\nfrom llama_load.run_folder.journal import Journal\n\n"
        "append, sleep = Journal.append, monkey.get_original('time', 'sleep')\n"
        "Journal.append = lambda self, batch: (sleep(0.4), append(self, batch))[1]\n\n\n"
        "class Chat(LlamaUser):\n    workload = ShareGPT()\n\n    @task\n    def ask(self):\n        self.chat(max_tokens=12)\n"
    )
    with swarm(
        tmp_path / "s", simulate(*QUICK).url, 2, "-t", "6s", "-u", "8", locustfile=file
    ) as running:
        done = running.finish()
    assert done.code == 0, done.err
    assert "is gone" not in done.err
    assert "not delivered" not in running.log(0) + running.log(1)
    assert len(done.records.measured().ok()) > 300
    assert len(set(done.records.strings("request_id"))) == len(done.records)


@pytest.mark.heavy
def test_a_shape_in_a_swarm(simulate: Callable[..., Simulated], tmp_path: Path) -> None:
    """Two users, then four, then the end: Locust's shapes work, and every request is on record
    once. Catches a shape of Locust's that counts users otherwise than the dispatcher."""
    file = tmp_path / "shaped.py"
    file.write_text(
        "from locust import LoadTestShape, task\nfrom llama_load import LlamaUser, ShareGPT\n\n\n"
        "class Chat(LlamaUser):\n    workload = ShareGPT()\n\n    @task\n    def ask(self):\n        self.chat(max_tokens=4)\n\n\n"
        "class Steps(LoadTestShape):\n    def tick(self):\n        now = self.get_run_time()\n"
        "        return (2, 2) if now < 2 else (4, 4) if now < 5 else None\n"
    )
    with swarm(
        tmp_path / "s",
        simulate(*QUICK).url,
        2,
        "--num-prompts",
        "100000",
        locustfile=file,
    ) as running:
        done = running.finish()
    assert done.manifest["end"] == "time", done.err
    indices = indices_of(done)
    assert len(set(indices)) == len(indices)
    assert len(indices) > 20
    assert not done.manifest["lost"]
