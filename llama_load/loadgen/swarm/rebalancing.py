"""Spreads the users over the workers again when one joins, leaves or is lost, and repeats the
messages that start users where they were lost.

Locust does so in the greenlet that receives messages, where it then waits up to a second for
messages that say how many users there are: the master hears nothing meanwhile. It does so once a
run, because its dispatcher calls that dispatch in progress for ever, and not at all for a worker
that is lost, before a minute has passed.
"""

from __future__ import annotations

from typing import Any

import gevent
from locust.dispatch import UsersDispatcher
from locust.runners import STATE_MISSING, STATE_RUNNING, STATE_SPAWNING, WorkerNode

LOOK_EVERY_S = 0.1
REPEAT_EVERY_S = 1.0


class Dispatcher(UsersDispatcher):
    """Locust's, whose runner leaves it to us to react to workers that come and go."""

    @property
    def dispatch_in_progress(self) -> bool:
        """Always: so Locust starts nothing when it hears of a worker."""
        return True

    def add_worker(self, worker_node: WorkerNode) -> None:
        """See Locust. A worker says again that it is ready where the answer was lost: in the list
        twice it would get twice its users."""
        self._worker_nodes = [
            node for node in self._worker_nodes if node.id != worker_node.id
        ]
        super().add_worker(worker_node)

    @property
    def has_other_workers(self) -> bool:
        """Whether workers have come or gone since users were spread last."""
        return bool(self._rebalance)


class Rebalancer:
    """Has Locust spread the users when the dispatcher asks for it. To be made before the first
    run."""

    def __init__(self, environment: Any) -> None:
        environment.dispatcher_class = Dispatcher
        environment.parsed_options.enable_rebalancing = False  # Locust's own
        environment.events.test_stopping.add_listener(self._stop)
        self._runner = environment.runner
        self._start: gevent.Greenlet | None = None
        gevent.spawn(self._watch)
        gevent.spawn(self._repeat)

    def _watch(self) -> None:
        while True:
            gevent.sleep(LOOK_EVERY_S)
            runner = self._runner
            dispatcher = self._runner._users_dispatcher
            if (
                runner.state == STATE_RUNNING
                and dispatcher is not None
                and dispatcher.has_other_workers
            ):
                self._start = gevent.spawn(
                    runner.start, runner.target_user_count, runner.spawn_rate
                )
                self._start.join()

    def _repeat(self) -> None:
        while True:
            gevent.sleep(REPEAT_EVERY_S)
            if self._runner.state in (STATE_SPAWNING, STATE_RUNNING):
                server = self._runner.server
                for message in server.spawns.overdue(self._is_there):
                    server.send_to_client(message)

    def _is_there(self, worker: str) -> bool:
        node = self._runner.clients.get(worker)
        return node is not None and node.state != STATE_MISSING

    def _stop(self, **_: Any) -> None:
        """A start in progress would go on after the end of the test, and users with it."""
        if self._start is not None:
            self._start.kill()
