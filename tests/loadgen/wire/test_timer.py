"""Sleeping until an instant. Bounds from below only, so that a slow machine passes;
`benchmarks/arrivals.py` shows how late it is."""

from __future__ import annotations

import time

import gevent
import pytest

from llama_load.ground.units import NS_PER_MS
from llama_load.loadgen.wire import timer as alarm
from llama_load.loadgen.wire.timer import MOST_TIMERS, sleep_until

pytestmark = pytest.mark.portable


@pytest.fixture(params=["linux", "darwin"], autouse=True)
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarm.sys, "platform", request.param)


def early_by_ns(scheduled_ns: int) -> int:
    sleep_until(scheduled_ns)
    return scheduled_ns - time.monotonic_ns()


def test_nobody_wakes_early_with_more_sleepers_than_timers() -> None:
    begin = time.monotonic_ns()
    sleepers = [
        gevent.spawn(early_by_ns, begin + number * NS_PER_MS)
        for number in range(2 * MOST_TIMERS)
    ]
    gevent.joinall(sleepers)
    assert max(sleeper.get() for sleeper in sleepers) <= 0


def test_a_timer_whose_sleeper_was_killed_does_not_wake_the_next_one() -> None:
    """It rang, or would have, for somebody else."""
    killed = gevent.spawn(sleep_until, time.monotonic_ns() + 5 * NS_PER_MS)
    gevent.sleep(0)  # it begins to sleep
    time.sleep(0.01)  # the loop does not run
    killed.kill()
    assert early_by_ns(time.monotonic_ns() + 30 * NS_PER_MS) <= 0


def test_an_instant_that_has_passed_is_now() -> None:
    assert early_by_ns(time.monotonic_ns() - NS_PER_MS) <= -NS_PER_MS
