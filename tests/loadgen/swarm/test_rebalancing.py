"""Workers that come and go in the middle of a run: Locust's dispatcher and a runner that notes what
it starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from locust import User
from locust.event import EventHook
from locust.runners import STATE_RUNNING, STATE_SPAWNING, STATE_STOPPED, WorkerNode

from llama_load.loadgen.swarm import rebalancing
from tests.waiting import until


class Chat(User):
    pass


class Runner:
    """As a master: a start dispatches all users at once."""

    def __init__(self, dispatcher: rebalancing.Dispatcher) -> None:
        self._users_dispatcher = dispatcher
        self.state, self.target_user_count, self.spawn_rate = STATE_RUNNING, 12, 12.0
        self.starts = 0
        self.takes_s = 0.0
        self.users: dict[str, int] = {}

    def start(self, user_count: int, spawn_rate: float) -> None:
        self.starts += 1
        self._users_dispatcher.new_dispatch(user_count, spawn_rate)
        for spread in self._users_dispatcher:
            gevent.sleep(self.takes_s)  # as Locust does between two steps
            self.users = {
                worker: sum(users.values()) for worker, users in spread.items()
            }


def test_every_worker_that_comes_or_goes_moves_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second and the third change, too; none while users are being started, and none after the
    end of the test."""
    monkeypatch.setattr(rebalancing, "LOOK_EVERY_S", 0.001)
    nodes = {name: WorkerNode(name) for name in "abcd"}
    dispatcher = rebalancing.Dispatcher([nodes["a"], nodes["b"]], [Chat])
    runner = Runner(dispatcher)
    options, events = (
        SimpleNamespace(enable_rebalancing=True),
        SimpleNamespace(test_stopping=EventHook()),
    )
    environment: Any = SimpleNamespace(
        runner=runner, parsed_options=options, dispatcher_class=None, events=events
    )
    runner.start(12, 12.0)
    rebalancing.Rebalancer(environment)
    assert environment.dispatcher_class is rebalancing.Dispatcher
    assert not environment.parsed_options.enable_rebalancing
    until(lambda: (runner.starts, runner.users) == (1, {"a": 6, "b": 6}))
    dispatcher.add_worker(nodes["c"])
    until(lambda: (runner.starts, runner.users) == (2, {"a": 4, "b": 4, "c": 4}))
    dispatcher.add_worker(nodes["d"])
    until(
        lambda: (runner.starts, runner.users) == (3, {"a": 3, "b": 3, "c": 3, "d": 3})
    )
    runner.state = STATE_SPAWNING
    dispatcher.remove_worker(nodes["a"])
    gevent.sleep(0.02)  # nobody is to be moved
    assert runner.starts == 3
    runner.state = STATE_RUNNING
    until(lambda: (runner.starts, runner.users) == (4, {"b": 4, "c": 4, "d": 4}))
    runner.takes_s = 0.2
    dispatcher.add_worker(nodes["a"])
    until(lambda: runner.starts == 5)
    runner.state = STATE_STOPPED
    events.test_stopping.fire(environment=environment)
    gevent.sleep(0.3)  # longer than a start takes, which is not to go on
    assert runner.users == {"b": 4, "c": 4, "d": 4}


def test_a_worker_that_says_twice_that_it_is_ready_is_one_worker() -> None:
    dispatcher = rebalancing.Dispatcher([WorkerNode("a"), WorkerNode("b")], [Chat])
    dispatcher.add_worker(WorkerNode("b"))
    runner = Runner(dispatcher)
    runner.start(12, 12.0)
    assert runner.users == {"a": 6, "b": 6}
