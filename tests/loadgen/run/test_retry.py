"""--retry: requests that a server refuses as overloaded are sent again, counted, and timed from
their first try."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from time import time
from typing import Any

import pytest

from llama_load.loadgen.run.lease_client import LeaseClient
from llama_load.loadgen.users.retry import (
    FIRST_S,
    LONGEST_RETRY_AFTER_S,
    LONGEST_S,
    pause_s,
)
from tests.conftest import Finished, Simulated


def test_pauses_grow_up_to_a_limit_with_jitter() -> None:
    """Between half and all of 0.25, 0.5, 1 … 10 s."""
    for tries in range(1, 40):
        most = min(LONGEST_S, FIRST_S * 2 ** (tries - 1))
        assert most / 2 <= pause_s(tries, {}) <= most
    assert len({pause_s(1, {}) for _ in range(20)}) > 10


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3),
        ("99999999999999999", LONGEST_RETRY_AFTER_S),
        pytest.param(
            formatdate(time() + 7200, usegmt=True),
            LONGEST_RETRY_AFTER_S,
            id="in two hours",
        ),
        pytest.param(formatdate(time() - 7200, usegmt=True), 0, id="two hours ago"),
        ("soon", 0),
        ("-5", 0),
        ("²", 0),
    ],
)
def test_retry_after_is_followed_within_bounds(value: str, seconds: float) -> None:
    found = pause_s(1, {"retry-after": value})
    assert found == seconds if seconds >= 1 else found <= FIRST_S


def test_a_pause_ends_when_the_run_is_cut() -> None:
    """Else the end of the run would wait for it."""
    nothing: Any = None
    client = LeaseClient(
        link=nothing,
        settings=nothing,
        targets=(),
        beginning=None,
        measuring=nothing,
        more_users=nothing,
        heard=nothing,
    )
    assert client.pause(0.001)
    client.cancel_unsent()
    assert not client.pause(100)


def test_refused_requests_are_sent_again_and_timed_from_the_first_try(
    simulate: Callable[..., Simulated], run_locust: Callable[..., Finished]
) -> None:
    """Every third request is refused. All succeed in the end; the time of refused tries and pauses
    is part of TTFT and has its own part."""
    server = simulate(
        "--fault",
        "status",
        "--status",
        "503",
        "--fault-every",
        "3",
        "--interval-ms",
        "1",
    )
    done = run_locust(server.url, "-u", "4", "--num-prompts", "8", "--retry", "9")
    assert done.code == 0, done.err
    summary, records = done.summary["llama_load"], done.records.measured()
    assert (done.summary["completed"], done.summary["failed"]) == (8, 0)
    tries, ttft, waited = (
        records.numbers(name) for name in ("tries", "ttft_ms", "retry_ms")
    )
    again = tries > 1
    assert summary["retried_requests"] == again.sum() > 0
    assert summary["retries"] == (tries - 1).sum()
    assert (ttft[again] > waited[again]).all()
    assert (waited[again] >= FIRST_S * 1e3 / 2).all()
    assert (
        records.numbers("retry_ms")[~again].size == 0
        or not records.has("retry_ms")[~again].any()
    )
    part = summary["time_parts"]["total"]["parts"]["earlier_tries"]
    assert part["sum_ms"] == pytest.approx(waited[again].sum(), abs=0.1)
    assert any(check["name"] == "retries" for check in summary["verdict"]["checks"])


def test_a_run_that_is_cut_cancels_what_waits_for_its_next_try(
    simulate: Callable[..., Simulated], run_locust: Callable[..., Finished]
) -> None:
    """The server refuses everything for longer than the run: at its end the requests are cancelled
    at once, not failed."""
    server = simulate("--fault", "status", "--status", "429")
    done = run_locust(
        server.url, "-u", "3", "-t", "1s", "--warmup", "0", "--retry", "1000"
    )
    assert set(done.records.strings("status")) == {"cancelled"}
    assert len(done.records) == 3
    assert (done.records.numbers("tries") > 1).all()


def test_without_tries_left_a_request_fails_as_overloaded(
    simulate: Callable[..., Simulated], run_locust: Callable[..., Finished]
) -> None:
    server = simulate("--fault", "status", "--status", "429")
    done = run_locust(
        server.url,
        "-u",
        "2",
        "--num-prompts",
        "2",
        "--warmup",
        "0",
        LLAMA_LOAD_RETRY="1",
    )
    (failure,) = done.summary["llama_load"]["failures"]
    assert (failure["kind"], failure["count"]) == ("overloaded", 2)
    assert "--retry" in failure["hint"]
    assert done.records.numbers("tries").tolist() == [2, 2]
