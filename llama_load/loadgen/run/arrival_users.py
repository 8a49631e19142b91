"""Users for scheduled arrivals, started in the process that received the lease.

Locust starts users only from its master: it sends a message to every worker and waits for each to
report, which can delay the schedule. It also stops users above its target count. The users here
have the same classes but belong to a separate group, so Locust neither counts nor stops them.
"""

from __future__ import annotations

import random
from typing import Any

import gevent
from gevent.pool import Group

from llama_load.loadgen.dispatch.leases import MOST_USERS_A_PROCESS
from llama_load.loadgen.run.patience import wait_until_none


class ArrivalUsers:
    """Users of one process in addition to those that Locust has started. They run until the run
    ends."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._group = Group()

    def add(self, workload: str) -> None:
        """Start a user of this workload in a new greenlet, because its constructor may block."""
        classes = [
            user for user in self._environment.user_classes if _sends(user, workload)
        ]
        if classes and len(self._group) < MOST_USERS_A_PROCESS:
            (chosen,) = random.choices(classes, [user.weight for user in classes])
            self._group.spawn(self._start, chosen)

    def stop(self) -> None:
        """Kill the users that still run, except the calling greenlet: a user may be the one that
        ends the run."""
        others = set(self._group) - {gevent.getcurrent()}
        gevent.killall(others, block=False)
        wait_until_none(lambda: sum(not greenlet.dead for greenlet in others))

    def _start(self, user_class: Any) -> None:
        user_class(self._environment).start(self._group)


def _sends(user_class: Any, workload: str) -> bool:
    return hasattr(user_class, "workload_name") and bool(
        user_class.workload_name() == workload
    )
