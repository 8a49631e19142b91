"""Simulated swarms: the real master and workers on a virtual loop, network and disk (`benchmarks/swarm_simulation`).

A failure prints the faults of its seed; `python -m benchmarks.simulate_swarm --seeds 1 --from SEED` prints the shrunk story.
"""

from __future__ import annotations

import gevent
import pytest

from benchmarks.swarm_simulation.planted import planted
from benchmarks.swarm_simulation.virtual_loop import NS, Livelock, virtual_time
from benchmarks.swarm_simulation.world import run_seed

# 0.1 s of CPU each; `make test-heavy` has more of them.
SEEDS = 72
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_in_every_seed(part: int) -> None:
    """Every request is recorded once or named, the run ends, and so does the next one on the same master."""
    for seed in range(part, SEEDS, PARTS):
        story = run_seed(seed)
        assert not story.broken, str(story)
        assert story.turns > 100


def test_a_seed_is_repeatable() -> None:
    assert run_seed(7).trace == run_seed(7).trace
    assert run_seed(7).trace != run_seed(8).trace


def test_a_planted_bug_is_found() -> None:
    """All of them: tests/heavy/test_simulated_swarms.py."""
    with planted("end: the last records are dropped"):
        assert any(run_seed(seed).broken for seed in range(10))


def test_virtual_time_takes_no_time() -> None:
    """Sleeps, timeouts and joins are at exact instants, in their order; what never waits is a livelock."""
    seen: list[tuple[str, int]] = []
    with virtual_time() as loop:
        begun_ns = loop.now_ns

        def note(name: str, seconds: float) -> None:
            gevent.sleep(seconds)
            seen.append((name, loop.now_ns - begun_ns))

        gevent.joinall([gevent.spawn(note, "later", 3600), gevent.spawn(note, "soon", 0.25)])
        with gevent.Timeout(5, False):
            gevent.sleep(60)
        seen.append(("timeout", loop.now_ns - begun_ns))

        def spin() -> None:
            while True:
                gevent.sleep(0)

        with pytest.raises(Livelock):
            gevent.spawn(spin).join()
    assert seen == [("soon", NS // 4), ("later", 3600 * NS), ("timeout", 3605 * NS)]
