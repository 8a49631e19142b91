"""Several servers in --host: balanced, a row each, and differences are reported."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.analysis.figures.rates import imbalance
from llama_load.servers.balance import EVERY_TURN, LEAST_IN_FLIGHT, Balancer
from llama_load.servers.serving.launch import Server
from llama_load.servers.serving.simulated import read_log
from tests.conftest import Finished, Simulated, embedded_server
from tests.swarms import swarm


def test_round_robin_takes_turns_however_busy_servers_are() -> None:
    balancer = Balancer(3)
    assert [balancer.choose() for _ in range(4)] == [[0], [1], [2], [0]]
    every_turn = Balancer(3, EVERY_TURN)
    assert [every_turn.choose(), every_turn.choose(4)] == [[0], [1, 2, 0, 1]]


def test_a_conversation_stays_with_its_replica_and_requests_stay_even() -> None:
    """Three replicas: everyone has a conversation before one gets its next, and the numbers of
    requests differ by less than two of the longest. Conversations that come back unsent make room
    for others."""
    balancer, turns = Balancer(3), random.Random(7).choices((1, 2, 9), k=300)
    chosen = [balancer.choose(count) for count in turns]
    assert all(len(set(replicas)) == 1 for replicas in chosen)
    for number in range(0, 300, 3):
        assert {replicas[0] for replicas in chosen[number : number + 3]} == {0, 1, 2}
    requests = Counter(replica for replicas in chosen for replica in replicas)
    assert max(requests.values()) - min(requests.values()) < 18
    for follows in (False, True, False):
        balancer.give_back(1, follows=follows)
    assert [balancer.choose()[0] for _ in range(2)] == [1, 1]


def test_least_in_flight_takes_the_idlest_and_takes_turns_among_equals() -> None:
    balancer = Balancer(3, LEAST_IN_FLIGHT)
    assert [balancer.choose() for _ in range(4)] == [[0], [1], [2], [0]]
    balancer.ended(2)
    balancer.ended(1)
    assert [balancer.choose() for _ in range(3)] == [[1], [2], [1]]


@given(st.lists(st.booleans(), max_size=60))
def test_least_in_flight_never_differs_by_more_than_one_while_nothing_ends(
    starts: list[bool],
) -> None:
    """However many start: the fullest replica holds at most one more than the emptiest."""
    balancer = Balancer(3, LEAST_IN_FLIGHT)
    counts = Counter(balancer.choose()[0] for _ in starts)
    held = [counts[replica] for replica in range(3)]
    assert max(held) - min(held) <= 1


def test_imbalance() -> None:
    """30 and 10: the busier did 1.5 times its even share. One alone: even. All on one of two: 2."""
    assert (
        imbalance([30, 10]),
        imbalance([7]),
        imbalance([5, 0]),
        imbalance([0, 0]),
    ) == (1.5, 1.0, 2.0, None)


def test_a_slow_replica_gets_less(
    run_locust: Callable[..., Finished], simulate: Callable[..., Simulated]
) -> None:
    """One answers in 0.1 s, the other in 0.9 s: least in flight gives the fast one more."""
    fast = simulate("--first-token-ms", "50", "--interval-ms", "5", "--tokens", "10")
    slow = simulate("--first-token-ms", "400", "--interval-ms", "50", "--tokens", "10")
    hosts = f"{fast.url}, {slow.url}"
    arguments = (
        "--num-prompts",
        "24",
        "-u",
        "4",
        "--max-tokens",
        "10",
        "--balance",
        "least-in-flight",
    )
    done = run_locust(hosts, *arguments, "--fail-if", "failed>0")
    assert done.code == 0, done.err
    ours = done.summary["llama_load"]
    requests = {url: ours["by_host"][url]["completed"] for url in (fast.url, slow.url)}
    assert sum(requests.values()) == 24
    assert requests[fast.url] >= 17  # nine times as many, but for the first and last
    assert ours["request_imbalance"] > 1.0
    assert (
        ours["by_host"][slow.url]["median_ttft_ms"]
        > ours["by_host"][fast.url]["median_ttft_ms"]
    )
    section = done.out.partition("Replicas")[2].partition("Verdict")[0]
    assert fast.url in section
    assert slow.url in section
    assert "Request imbalance (1 is even):" in section
    assert max(map(len, done.report_lines)) <= 80


@pytest.mark.heavy
def test_workers_balance_like_one_client(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Two workers with a user each: two servers never have more than one request each. (Workers
    that choose for themselves both begin at the first.) Catches workers that each begin at the
    first server."""
    pair = [
        simulate("--first-token-ms", "150", "--interval-ms", "10") for _ in range(2)
    ]
    flags = (
        "-u",
        "2",
        "--num-prompts",
        "20",
        "--warmup",
        "2",
        "--max-tokens",
        "2",
        "--balance",
        "least-in-flight",
    )
    with swarm(
        tmp_path / "s", ",".join(server.url for server in pair), 2, *flags
    ) as running:
        done = running.finish()
    assert done.code == 0, done.err
    assert len(set(done.records.measured().strings("worker"))) == 2
    assert [most_at_once(list(read_log(server.log))) for server in pair] == [1, 1]


def most_at_once(log: list[dict[str, Any]]) -> int:
    """The most requests that a server had at once."""
    steps = [(entry["received_mono_ns"], 1) for entry in log] + [
        (entry["sent_mono_ns"][-1], -1) for entry in log
    ]
    return max(accumulate(step for _, step in sorted(steps)))


def test_two_real_servers_that_are_not_alike(
    run_locust: Callable[..., Finished],
    llama_server: Server,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    """Both answer; that one has half the context is reported before the run, and prompts are chosen
    to fit it."""
    with embedded_server(tiny_model, tmp_path, "-a", "tiny", "-c", "8192") as other:
        done = run_locust(
            f"{llama_server.url} {other.url}",
            "--num-prompts",
            "6",
            "-u",
            "4",
            "--max-tokens",
            "4",
        )
    assert done.code == 0, done.err
    assert "they differ: context 4096 -> 2048" in " ".join(done.err.split())
    assert set(done.records.measured().strings("host")) == {llama_server.url, other.url}
    assert [target["ctx_per_slot"] for target in done.manifest["targets"]] == [
        4096,
        2048,
    ]


def test_a_dead_replica_is_named_before_the_run(
    run_locust: Callable[..., Finished], llama_server: Server
) -> None:
    done = run_locust(f"{llama_server.url},http://127.0.0.1:9", "--num-prompts", "4")
    assert done.code == 2
    assert "cannot reach http://127.0.0.1:9" in done.err


def test_the_same_server_twice_is_refused(
    run_locust: Callable[..., Finished], llama_server: Server
) -> None:
    done = run_locust(f"{llama_server.url},{llama_server.url}", "--num-prompts", "4")
    assert done.code == 2
    assert "twice" in done.err


def test_least_in_flight_leaves_a_replica_alone_that_refuses() -> None:
    balancer = Balancer(3, LEAST_IN_FLIGHT)
    assert balancer.choose() == [0]
    balancer.refused(0)
    balancer.ended(0)
    assert [balancer.choose() for _ in range(6)] == [[1], [2], [1], [2], [1], [2]]
