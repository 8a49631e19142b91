"""The worker that gets the next arrival: found without looking at all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.loadgen.dispatch import workers as module
from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.dispatch.workers import LEAST_HEAP, STALE, WorkerLeases, Workers
from llama_load.servers.prompt import Prompt

NAMES = [f"w{number}" for number in range(6)]


def by_looking_at_all(workers: Workers) -> str | None:
    ready = [
        (workers[name].holders, workers[name].turn, name)
        for name in NAMES
        if workers[name].is_ready
    ]
    return min(ready)[2] if ready else None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("arrival", "end", "gone", "ready")), st.sampled_from(NAMES)
        ),
        max_size=80,
    )
)
def test_an_arrival_goes_to_the_worker_with_the_fewest_requests(
    steps: list[tuple[str, str]],
) -> None:
    """The same as the minimum over all workers, whatever they did before; no worker: none is
    ready."""
    workers = Workers()
    for index, (what, name) in enumerate(steps):
        worker = workers[name]
        if what == "arrival":
            expected = by_looking_at_all(workers)
            assert workers.idlest() == expected
            if expected is not None:
                workers[expected].hold([Lease(index, False, "chat")], 0)
        elif what == "end" and worker.holders:
            worker.let_go()
        elif what in ("gone", "ready"):
            worker.is_ready = what == "ready"
            worker.changed(worker)


def test_an_arrival_does_not_look_at_every_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """500 workers, 5000 arrivals and ends: two or three entries each. Looking at all of them would
    be 2.5 million."""
    workers, taken = Workers(), 0
    for number in range(500):
        worker = workers[f"w{number}"]
        worker.is_ready = True
        worker.changed(worker)
    real = module.heappop

    def counted(heap: Any) -> Any:
        nonlocal taken
        taken += 1
        return real(heap)

    monkeypatch.setattr(module, "heappop", counted)
    for index in range(5000):
        name = workers.idlest()
        assert name is not None
        workers[name].hold([Lease(index, False, "chat")], 0)
        if index >= 400:
            workers[f"w{index % 500}"].let_go()
    assert taken < 20_000


def test_a_closed_loop_from_which_nothing_is_taken_keeps_no_heap() -> None:
    """After an arrival of an open loop: it would grow with every request."""
    worker: WorkerLeases = (workers := Workers())["w"]
    worker.is_ready = True
    assert workers.idlest() == "w"
    sizes = set()
    for index in range(1000):
        worker.hold([Lease(index, False, "chat")], 0)
        worker.let_go()
        sizes.add(len(workers._heap or ()))
    assert max(sizes) <= LEAST_HEAP + STALE + 1
    assert workers._heap is None
    assert workers.idlest() == "w"


def test_sub_agents_begin_together_and_the_next_own_turn_after_them() -> None:
    """A turn, agents a (two turns) and b (one), a turn, a again, the last turn. While the first one
    is sent, a and b could begin; while both agents' last ones are, the next own turn could; while
    only b's is, it could not. The second time, a waits for the own turn before it."""

    def possible(*begun: int, ended: int = 0) -> set[int]:
        worker = WorkerLeases()
        names = (None, "a", "a", "b", None, "a", None)
        leases = [
            Lease(i, False, "w", Prompt("", agent=name), follows=i > 0)
            for i, name in enumerate(names)
        ]
        worker.hold(leases, 0)
        for index in range(ended):
            del worker.leases[False, index]  # its record is stored
        return {
            index
            for _, index in module.could_have_begun(
                worker.leases, {(False, index) for index in begun}, 1
            )
        }

    assert possible(0) == {0, 1, 3}
    assert possible(ended=1) == {1, 2, 3}
    assert possible(1, 3, ended=1) == {1, 2, 3}
    assert possible(2, 3, ended=2) == {2, 3, 4}
    assert possible(3, ended=1) == {1, 2, 3}
    assert possible(4, ended=4) == {4, 5}
