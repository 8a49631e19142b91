"""Locust as the host of a run: starting users, and stopping Locust's test when the run ends."""

from __future__ import annotations

from typing import Any

import gevent

from llama_load.preflight.user_mix import sending_users
from llama_load.swarm.user_scaler import UserScaler


class LocustHost:
    """`RunHost` implemented with Locust's runner, except `deliver`, which subclasses add."""

    def __init__(self, environment: Any, user_scaler: UserScaler) -> None:
        self._environment = environment
        self._user_scaler = user_scaler

    def users_asked(self) -> int:
        """See `RunHost.users_asked`."""
        return sending_users(self._environment.user_classes, int(self._environment.runner.target_user_count))

    def workers(self) -> int:
        """See `RunHost.workers`."""
        return int(getattr(self._environment.runner, "worker_count", 1))

    def gauges(self) -> dict[str, float]:
        """See `RunHost.gauges`."""
        return {}

    def add_users(self, count: int) -> None:
        """See `RunHost.add_users`."""
        self._user_scaler.grow(count)

    def stop(self) -> None:
        """See `RunHost.stop`."""
        runner, options = self._environment.runner, self._environment.parsed_options
        if options.headless:
            runner.quit()
            return
        runner.stop()
        if options.autostart and options.autoquit != -1:
            gevent.sleep(options.autoquit)
            runner.quit()
            self._environment.web_ui.stop()
