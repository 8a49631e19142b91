"""Many seeds of simulated swarms, and bugs that they must find."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.searching import SECONDS, SEED, seeds
from tests.simulation.planted import PLANTED, SHOWN_BY, planted
from tests.simulation.world import run_seed

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(SECONDS + 840)]

# After those of the default tests. A seed takes 0.13 s of CPU.
FIRST_SEED = 1_000 * SEED
SEEDS_A_BUG = 400


def first_broken(bug: str | None = None) -> str:
    """The story of the first seed that breaks a promise, with this bug; "" if none does."""
    for seed in seeds(FIRST_SEED) if bug is None else range(SEEDS_A_BUG):
        if bug is None:
            story = run_seed(seed)
        else:
            with planted(bug):
                story = run_seed(seed, SHOWN_BY.get(bug))
        if story.broken:
            return str(story)
    return ""


def in_a_process(bug: str | None = None) -> str:
    """The same in a process of its own: a seed leaves 0.2 MiB behind, and 8 of address space, with
    which the tests that follow could start no programs."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(first_broken, bug).result()


@pytest.mark.search
def test_promises_hold_for_many_seeds() -> None:
    """Catches an order of messages and faults that breaks a promise once in a thousand seeds."""
    assert in_a_process() == ""


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    """Catches a simulation that has become blind to a kind of bug."""
    assert in_a_process(bug)
