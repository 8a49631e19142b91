"""How many of Locust's users send LLM requests, where the locustfile has other users beside them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from locust.dispatch import UsersDispatcher
from locust.runners import WorkerNode


def sending_users(user_classes: Iterable[Any], total: int) -> int:
    """Of `total` users those of our classes, as Locust's own dispatcher shares them out by `weight` and `fixed_count`; all where
    every class is ours, or none is. 4 users of a LlamaUser and an HttpUser of equal weight: 2."""
    return _sending(tuple(user_classes), total)


@lru_cache(64)
def _sending(user_classes: tuple[Any, ...], total: int) -> int:
    own = [user.__name__ for user in user_classes if hasattr(user, "workload_name")]
    if len(own) in (0, len(user_classes)) or total < 1:
        return total
    dispatcher = UsersDispatcher([WorkerNode("one")], list(user_classes))
    dispatcher.new_dispatch(total, total)
    (counts,) = next(dispatcher).values()
    return sum(counts[name] for name in own)
