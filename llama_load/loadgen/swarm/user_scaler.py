"""Keeps Locust's number of users high enough for stages: as many as the largest one needs, also
after a worker was lost."""

from __future__ import annotations

import logging
from typing import Any

import gevent
from locust.runners import STATE_RUNNING, STATE_SPAWNING

from llama_load.loadgen.dispatch.leases import MOST_USERS_A_PROCESS
from llama_load.loadgen.swarm.load_shapes import Stages

# Time for new users to start, before more are started.
SETTLED_WITHIN_S = 5.0
LOOK_EVERY_S = 0.1

logger = logging.getLogger(__name__)


class UserScaler:
    """Starts more users with Locust. Never stops any before the end of the run, because they may
    have requests in flight."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._greenlet: gevent.Greenlet | None = None
        self._needed = 0
        self._more: int | None = None

    def reach(self, users: int) -> None:
        """Start users until there are at least this many. Does not block."""
        self._needed = users
        self._more = None
        self._start()

    def grow(self, more: int) -> None:
        """Start this many more users, unless some are being started already. Does not block."""
        if self._greenlet is None or self._greenlet.dead:
            self._more = more
            self._start()

    def leave(self) -> None:
        """The run is over: start no more users."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)

    def _start(self) -> None:
        self._greenlet = gevent.spawn(self._come)

    def _come(self) -> None:
        runner = self._environment.runner
        shape = self._environment.shape_class
        while runner.state not in (STATE_SPAWNING, STATE_RUNNING):
            gevent.sleep(LOOK_EVERY_S)
        with gevent.Timeout(SETTLED_WITHIN_S, False):
            # until the timeout, if a worker was lost
            while runner.user_count < runner.target_user_count:
                # Locust is still starting users; another start would abort that
                gevent.sleep(LOOK_EVERY_S)
        most = MOST_USERS_A_PROCESS * max(1, getattr(runner, "worker_count", 1))
        needed = min(
            most, self._needed if self._more is None else runner.user_count + self._more
        )
        # else Locust would stop users that have requests in flight
        needed = max(needed, runner.target_user_count)
        if needed <= runner.user_count:
            return
        logger.info("%d users, %d more than so far", needed, needed - runner.user_count)
        if isinstance(shape, Stages):
            shape.users = needed
        else:
            runner.start(needed, needed)
        with gevent.Timeout(SETTLED_WITHIN_S, False):
            while runner.user_count < needed:
                gevent.sleep(LOOK_EVERY_S)
