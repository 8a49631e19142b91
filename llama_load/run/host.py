"""What a run needs of where it happens."""

from __future__ import annotations

from typing import Protocol

from llama_load.dispatch.dispatcher import Courier


class RunHost(Courier, Protocol):
    """Locust with its users, in this process or at a master's workers."""

    def users_asked(self) -> int:
        """How many users Locust has been asked for."""

    def sending(self) -> int:
        """How many requests have begun and not ended."""

    def add_users(self, count: int) -> None:
        """Start this many more users for stages, soon."""

    def stop(self) -> None:
        """Stop the users and end the run: it has come to its end. Blocks; called once."""
