"""How evenly a load balancer spread the work over replicas."""

from __future__ import annotations

from collections.abc import Sequence


def imbalance(shares: Sequence[float]) -> float | None:
    """The busiest replica's share / an even share: 1.0 is even, n is all on one of n. 30 and 10 tokens: 1.5; None without work."""
    total = sum(shares)
    return max(shares) * len(shares) / total if total > 0 else None
