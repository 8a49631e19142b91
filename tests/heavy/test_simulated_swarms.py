"""Many seeds of simulated swarms, and bugs that they must find."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.simulation.planted import PLANTED, SHOWN_BY, planted
from tests.simulation.world import run_seed

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

# After those of the default tests. A seed takes 0.13 s of CPU: these take five minutes.
SEEDS = range(1_000, 2_600)
PARTS = 4
SEEDS_A_BUG = 400


def first_broken(seeds: Sequence[int], bug: str | None = None) -> str:
    """The story of the first seed that breaks a promise, with this bug; "" if none does."""
    for seed in seeds:
        if bug is None:
            story = run_seed(seed)
        else:
            with planted(bug):
                story = run_seed(seed, SHOWN_BY.get(bug))
        if story.broken:
            return str(story)
    return ""


def in_a_process(seeds: Sequence[int], bug: str | None = None) -> str:
    """The same in a process of its own: a seed leaves 0.2 MiB behind, and 8 of address space, with
    which the tests that follow could start no programs."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(first_broken, seeds, bug).result()


@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_for_many_seeds(part: int) -> None:
    assert in_a_process(SEEDS[part::PARTS]) == ""


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    assert in_a_process(range(SEEDS_A_BUG), bug)
