"""Locust's messages that start users, until their workers have answered."""

from __future__ import annotations

from locust.rpc import Message

from llama_load.loadgen.swarm.unanswered_spawns import (
    ANSWERED_WITHIN_S,
    UnansweredSpawns,
)


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.s = 100.0

    def now_s(self) -> float:
        return self.s


def spawn(worker: str, users: int = 1) -> Message:
    return Message("spawn", {"users": users}, worker)


def test_a_message_without_an_answer_is_sent_again_until_it_has_one() -> None:
    time = Time()
    spawns = UnansweredSpawns(time.now_s)
    first = spawn("a")
    spawns.sent(first)
    spawns.sent(spawn("b"))
    spawns.received(Message("spawning", None, "b"))
    assert not spawns.overdue(lambda _: True)
    for _ in range(3):
        time.s += ANSWERED_WITHIN_S + 0.1
        assert spawns.overdue(lambda _: True) == [first]
        spawns.sent(first)
    spawns.received(Message("spawning", None, "a"))
    time.s += 100
    assert not spawns.overdue(lambda _: True)


def test_the_answer_to_an_earlier_one_is_none_to_the_newest() -> None:
    time = Time()
    spawns = UnansweredSpawns(time.now_s)
    spawns.sent(spawn("a", 1))
    newest = spawn("a", 2)
    spawns.sent(newest)
    spawns.received(Message("spawning", None, "a"))
    time.s += ANSWERED_WITHIN_S + 0.1
    assert spawns.overdue(lambda _: True) == [newest]


def test_nothing_is_sent_again_to_a_worker_that_is_stopped_or_lost() -> None:
    """A lost one gets another message when it is back."""
    time = Time()
    spawns = UnansweredSpawns(time.now_s)
    spawns.sent(spawn("stopped"))
    spawns.sent(Message("stop", None, "stopped"))
    spawns.sent(spawn("lost"))
    time.s += ANSWERED_WITHIN_S + 0.1
    assert not spawns.overdue(lambda worker: worker != "lost")
    assert not spawns.overdue(lambda _: True)
