"""Open loop: requests come when the schedule says, however slow the server is. Seen from the
server's log."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llama_load.loadgen.schedule.schedule import arrivals_s
from llama_load.run_folder.observed.records import Records
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import Server
from llama_load.servers.serving.simulated import read_log
from tests import web_client
from tests.conftest import (
    REPOSITORY,
    SHAREGPT,
    Finished,
    Simulated,
    environment,
    start_program,
)
from tests.queueing import mean_wait_s, waits_s
from tests.quiet import undisturbed
from tests.swarms import indices_of, swarm, wait_until, web_ui

Run = Callable[..., Finished]
QUICK = ("--first-token-ms", "10", "--interval-ms", "2", "--tokens", "2")
SIGMAS = 5


def scheduled_s(done: Finished) -> NDArray[np.float64]:
    """When the measured requests were wanted, from the first on, in the order of the plan."""
    records = done.records.measured()
    order = np.argsort(records.numbers("prompt_index"))
    instants = records.instants("scheduled_mono_ns")[order]
    return np.asarray((instants - instants[0]) / 1e9)


def received_s(done: Finished, server: Simulated) -> NDArray[np.float64]:
    """When the server got the measured requests, ascending."""
    measured = set(done.records.measured().strings("request_id"))
    instants = [
        entry["received_mono_ns"]
        for entry in read_log(server.log)
        if entry["request_id"] in measured
    ]
    return np.sort(np.array(instants)) / 1e9


def check_gaps(found_s: NDArray[np.float64], rate: float, cv: float) -> None:
    """Mean, coefficient of variation and lag-1 autocorrelation of the gaps; for Poisson also the
    variance of counts over their mean.

    To five standard deviations; the schedule is fixed by its seed, so that what can vary is how
    late requests left.
    """
    gaps = np.diff(found_s)
    n = len(gaps)
    assert gaps.mean() == pytest.approx(1 / rate, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(
        cv, abs=SIGMAS * max(cv, 0.05) / math.sqrt(n) * 1.5 + 0.05
    )
    if cv:
        assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < SIGMAS / math.sqrt(n)
    if cv == 1:
        # four expected in each
        counts = np.bincount(((found_s - found_s[0]) * rate / 4).astype(int))[:-1]
        assert counts.var() / counts.mean() == pytest.approx(
            1, abs=SIGMAS * math.sqrt(2 / len(counts))
        )


def run_at(server: Simulated, folder: Path, workers: int, *arguments: str) -> Finished:
    """A run headless on this many workers."""
    folder.mkdir(exist_ok=True)
    with swarm(folder / "s", server.url, workers, *arguments) as running:
        done = running.finish(100)
    assert done.code == 0, done.err + done.out
    return done


@pytest.mark.timing
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.heavy), 3])
def test_the_server_sees_one_poisson_process(
    simulate: Callable[..., Simulated], tmp_path: Path, workers: int
) -> None:
    """The union over the workers is the seeded schedule, and no worker's arrivals are in step with
    another's."""
    server = simulate(*QUICK)

    def run(folder: Path) -> Finished:
        flags = (
            "--request-rate",
            "80",
            "--num-prompts",
            "160",
            "--seed",
            "3",
            "--max-tokens",
            "2",
        )
        done = run_at(server, folder, workers, *flags)
        assert len(set(done.records.measured().strings("worker"))) == workers
        assert indices_of(done) == list(range(160))
        assert "Request rate configured (RPS):           80.00" in done.out
        assert "Maximum request concurrency" not in done.out
        assert done.summary["request_rate"] == 80
        return done

    def check(done: Finished) -> None:
        wanted = arrivals_s(160, 80, seed=3)
        known_s = (
            max(
                worker["clock_uncertainty_ms"] or 0
                for worker in done.manifest["workers"]
            )
            / 1e3
        )
        # as clocks are known
        np.testing.assert_allclose(
            scheduled_s(done), wanted - wanted[0], atol=0.005 + 4 * known_s
        )
        check_gaps(received_s(done, server), 80, cv=1)

    undisturbed(run, check, tmp_path)


