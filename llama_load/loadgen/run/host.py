"""The interface between a run and Locust."""

from __future__ import annotations

from typing import Protocol

from llama_load.loadgen.dispatch.dispatcher import Courier


class RunHost(Courier, Protocol):
    """Locust with its users, in this process or on the master's workers."""

    def users_asked(self) -> int:
        """Locust's target number of users."""

    def sending(self) -> int:
        """Requests in flight."""

    def workers(self) -> int:
        """Connected workers; 1 without a swarm."""

    def gauges(self) -> dict[str, float]:
        """Figures of a swarm's master for the live page."""

    def add_users(self, count: int) -> None:
        """Start this many more users for stages. Does not block."""

    def stop(self) -> None:
        """Stop the users and end Locust's test. Blocks; called once."""
