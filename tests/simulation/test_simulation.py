"""Simulated swarms: the real master and workers on a virtual loop, network and disk
(`tests/simulation`).

A failure prints the faults of its seed; `python -m tests.simulation --seeds 1 --from SEED`
prints the shrunk story.
"""

from __future__ import annotations

import gevent
import pytest
from gevent.event import Event

from tests.simulation import virtual_loop, world
from tests.simulation.planted import SHOWN_BY, planted
from tests.simulation.virtual_loop import NS, Livelock, virtual_time
from tests.simulation.world import run_seed

# On a quiet machine a seed takes 0.08 s of CPU. `make search` has more of them.
SEEDS = 9
PARTS = 3
# Virtual seconds: long enough for the faults of these bugs, after which a run must have ended.
MENDED_END_WITHIN_S = 150.0
# Bugs that the code had, and a seed that shows each with the faults in `SHOWN_BY`.
MENDED = (
    ("start: a lost message is not sent again", 72),
    ("start: a lost word of a ready worker is not sent again", 204),
    ("start: a lost configuration is not asked for", 6),
    ("end: a worker's lost last word is not said again", 7),
    ("end: a worker that quits begins again", 3),
    ("lease: a late report ends the next one", 39),
)


@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_in_every_seed(part: int) -> None:
    """Every request is recorded once or named, the run ends, and so does the next one on the same
    master."""
    for seed in range(part, SEEDS, PARTS):
        story = run_seed(seed)
        assert not story.broken, str(story)
        assert story.turns > 100


@pytest.mark.parametrize(("bug", "seed"), MENDED)
def test_what_was_found_is_mended(
    bug: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same faults, the seed breaks a promise where the bug is planted again."""
    monkeypatch.setattr(world, "ENDS_WITHIN_S", MENDED_END_WITHIN_S)
    story = run_seed(seed, SHOWN_BY[bug])
    assert not story.broken, str(story)
    with planted(bug):
        assert run_seed(seed, SHOWN_BY[bug]).broken


def test_a_worker_back_in_the_next_run_asks_for_its_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next run has begun before the master hears again that the worker is ready."""
    monkeypatch.setattr(world, "UNTIL_SECOND_RUN_S", (0.0, 0.0))
    story = run_seed(
        92, SHOWN_BY["start: a lost word of a ready worker is not sent again"]
    )
    assert not story.broken, str(story)


@pytest.mark.parametrize("seed", [12, 15])
def test_a_seed_is_repeatable(seed: int) -> None:
    """Wherever its objects are in memory. In 12, tasks hold answers open to the end."""
    traces = set()
    elsewhere = []
    for _ in range(3):
        elsewhere.append([Event() for _ in range(97)])
        traces.add(run_seed(seed).trace)
    assert len(traces) == 1


def test_seeds_differ() -> None:
    assert run_seed(15).trace != run_seed(19).trace


def test_a_planted_bug_is_found() -> None:
    """All of them: tests/heavy/test_simulated_swarms.py."""
    with planted("end: the last records are dropped"):
        assert any(run_seed(seed).broken for seed in range(10))


def test_a_run_in_which_nothing_happens_is_found() -> None:
    """No fault, no request, and the run ends: without loss, but also without a record."""
    with planted("start: no worker begins"):
        assert "nothing was recorded" in run_seed(1, []).broken


def test_virtual_time_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleeps, timeouts and joins are at exact instants, in their order; what never waits is a
    livelock."""
    monkeypatch.setattr(virtual_loop, "MOST_TURNS_AT_ONCE", 1_000)
    seen: list[tuple[str, int]] = []
    with virtual_time() as loop:
        begun_ns = loop.now_ns

        def note(name: str, seconds: float) -> None:
            gevent.sleep(seconds)
            seen.append((name, loop.now_ns - begun_ns))

        gevent.joinall(
            [gevent.spawn(note, "later", 3600), gevent.spawn(note, "soon", 0.25)]
        )
        with gevent.Timeout(5, False):
            gevent.sleep(60)
        seen.append(("timeout", loop.now_ns - begun_ns))

        def spin() -> None:
            while True:
                gevent.sleep(0)

        with pytest.raises(Livelock):
            gevent.spawn(spin).join()
    assert seen == [("soon", NS // 4), ("later", 3600 * NS), ("timeout", 3605 * NS)]
