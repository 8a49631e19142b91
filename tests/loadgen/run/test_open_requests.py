"""Requests that a process has begun and has no record of at its end."""

from __future__ import annotations

import gevent

from llama_load.loadgen.run.patience import TURNS, wait_until_none


def test_patience_ends_with_progress_and_not_with_time() -> None:
    """A record every 150 turns, each of which may take an hour: all 20 are waited for. One that
    never comes costs 200 turns."""
    turns = 0

    def turn(_: float) -> None:
        nonlocal turns
        turns += 1

    assert wait_until_none(lambda: 20 - turns // 150, sleep=turn) == 0
    turns = 0
    assert wait_until_none(lambda: 7, sleep=turn) == 7
    assert turns == TURNS


def test_waiting_lets_others_run() -> None:
    left = [3]

    def work() -> None:
        while left[0]:
            gevent.sleep(0)  # a turn of the loop
            left[0] -= 1

    gevent.spawn(work)
    assert wait_until_none(lambda: left[0]) == 0
