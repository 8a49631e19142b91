"""A worker's records reach the master once, however slow it is and whatever is lost on the way."""

from __future__ import annotations

from pathlib import Path

from llama_load.loadgen.swarm.numbers_seen import NumbersSeen
from llama_load.loadgen.swarm.outbox import RESEND_AFTER_S, WINDOW_BYTES, Outbox
from llama_load.run_folder import SpoolManifest
from tests.make_records import record


class Link:
    """What was sent over it, and the clock."""

    def __init__(self, tmp_path: Path) -> None:
        self.sent: list[int] = []
        self.is_open = True
        self.now_s = 0.0
        self.outbox = Outbox(
            tmp_path / "spool", SpoolManifest("w"), self.send, lambda: self.now_s
        )

    def send(self, number: int, data: bytes) -> bool:
        if self.is_open:
            self.sent.append(number)
        return self.is_open

    def append(self, count: int) -> None:
        for _ in range(count):
            self.outbox.append([record(len(self.sent), gaps_ms=(1.0,) * 2000)])


def test_a_master_that_is_behind_gets_no_more_than_a_window(tmp_path: Path) -> None:
    """The rest follows as it stores them, each batch once."""
    link = Link(tmp_path)
    link.append(100)
    at_once = len(link.sent)
    assert 1 < at_once <= WINDOW_BYTES // 8_000 + 1
    assert link.outbox.is_behind
    for number in range(1, 101):
        link.outbox.acknowledged([number])
    assert link.sent == list(range(1, 101))
    assert link.outbox.all_arrived
    assert not link.outbox.is_behind


def test_nothing_is_sent_again_while_disconnected(tmp_path: Path) -> None:
    """And everything that was not acknowledged when the connection is back, oldest first."""
    link = Link(tmp_path)
    link.append(3)
    link.outbox.acknowledged([2])
    link.is_open = False
    link.append(2)
    for _ in range(100):
        link.now_s += 1
        link.outbox.send_waiting()
    assert link.sent == [1, 2, 3]
    link.is_open = True
    link.outbox.connected_again()
    assert link.sent == [1, 2, 3, 1, 3, 4, 5]


def test_a_batch_without_an_answer_is_sent_again_less_and_less_often(
    tmp_path: Path,
) -> None:
    """After 5 s, then 10, 20, 40 and 60. (Every 5 s fed a master that was too slow with what it had
    already.)"""
    link = Link(tmp_path)
    link.append(1)
    times = []
    for _ in range(200):
        link.now_s += 1
        link.outbox.send_waiting()
        if len(link.sent) > len(times) + 1:
            times.append(link.now_s)
    gaps = [
        later - earlier for earlier, later in zip([0.0, *times], times, strict=False)
    ]
    assert gaps == [RESEND_AFTER_S + 1, 11, 21, 41, 61]


def test_numbers_that_have_arrived_take_no_memory() -> None:
    seen = NumbersSeen()
    for number in range(1, 10_000, 2):
        seen.add(number + 1)
        seen.add(number)
        seen.add(number)
    assert len(seen) == 10_000
    assert not seen._beyond
    seen.add(10_005)
    assert 10_005 in seen and 10_004 not in seen and 77 in seen and 0 in seen
    assert len(seen) == 10_001
