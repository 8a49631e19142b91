"""How many users an open loop may have at most."""

from __future__ import annotations

from llama_load.dispatch.leases import MOST_USERS_A_PROCESS


def most_users(processes: int) -> int:
    """How many users so many processes may have at most."""
    return MOST_USERS_A_PROCESS * max(1, processes)
