"""The maximum number of users of an open loop."""

from __future__ import annotations

from llama_load.dispatch.leases import MOST_USERS_A_PROCESS


def most_users(processes: int) -> int:
    """The maximum number of users of this many processes."""
    return MOST_USERS_A_PROCESS * max(1, processes)
