"""Many seeds of simulated swarms, and bugs that they must find."""

from __future__ import annotations

import pytest

from benchmarks.swarm_simulation.planted import PLANTED, SHOWN_BY, planted
from benchmarks.swarm_simulation.world import run_seed

pytestmark = pytest.mark.heavy

# After those of the default tests. A seed takes 0.1 s of CPU.
SEEDS = range(1_000, 1_600)
PARTS = 4
SEEDS_A_BUG = 400


@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_for_many_seeds(part: int) -> None:
    for seed in SEEDS[part::PARTS]:
        story = run_seed(seed)
        assert not story.broken, str(story)


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    with planted(bug):
        assert any(run_seed(seed, SHOWN_BY.get(bug)).broken for seed in range(SEEDS_A_BUG))
