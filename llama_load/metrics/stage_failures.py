"""Which failed checks are about a stage: the same in summary.json, sweeps and comparisons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

# What a proxy or a count does in one stage, it does in all, where it may be below the limit.
LASTING = frozenset(
    (
        "unexplained_ratio",
        "buffered_ratio",
        "held_back_ratio",
        "stretched_stream_ratio",
        "count_gap_ratio",
        "uncounted_ratio",
    )
)


class Judged(Protocol):
    """A check: its name, whether it is good, and its stage, None for the whole run."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def ok(self) -> bool: ...  # noqa: D102
    @property
    def stage(self) -> str | None: ...  # noqa: D102


C = TypeVar("C", bound=Judged)


def failed_in(checks: Iterable[C], stage: str) -> list[C]:
    """The stage's own, those of the whole run, and those of what lasts.

    Where a check of the whole run failed in single stages, its failure is theirs: 12 of 20 requests
    that failed at 16 users are a tenth of the run, and nothing at 1 user.
    """
    failed = [check for check in checks if not check.ok]
    of_stages = {check.name for check in failed if check.stage is not None}
    about = []
    for check in failed:
        is_of_run = check.stage is None and check.name not in of_stages
        if is_of_run or check.stage == stage or check.name in LASTING:
            about.append(check)
    return about
