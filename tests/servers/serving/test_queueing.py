"""The theory of queues against textbooks, long paths and brute force; the simulated server against
the theory."""

from __future__ import annotations

import http.client
import json
import math
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from llama_load.ground.errors import UsageError
from llama_load.servers.serving.simulated import read_log
from llama_load.servers.serving.simulated_schedule import Schedule
from tests.conftest import Simulated
from tests.queueing import erlang_c, mean_wait_s, wait_quantile_s, waits_s

CUSTOMERS = 400_000


def path(
    arrival_rate: float, service_rate: float, seed: int
) -> tuple[list[float], list[float]]:
    draw = np.random.default_rng(seed)
    arrivals = np.cumsum(draw.exponential(1 / arrival_rate, CUSTOMERS))
    return arrivals.tolist(), draw.exponential(1 / service_rate, CUSTOMERS).tolist()


def batch_sigma(values: NDArray[np.float64], batches: int = 40) -> float:
    """Standard error of the mean of values that hang together, from means of batches far longer
    than they do so."""
    return float(
        values.reshape(batches, -1).mean(axis=1).std(ddof=1) / math.sqrt(batches)
    )


# ---------------------------------------------------------------------- theory


@pytest.mark.parametrize(
    ("servers", "load", "waiting"),
    [
        # P(0) = 1 / (1 + 1 + (1/2) / (1 - 1/2)) = 1/3; C = (1/2) / (1 - 1/2) x 1/3 = 1/3
        (2, 1.0, 1 / 3),
        # P(0) = 1 / (1 + 2 + 2 + (8/6) / (1 - 2/3)) = 1/9; C = (8/6) / (1/3) / 9 = 4/9
        (3, 2.0, 4 / 9),
        # P(0) = 1 / (1 + 3 + 9/2 + 27/6 + (81/24) / (1/4)) = 1/26.5; C = 13.5 / 26.5 = 27/53
        (4, 3.0, 27 / 53),
    ],
)
def test_erlang_c_is_the_textbooks(servers: int, load: float, waiting: float) -> None:
    """C = (a^k / k!) / (1 - a/k) x P(0), worked by hand from the sum of all states."""
    assert erlang_c(servers, load) == pytest.approx(waiting, rel=1e-12)


@pytest.mark.parametrize("load", [0.01, 0.5, 0.8, 0.99])
def test_with_one_server_an_arrival_waits_as_often_as_the_server_is_busy(
    load: float,
) -> None:
    """M/M/1: C = rho, the mean wait rho / (mu - lambda), the wait's quantiles ln(rho / (1 - q)) /
    (mu - lambda)."""
    assert erlang_c(1, load) == pytest.approx(load, rel=1e-12)
    assert mean_wait_s(load * 4, 4, 1) == pytest.approx(
        load / (4 - load * 4), rel=1e-12
    )
    assert wait_quantile_s(1 - load / math.e, load * 4, 4, 1) == pytest.approx(
        1 / (4 - load * 4), rel=1e-9
    )
    assert wait_quantile_s((1 - load) / 2, load * 4, 4, 1) == 0


def test_a_queue_that_grows_without_end_has_no_mean_wait() -> None:
    """Three customers' work a second for three servers is too much."""
    with pytest.raises(ValueError, match="below the 3 servers"):
        mean_wait_s(3, 1, 3)


# ------------------------------------------------------------------- recursion


@pytest.mark.parametrize(("servers", "arrival_rate"), [(1, 0.7), (3, 2.1)])
def test_the_waits_on_a_long_path_are_those_of_the_theory(
    servers: int, arrival_rate: float
) -> None:
    """Mean, share of those who wait and p90, within four standard errors of their own batches."""
    waits = waits_s(*path(arrival_rate, 1, seed=1), servers)
    expected = mean_wait_s(arrival_rate, 1, servers)
    assert abs(waits.mean() - expected) < 4 * batch_sigma(waits)
    assert batch_sigma(waits) < 0.03 * expected  # or the line above would say nothing
    assert abs((waits > 0).mean() - erlang_c(servers, arrival_rate)) < 4 * batch_sigma(
        (waits > 0).astype(np.float64)
    )
    longer = (waits > wait_quantile_s(0.9, arrival_rate, 1, servers)).astype(np.float64)
    assert abs(longer.mean() - 0.1) < 4 * batch_sigma(longer)


