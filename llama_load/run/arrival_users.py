"""The users that arrivals need: made where they are needed, in the process that got the lease, without a word to Locust's master.

Locust starts users from its master alone: a message to every worker, a report from each, and whatever holds either up delays the
schedule. And it stops users beyond the number that it has asked for. These are users of the same classes in a group of our own:
Locust neither counts nor stops them.
"""

from __future__ import annotations

import random
from typing import Any

import gevent
from gevent.pool import Group

from llama_load.dispatch.leases import MOST_USERS_A_PROCESS


class ArrivalUsers:
    """Users of one process beside those that Locust has started. Like those, they go on until the run is over."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._group = Group()

    def add(self, workload: str) -> None:
        """Start a user that sends requests of this workload, soon: in a greenlet of its own, since its class may do anything."""
        classes = [user for user in self._environment.user_classes if _sends(user, workload)]
        if classes and len(self._group) < MOST_USERS_A_PROCESS:
            (chosen,) = random.choices(classes, [user.weight for user in classes])
            self._group.spawn(self._start, chosen)

    def stop(self, within_s: float) -> None:
        """Kill those that are still there. (One of them may be who ends the run.)"""
        gevent.killall([each for each in self._group if each is not gevent.getcurrent()], timeout=within_s)

    def _start(self, user_class: Any) -> None:
        user_class(self._environment).start(self._group)


def _sends(user_class: Any, workload: str) -> bool:
    return hasattr(user_class, "workload_name") and bool(user_class.workload_name() == workload)
