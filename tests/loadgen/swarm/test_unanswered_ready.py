"""Locust's message that a worker is ready, until the master has answered."""

from __future__ import annotations

import pytest
from locust.rpc import Message

from llama_load.loadgen.swarm.unanswered_ready import ANSWERED_WITHIN_S, UnansweredReady

READY = Message("client_ready", "2", "a")


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.s = 100.0

    def now_s(self) -> float:
        return self.s


@pytest.mark.parametrize("answer", ["ack", "spawn"])
def test_it_is_sent_again_until_it_has_an_answer(answer: str) -> None:
    time = Time()
    ready = UnansweredReady(time.now_s)
    ready.sent(READY)
    assert ready.overdue() is None
    for _ in range(3):
        time.s += ANSWERED_WITHIN_S + 0.1
        assert ready.overdue() is READY
        ready.sent(READY)
        ready.received(Message("heartbeat", None, "a"))
    ready.received(Message(answer, None, "a"))
    time.s += ANSWERED_WITHIN_S + 0.1
    assert ready.overdue() is None


@pytest.mark.parametrize("end", ["client_stopped", "quit"])
def test_a_worker_that_stops_or_leaves_does_not_send_it_again(end: str) -> None:
    time = Time()
    ready = UnansweredReady(time.now_s)
    ready.sent(READY)
    ready.sent(Message(end, None, "a"))
    time.s += ANSWERED_WITHIN_S + 0.1
    assert ready.overdue() is None