def brute_force(arrivals: list[int], services: list[int], servers: int) -> list[int]:
    """The same queue, tick by tick: who is there joins the queue, and as long as a server is idle
    its head is served."""
    ends: list[int] = []
    begun: list[int] = []
    now = 0
    while len(begun) < len(arrivals):
        while (
            len(begun) < len(arrivals)
            and arrivals[len(begun)] <= now  # the queue's head is there
            and sum(end > now for end in ends) < servers
        ):
            ends.append(now + services[len(begun)])
            begun.append(now)
        now += 1
    return [begin - arrival for begin, arrival in zip(begun, arrivals, strict=True)]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=30),
    st.integers(1, 4),
)
def test_the_recursion_finds_the_waits_of_a_simulation_by_ticks(
    customers: list[tuple[int, int]], servers: int
) -> None:
    """Whole ticks, so both are exact; gaps and services of 0 included."""
    arrivals = np.cumsum([gap for gap, _ in customers], dtype=int).tolist()
    services = [service for _, service in customers]
    assert waits_s(arrivals, services, servers).tolist() == brute_force(
        arrivals, services, servers
    )


# ----------------------------------------------------------- the simulated server


@pytest.mark.parametrize("mean", [2, 10, 50])
def test_drawn_lengths_are_geometric(mean: int) -> None:
    """Mean m, standard deviation sqrt(m (m - 1)), and P(n > j) = (1 - 1/m)^j, within five standard
    errors of 10000 draws."""
    count = 10_000
    schedule = Schedule(lengths="geometric", tokens=mean, seed=3)
    lengths = np.array(
        [schedule.answer_tokens(number) for number in range(1, count + 1)]
    )
    sigma = math.sqrt(mean * (mean - 1))
    assert lengths.min() == 1
    assert lengths.mean() == pytest.approx(mean, abs=5 * sigma / math.sqrt(count))
    # The geometric distribution's excess kurtosis is 6 + 1 / (m (m - 1)); a variance's standard
    # error is sigma^2 sqrt((2 + that) / n).
    error = math.sqrt((8 + 1 / (mean * (mean - 1))) / count)
    assert lengths.var() == pytest.approx(sigma**2, rel=5 * error)
    for more in (1, mean, 3 * mean):
        share = (1 - 1 / mean) ** more
        assert (lengths > more).mean() == pytest.approx(
            share, abs=5 * math.sqrt(share * (1 - share) / count)
        )
    assert abs(np.corrcoef(lengths[:-1], lengths[1:])[0, 1]) < 5 / math.sqrt(count)


@given(st.integers(), st.integers(1, 10**6), st.integers(1, 1000), st.integers(0, 100))
def test_a_drawn_length_hangs_on_seed_and_number_alone(
    seed: int, number: int, mean: int, max_tokens: int
) -> None:
    """Not on what was drawn before, nor on max_tokens; it is 1 at least and 37 times the mean at
    most."""
    schedule = Schedule(lengths="geometric", tokens=mean, seed=seed)
    length = schedule.answer_tokens(number, max_tokens)
    assert length == Schedule(
        lengths="geometric", tokens=mean, seed=seed, jitter_s=1
    ).answer_tokens(number)
    assert 1 <= length <= 37 * mean


def test_other_seeds_draw_other_lengths() -> None:
    """And without --lengths geometric an answer is as long as asked."""
    drawn = [
        [
            Schedule(lengths="geometric", seed=seed).answer_tokens(n)
            for n in range(1, 20)
        ]
        for seed in (1, 2)
    ]
    assert drawn[0] != drawn[1]
    assert Schedule(tokens=7).answer_tokens(1, 5) == 5
    assert Schedule(tokens=7).answer_tokens(1) == 7


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"lengths": "normal"},
            "lengths must be one of asked, geometric, got 'normal'",
        ),
        (
            {"lengths": "geometric", "tokens": 0},
            "tokens, the mean of geometric lengths, must be 1 or more, got 0",
        ),
        (
            {"stall_s": -1.0},
            "a stall's beginning and duration must be 0 s or more, got 0.0 and -1.0",
        ),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(
    wrong: dict[str, Any], message: str
) -> None:
    """In one sentence that names the field and what came."""
    with pytest.raises(UsageError, match=message):
        Schedule(**wrong)


class Client:
    """One connection to the server: `ask` reads a whole answer."""

    def __init__(self, server: Simulated) -> None:
        self.connection = http.client.HTTPConnection(
            server.url.removeprefix("http://"), timeout=30
        )

    def ask(
        self, path: str = "/v1/chat/completions", **body: object
    ) -> tuple[int, str]:
        """The instant when the headers were there, and the body."""
        self.connection.request(
            "POST", path, json.dumps({"stream_options": {"include_usage": True}} | body)
        )
        response = self.connection.getresponse()
        return time.monotonic_ns(), response.read().decode()


def whole_log(server: Simulated) -> list[dict[str, Any]]:
    """By number. A request is logged after its last byte is sent, in the same turn of the loop:
    what is asked now comes after that."""
    urllib.request.urlopen(f"{server.url}/health", timeout=30).close()
    return sorted(read_log(server.log), key=lambda entry: entry["number"])