@pytest.mark.heavy
@pytest.mark.timing
def test_arrivals_of_three_workers_keep_the_schedule_from_the_first_on(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """60 a second, answers of half a second, and one user of Locust's: the server gets each request
    within 50 ms of its instant. (Users that Locust had to start first came 0.6 s late.) Answers
    hold 30 users; those beyond Locust's one are made by the workers, in equal shares, at once.
    Catches arrivals that wait until Locust has started users."""
    server = simulate("--first-token-ms", "490", "--interval-ms", "10", "--tokens", "2")

    def attempt(folder: Path) -> Records:
        flags = (
            "--request-rate",
            "60",
            "--arrival",
            "constant",
            "-t",
            "3s",
            "--max-tokens",
            "2",
        )
        return run_at(server, folder, 3, *flags).records.measured()

    def check(records: Records) -> None:
        assert sorted(Counter(records.strings("worker")).values()) == [60, 60, 60]
        wanted = dict(
            zip(
                records.strings("request_id"),
                records.instants("scheduled_mono_ns"),
                strict=True,
            )
        )
        log = {
            entry["request_id"]: entry["received_mono_ns"]
            for entry in read_log(server.log)
        }
        assert (
            max(abs(log[name] - scheduled_ns) for name, scheduled_ns in wanted.items())
            < 50e6
        )

    undisturbed(attempt, check, tmp_path)


FICKLE = """
from locust import task
from llama_load import LlamaUser

class Fickle(LlamaUser):
    made = 0

    def on_start(self):
        Fickle.made += 1
        if Fickle.made <= 3:
            raise RuntimeError("not this one")

    @task
    def ask(self):
        self.chat("x", max_tokens=2)
"""


def test_an_arrival_whose_user_dies_gets_another(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """Locust's user and those made for the two arrivals fail in on_start: a second after their
    instants others are made."""
    (tmp_path / "fickle.py").write_text(FICKLE)
    flags = ("--request-rate", "4", "--num-prompts", "2", "-t", "8s", "--warmup", "0")
    done = run_locust(simulate(*QUICK).url, *flags, locustfile=tmp_path / "fickle.py")
    assert done.summary["completed"] == 2, done.err


@pytest.mark.heavy
@pytest.mark.timing
@pytest.mark.parametrize(("workers", "seed"), [(1, 1), (3, 2)])
@pytest.mark.parametrize(
    ("flags", "cv"),
    [((), 1), (("--arrival", "constant"), 0), (("--burstiness", "0.25"), 2)],
)
def test_the_server_sees_what_was_asked_for(
    simulate: Callable[..., Simulated],
    tmp_path: Path,
    flags: tuple[str, ...],
    cv: float,
    workers: int,
    seed: int,
) -> None:
    """Catches an open loop whose arrivals at the server are not those of its plan."""
    server = simulate(*QUICK)
    arguments = (
        "--request-rate",
        "50",
        "-t",
        "10s",
        "--seed",
        str(seed),
        "--max-tokens",
        "2",
        *flags,
    )

    def run(folder: Path) -> Finished:
        done = run_at(server, folder, workers, *arguments)
        assert done.summary["completed"] == 500  # 50/s for 10 s
        return done

    undisturbed(
        run, lambda done: check_gaps(received_s(done, server), 50, cv), tmp_path
    )


def queue_of(
    done: Finished, server: Simulated, slots: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of every measured request: how long it waited for a slot as the client saw it, and as the
    theory of queues has it for these arrivals and services; both in s, in the order of arrival."""
    records = done.records.measured()
    client = dict(
        zip(
            records.strings("request_id"),
            records.numbers("ttft_ms") + records.numbers("client_queue_ms"),
            strict=True,
        )
    )
    wanted = dict(
        zip(
            records.strings("request_id"),
            records.instants("scheduled_mono_ns"),
            strict=True,
        )
    )
    entries = sorted(
        (entry for entry in read_log(server.log) if entry["request_id"] in client),
        key=lambda e: e["received_mono_ns"],
    )
    arrivals = np.array([wanted[entry["request_id"]] for entry in entries]) / 1e9
    services = (
        np.array(
            [entry["ended_mono_ns"] - entry["started_mono_ns"] for entry in entries]
        )
        / 1e9
    )  # each slot was held this long
    seen = np.array([client[entry["request_id"]] for entry in entries]) / 1e3 - 0.005
    return seen, waits_s(arrivals.tolist(), services.tolist(), slots)


MMK = (
    "--slots",
    "3",
    "--lengths",
    "geometric",
    "--tokens",
    "16",
    "--first-token-ms",
    "5",
    "--interval-ms",
    "5",
    "--seed",
    "2",
)


@pytest.mark.portable
@pytest.mark.timing
def test_waiting_times_are_those_of_the_theory_of_queues(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """Three slots, memoryless service of 80 ms, 30 arrivals a second (load 0.8): TTFT from the
    schedule is each arrival's wait in the queue, as worked out from the schedule and from how long
    each slot was held."""

    server = simulate(*MMK)
    flags = (
        "--request-rate",
        "30",
        "--num-prompts",
        "150",
        "--seed",
        "5",
        "--warmup",
        "0",
    )

    def run(folder: Path) -> Finished:
        done = run_locust(server.url, *flags, folder=folder)
        assert done.summary["completed"] == 150
        return done

    def check(done: Finished) -> None:
        seen, theory = queue_of(done, server, 3)
        assert theory.mean() > 0.02  # or nothing would be tested
        late_s = done.summary["mean_late_ms"] / 1e3
        assert abs(seen.mean() - theory.mean()) < theory.mean() / 4 + 2 * late_s
        assert np.corrcoef(seen, theory)[0, 1] > 0.95

    undisturbed(run, check, tmp_path)


@pytest.mark.heavy
@pytest.mark.timing
@pytest.mark.timeout(300)
def test_the_mean_wait_is_erlangs(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """1800 arrivals in M/M/3: their mean wait is that of Erlang's formula, within the error of that
    many. Catches a load whose law is not Poisson's, by the waits of a whole queue."""

    server = simulate(*MMK)
    flags = (
        "--request-rate",
        "30",
        "--num-prompts",
        "1800",
        "--seed",
        "5",
        "--warmup",
        "0",
    )

    def run(folder: Path) -> Finished:
        done = run_locust(server.url, *flags, folder=folder)
        assert done.summary["completed"] == 1800
        return done

    def check(done: Finished) -> None:
        seen, theory = queue_of(done, server, 3)
        late_s = done.summary["mean_late_ms"] / 1e3
        assert abs(seen.mean() - theory.mean()) < theory.mean() / 10 + 2 * late_s
        assert seen.mean() == pytest.approx(mean_wait_s(30, 1 / 0.08, 3), rel=0.45)

    undisturbed(run, check, tmp_path)


def slow(done: Finished) -> int:
    """How many requests waited for more than 0.7 s for their first token, from when they were
    wanted."""
    records = done.records.measured()
    queue = np.nan_to_num(records.numbers("client_queue_ms"))
    return int((records.numbers("ttft_ms") + queue > 700).sum())


@pytest.mark.heavy
def test_a_stall_is_felt_by_all_who_come_meanwhile(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """The server stands still for 2 s. A closed loop of two users asks twice meanwhile; of 20
    arrivals a second, 26 wait for more than 0.7 s. (Coordinated omission.) Catches coordinated
    omission in a whole run."""
    stall = ("--stall-at-s", "1", "--stall-s", "2", *QUICK)
    flags = ("--max-tokens", "2", "--warmup", "0", "--metric-percentiles", "95")
    arrivals = ("--request-rate", "20", "--arrival", "constant", "-t", "4s")
    waiting = run_locust(
        simulate(*stall).url, *arrivals, *flags, folder=tmp_path / "open"
    )
    asking = run_locust(
        simulate(*stall).url, "-u", "2", "-t", "4s", *flags, folder=tmp_path / "closed"
    )
    assert waiting.summary["completed"] == 80
    assert 20 <= slow(waiting) <= 32
    assert slow(asking) <= 2
    assert waiting.summary["p95_scheduled_ttft_ms"] > 1500
    assert waiting.summary["median_late_ms"] < 20


def in_flight(server: Simulated) -> int:
    """The most requests that the server had at once."""
    steps = [(entry["received_mono_ns"], 1) for entry in read_log(server.log)]
    steps += [(entry["sent_mono_ns"][-1], -1) for entry in read_log(server.log)]
    return int(np.cumsum([step for _, step in sorted(steps)]).max())


def test_what_comes_at_the_limit_is_dropped_and_turns_the_verdict(
    simulate: Callable[..., Simulated], run_locust: Run
) -> None:
    """60 arrivals a second for two users of 60 ms each: half of them too many."""
    server = simulate("--first-token-ms", "50", "--interval-ms", "10")
    flags = [
        "--request-rate",
        "60",
        "--num-prompts",
        "24",
        "--max-concurrency",
        "2",
        "--on-limit",
        "drop",
        "--max-tokens",
        "2",
    ]
    done = run_locust(server.url, *flags, "--warmup", "0")
    assert done.code == 0, done.err
    assert in_flight(server) <= 2
    assert "Client-side Queueing" in done.out
    assert "Queue-inclusive End-to-end Latency" in done.out
    assert "Maximum request concurrency:             2" in done.out
    assert done.summary["completed"] + done.summary["dropped"] == 24
    assert done.summary["dropped"] > 0
    (dropped,) = [
        check
        for check in done.summary["llama_load"]["verdict"]["checks"]
        if check["name"] == "dropped_ratio"
    ]
    assert not dropped["ok"]


TWO_CLASSES = """
from locust import task
from llama_load import LlamaUser

class Slow(LlamaUser):
    weight = 1
    @task
    def ask(self):
        self.chat("slow", max_tokens=20)

class Fast(LlamaUser):
    weight = 3
    @task
    def ask(self):
        self.chat("fast", max_tokens=1)
"""


@pytest.mark.heavy
def test_user_classes_share_the_arrivals_by_their_weights(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """One slow request in four arrivals, although its users are seldom free; a closed loop would
    send far fewer. Catches a class that takes more arrivals because its users are free more
    often."""
    (tmp_path / "two.py").write_text(TWO_CLASSES)
    server = simulate("--first-token-ms", "10", "--interval-ms", "20")
    done = run_locust(
        server.url,
        "--request-rate",
        "60",
        "--num-prompts",
        "240",
        locustfile=tmp_path / "two.py",
    )
    assert done.code == 0, done.err + done.out
    slow = done.records.measured().strings("workload").count("Slow")
    assert abs(slow - 60) < SIGMAS * math.sqrt(240 * 0.25 * 0.75)
    assert done.summary["p99_late_ms"] < 500


@pytest.mark.heavy
def test_a_mooncake_trace_is_replayed_on_the_real_server(
    llama_server: Server, run_locust: Run, tmp_path: Path
) -> None:
    """Its instants at double speed, its lengths, and its shared prefixes as the server's cache sees
    them; then that run again. Catches prefixes of a trace that llama-server's cache does not see as
    shared."""
    rows = [
        {
            "timestamp": 200 * n,
            "input_length": 700 if n % 2 else 64,
            "output_length": 3 + n,
            "hash_ids": [7, n] if n % 2 else [100 + n],
        }
        for n in range(10)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(map(json.dumps, rows)))
    replay = REPOSITORY / "locustfiles" / "replay.py"
    done = run_locust(
        llama_server.url, "--trace", str(trace), "--speed", "2", locustfile=replay
    )
    assert done.code == 0, done.err + done.out
    np.testing.assert_allclose(scheduled_s(done), np.arange(10) * 0.1, atol=1e-6)
    records = done.records.measured()
    order = np.argsort(records.numbers("prompt_index"))
    assert records.numbers("max_tokens")[order].tolist() == [3.0 + n for n in range(10)]
    long = records.where(records.numbers("prompt_tokens") > 500)
    assert len(long) == 5
    # four follow the first, perhaps on another slot
    assert (np.sort(long.numbers("cached_tokens"))[1:] > 400).sum() >= 2
    again = run_locust(
        llama_server.url,
        "--trace",
        str(done.folder),
        "--num-prompts",
        "5",
        folder=tmp_path / "again",
    )
    assert again.code == 0, again.err + again.out
    np.testing.assert_allclose(scheduled_s(again), np.arange(5) * 0.1, atol=1e-6)
    assert again.manifest["arrival"] == "trace"


def test_conversations_come_by_the_schedule_and_go_on_by_themselves(
    llama_server: Server, run_locust: Run
) -> None:
    """Twelve requests, their later turns among them: these have no scheduled instant, and follow
    their first one."""
    flags = (
        "--turns",
        "3",
        "--request-rate",
        "10",
        "--num-prompts",
        "12",
        "--max-tokens",
        "2",
    )
    done = run_locust(llama_server.url, *flags)
    assert done.code == 0, done.err + done.out
    records = done.records.measured()
    first = records.equals("turn", 1)
    assert 0 < first.sum() < 12
    scheduled = np.array(
        [value is not None for value in records.strings("scheduled_mono_ns")]
    )
    np.testing.assert_array_equal(scheduled, first)


@pytest.mark.heavy
def test_a_rate_from_the_web_page(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """One user in the form, as Locust has it there; as many come as the schedule needs. Catches a
    form whose rate does not come to the schedule."""
    server, port = (
        simulate("--first-token-ms", "400", "--interval-ms", "10"),
        free_port(),
    )
    command = [
        "locust",
        "-f",
        str(SHAREGPT),
        *web_ui(port),
        "--run-dir",
        str(tmp_path / "ui"),
        "--host",
        server.url,
    ]
    process = start_program(command, tmp_path, environment())
    page = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: web_client.get(page, timeout=10).ok)
        form = {
            "user_count": "1",
            "spawn_rate": "1",
            "host": server.url,
            "request_rate": "20",
            "num_prompts": "60",
            "max_tokens": "2",
        }
        assert web_client.post(f"{page}/swarm", data=form, timeout=30).json()["success"]
        wait_until((tmp_path / "ui" / "summary.json").exists)
    finally:
        process.terminate()
        out, err = process.communicate(timeout=20)
    done = Finished(0, out, err, tmp_path / "ui")
    assert done.summary["completed"] == 60
    assert (
        done.summary["llama_load"]["peak_in_flight"] > 4
    )  # 20 a second for 0.4 s each
    assert "Traceback" not in out


@pytest.mark.heavy
def test_a_worker_is_killed_in_an_open_loop(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """What it had not begun is sent by the other, late; what it may have sent is named; every
    arrival is one or the other. Catches an arrival of a killed worker that is neither sent nor
    named."""
    server = simulate("--first-token-ms", "300", "--interval-ms", "20")
    arguments = ("--request-rate", "40", "--num-prompts", "400", "--max-tokens", "8")
    with swarm(tmp_path / "s", server.url, 2, *arguments) as running:
        wait_until(server.has_answered(60))
        running.workers[0].kill()
        done = running.finish(100)
    assert done.code == 3, done.err
    (lost,) = done.manifest["lost"]
    assert sorted(indices_of(done) + lost["possibly_sent"]) == list(range(400))
    assert lost["handed_on"] > 0
    # users that come in place of the lost ones cost nobody its request
    assert not done.records.cancelled()
    assert "not sent yet went to other workers" in " ".join(done.out.split())


@pytest.mark.heavy
def test_requests_cut_by_a_time_limit_are_reported(
    simulate: Callable[..., Simulated], run_locust: Run
) -> None:
    """One at a time for half a second each, twenty wanted in a second: after two seconds those who
    wait longest are missing. Catches requests that a time limit cuts and no line counts."""
    server = simulate("--first-token-ms", "490", "--interval-ms", "10")
    flags = (
        "--request-rate",
        "20",
        "--arrival",
        "constant",
        "--num-prompts",
        "20",
        "--max-concurrency",
        "1",
        "-t",
        "2s",
    )
    done = run_locust(server.url, *flags, "--max-tokens", "2")
    found = checks(done.summary)["unanswered_ratio"]
    assert found["value"] > 0.7
    assert not found["ok"]
    assert "were not sent or not answered at the end of the time" in " ".join(
        done.out.split()
    )


def checks(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {
        check["name"]: check for check in summary["llama_load"]["verdict"]["checks"]
    }


SLEEPY = """
from locust import constant, task
from llama_load import LlamaUser

class Sleepy(LlamaUser):
    wait_time = constant(3)

    @task
    def ask(self):
        self.chat("x", max_tokens=2)
"""


@pytest.mark.heavy
def test_more_users_start_while_others_sleep(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """A user class that sleeps after each request: the schedule is kept all the same, by more
    users. Catches a schedule that waits for users who sleep."""
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    done = run_locust(
        simulate(*QUICK).url,
        "--request-rate",
        "30",
        "-t",
        "6s",
        locustfile=tmp_path / "sleepy.py",
    )
    assert done.summary["completed"] == 180
    assert checks(done.summary)["late_p99_ms"]["value"] < 500


@pytest.mark.heavy
def test_too_few_users_for_the_schedule_turn_the_verdict(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """At most four users that sleep for 1 s after each request: of 12 arrivals in 0.6 s, four are a
    second late and four are two. Catches a verdict that praises a schedule which was not kept."""
    few = "from llama_load.loadgen.dispatch import workers\nfrom llama_load.loadgen.run import arrival_users\n"
    few += "workers.MOST_USERS_A_PROCESS = arrival_users.MOST_USERS_A_PROCESS = 4\n"
    (tmp_path / "sleepy.py").write_text(
        few + SLEEPY.replace("constant(3)", "constant(1)")
    )
    flags = ("--request-rate", "20", "--num-prompts", "12", "--warmup", "0")
    done = run_locust(simulate(*QUICK).url, *flags, locustfile=tmp_path / "sleepy.py")
    assert done.summary["completed"] == 12
    late = checks(done.summary)["late_p99_ms"]
    assert late["value"] > 1000
    assert not late["ok"]
