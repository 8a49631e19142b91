"""Many seeds of simulated swarms, and bugs that they must find."""

from __future__ import annotations

import time

import pytest

from benchmarks.swarm_simulation.planted import PLANTED, SHOWN_BY, planted
from benchmarks.swarm_simulation.world import run_seed

pytestmark = pytest.mark.heavy

FIRST = 1_000
CPU_S = 90.0
SEEDS_A_BUG = 400


def test_promises_hold_for_many_seeds() -> None:
    """About a thousand, after those of the default tests."""
    seed = FIRST
    begun_s = time.process_time()
    while time.process_time() - begun_s < CPU_S:
        story = run_seed(seed)
        assert not story.broken, str(story)
        seed += 1
    assert seed > FIRST + 100


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    with planted(bug):
        assert any(run_seed(seed, SHOWN_BY.get(bug)).broken for seed in range(SEEDS_A_BUG))