def finish_and_usage(stream: str) -> tuple[str, int]:
    events = [
        json.loads(line[6:])
        for line in stream.splitlines()
        if line.startswith("data: {")
    ]
    reasons = [
        choice["finish_reason"]
        for event in events
        for choice in event["choices"]
        if choice["finish_reason"]
    ]
    usages = [
        event["usage"]["completion_tokens"] for event in events if "usage" in event
    ]
    assert len(reasons) == len(usages) == 1
    return reasons[0], usages[0]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_the_server_sends_the_lengths_that_the_schedule_foretells(
    simulate: Callable[..., Simulated], path: str
) -> None:
    """In log, usage and finish_reason: "stop" below max_tokens, and no max_tokens cuts an answer
    off."""
    flags = (
        "--first-token-ms",
        "0.2",
        "--interval-ms",
        "0.2",
        "--lengths",
        "geometric",
        "--tokens",
        "8",
        "--seed",
        "5",
    )
    server = simulate(*flags)
    client = Client(server)
    schedule = Schedule(lengths="geometric", tokens=8, seed=5)
    asked = [0, 4, 8, 1000] * 5
    foretold = [schedule.answer_tokens(number) for number in range(1, len(asked) + 1)]
    assert any(0 < most < length for most, length in zip(asked, foretold, strict=True))
    answers = [
        finish_and_usage(client.ask(path, **({"max_tokens": most} if most else {}))[1])
        for most in asked
    ]
    assert [len(entry["sent_mono_ns"]) for entry in whole_log(server)] == foretold
    reasons = [
        "length" if 0 < most <= length else "stop"
        for most, length in zip(asked, foretold, strict=True)
    ]
    assert answers == list(zip(reasons, foretold, strict=True))


def test_a_body_that_asks_for_unknown_lengths_is_a_bad_request(
    simulate: Callable[..., Simulated],
) -> None:
    """What cannot be done is said, not passed over."""
    _, answer = Client(simulate()).ask(simulate={"lengths": "normal"})
    assert "lengths must be one of" in json.loads(answer)["error"]["message"]


@pytest.mark.parametrize("stall", [(), ("--stall-at-s", "0.05", "--stall-s", "0.2")])
def test_requests_wait_for_a_slot_exactly_as_the_recursion_says(
    simulate: Callable[..., Simulated], stall: tuple[str, ...]
) -> None:
    """To the nanosecond, also over a stall: from the log's receipts and from how long each slot was
    held."""
    flags = (
        "--first-token-ms",
        "1",
        "--interval-ms",
        "1",
        "--lengths",
        "geometric",
        "--tokens",
        "8",
        "--slots",
        "2",
    )
    server = simulate(*flags, *stall)

    def several() -> None:
        client = Client(server)
        for _ in range(8):
            client.ask()

    threads = [threading.Thread(target=several) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = whole_log(server)
    assert len(log) == 48
    first = log[0]["received_mono_ns"]  # subtracted, so that a float holds every ns
    received = [entry["received_mono_ns"] - first for entry in log]
    waits = [entry["started_mono_ns"] - entry["received_mono_ns"] for entry in log]
    held = [entry["ended_mono_ns"] - entry["started_mono_ns"] for entry in log]
    assert waits_s(received, held, 2).tolist() == waits
    assert all(
        ns >= 1e6 * len(entry["sent_mono_ns"])
        for ns, entry in zip(held, log, strict=True)
    )
    assert any(wait > 0 for wait in waits)


def test_a_stalled_server_sends_nothing_and_then_what_is_due(
    simulate: Callable[..., Simulated],
) -> None:
    """Tokens every 5 ms, silence from 100 ms to 700 ms after the first request: for it, and for one
    that comes amid the stall.

    Bounds from below only, so that a slow machine passes."""
    server = simulate(
        "--first-token-ms",
        "5",
        "--interval-ms",
        "5",
        "--stall-at-s",
        "0.1",
        "--stall-s",
        "0.6",
    )
    long = threading.Thread(target=lambda: Client(server).ask(max_tokens=160))
    long.start()
    time.sleep(0.3)  # in the middle of the stall
    headers_ns, _ = Client(server).ask(max_tokens=2)
    long.join()
    log = whole_log(server)
    begin = log[0]["received_mono_ns"] + 100_000_000
    end = begin + 600_000_000
    assert headers_ns >= end
    for entry in log:
        sent = np.array(entry["sent_mono_ns"])
        due = entry["started_mono_ns"] + 5_000_000 * np.arange(1, len(sent) + 1)
        assert (sent >= due).all()
        assert (sent[due >= begin] >= end).all()
    assert np.diff(log[0]["sent_mono_ns"]).max() >= 590_000_000
