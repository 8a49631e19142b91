"""How many users Locust has in a run of stages: as many as the largest closed one needs, also when some went with a worker."""

from __future__ import annotations

import logging
from typing import Any

import gevent
from locust.runners import STATE_RUNNING, STATE_SPAWNING

from llama_load.load.user_limit import most_users
from llama_load.swarm.load_shapes import Stages

# How long new users may take to be there, before more are started.
SETTLED_WITHIN_S = 5.0
LOOK_EVERY_S = 0.1

logger = logging.getLogger(__name__)


class UserScaler:
    """Lets Locust start more users; it never stops any before the run's end, since they might be in the middle of something."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._greenlet: gevent.Greenlet | None = None
        self._needed = 0
        self._more: int | None = None

    def reach(self, users: int) -> None:
        """See that there are at least so many users, soon."""
        self._needed, self._more = users, None
        self._start()

    def grow(self, more: int) -> None:
        """See that there are so many more, unless others are just on their way."""
        if self._greenlet is None or self._greenlet.dead:
            self._more = more
            self._start()

    def leave(self) -> None:
        """The run is over: nobody comes any more."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)

    def _start(self) -> None:
        self._greenlet = gevent.spawn(self._come)

    def _come(self) -> None:
        runner, shape = self._environment.runner, self._environment.shape_class
        while runner.state not in (STATE_SPAWNING, STATE_RUNNING):
            gevent.sleep(LOOK_EVERY_S)
        with gevent.Timeout(SETTLED_WITHIN_S, False):
            while runner.user_count < runner.target_user_count:  # for ever, if a worker has gone
                gevent.sleep(LOOK_EVERY_S)  # Locust's own start is on its way; another one now would break it off
        most = most_users(getattr(runner, "worker_count", 1))
        needed = min(most, self._needed if self._more is None else runner.user_count + self._more)
        needed = max(needed, runner.target_user_count)  # else Locust would stop some, with what they have in flight
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
