"""A swarm whose network fails while `--at-end wait` waits for the last requests, on a virtual clock
(`tests/simulation`)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import gevent
import pytest

from llama_load.loadgen.swarm import messages, presence
from llama_load.loadgen.swarm.master import MasterRun
from tests.simulation.machines import spooled_ids
from tests.simulation.network import WAYS
from tests.simulation.virtual_loop import virtual_time
from tests.simulation.world import World, broken_of

ANSWER_S = 3.0
WAIT_S = 900.0
CUT_AFTER_END_S = 1.0


class Steady(Random):
    """Every answer takes the same time."""

    def expovariate(self, lambd: float = 1.0) -> float:
        return ANSWER_S


@pytest.fixture
def world() -> Iterator[World]:
    """Requests of 3 s for 8 s; then what is in flight is waited for."""
    with virtual_time() as loop:
        world = World(loop, seed=1)
        world.server.chance = Steady()
        world.most_users = world.plan.users = 4
        world.plan.requests = world.plan.rate_rps = None
        world.plan.seconds = 8.0
        world.plan.warmup = 0
        world.plan.wait_at_end_s = WAIT_S
        gevent.sleep(3)  # of virtual time: all workers have joined
        world.master.begin(world.plan)
        yield world


def run_cut_off_for(seconds: float, world: World) -> tuple[MasterRun, float]:
    """The run, all of whose workers are cut off in its drain, and how long its end took."""
    for worker in world.workers:
        assert worker.link is not None
        cut = (set(WAYS), seconds)
        worker.link.traps.append(
            (
                messages.END,
                lambda link=worker.link, cut=cut: link.later(
                    CUT_AFTER_END_S, link.cut_off, *cut
                ),
            )
        )
    while not world.master.finished:
        gevent.sleep(0.1)  # of virtual time
    took_ns = world.loop.now_ns - world.master.stopped_ns[0]
    return world.master.finished[0], took_ns / 1e9


def test_a_worker_whose_master_is_silent_for_15_s_in_the_drain_goes_on(
    world: World,
) -> None:
    """What ended meanwhile is delivered when the network is back; nothing is lost, cut or only in a
    spool."""
    run, took_s = run_cut_off_for(15, world)
    assert broken_of(world, run, world.server.log) == []
    assert {status for _, _, status, _ in run.prepared.writer.rows} == {"ok"}
    gevent.sleep(1)  # the last acknowledgements are on their way
    assert spooled_ids(world.machines) == set()
    assert 15 < took_s < 25


def test_a_worker_that_gave_up_says_so_when_it_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the worker is the less patient one. The master asks again, and hears that nothing more
    will come; it waited 900 s."""
    monkeypatch.setattr(presence, "LOST_AFTER_S", 10)
    run, took_s = run_cut_off_for(20, world)
    stored = {request_id for _, _, _, request_id in run.prepared.writer.rows}
    sent = {request.request_id for request in world.server.log}
    assert all(worker.gave_up for worker in run._workers.values())
    assert len(sent - stored) == world.plan.users
    assert sent - stored <= spooled_ids(world.machines)
    assert 20 < took_s < 30
