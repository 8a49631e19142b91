"""Few requests show large changes by their gaps, and servers whose answers have speeds of their own
are not accused."""

from __future__ import annotations

import numpy as np
import pytest

from llama_load.analysis.statistics.changes import Change
from llama_load.analysis.statistics.gap_changes import gap_change, gap_slices, pieces_of
from tests.make_records import record, table
from tests.queue_runs import QueueRun, Slowdown, closed_loop

END = 1e7


def looked_at(run: QueueRun) -> Change | None:
    """The change of these answers' gaps, which are even within each; from the first end to the last
    start."""
    sizes = (run.tokens - 1).astype(np.int64)
    pieces = pieces_of(run.first_ns, sizes, np.repeat(run.tpot_ms, sizes))
    slices = gap_slices(pieces, int(run.ended_ns.min()), int(run.started_ns.max()))
    return None if slices is None else gap_change(pieces, slices)


@pytest.mark.parametrize("users", [1, 4, 8])
def test_answers_with_speeds_of_their_own_are_no_change(users: int) -> None:
    """20 to 60 requests, speeds lognormal with sigma 1: none of 60 runs."""
    for count in (20, 36, 60):
        for seed in range(20):
            run = closed_loop(
                np.random.default_rng(seed),
                count,
                users,
                "lognormal",
                varies="speed",
                slots=users,
            )
            assert looked_at(run) is None


def test_a_server_that_gets_five_times_slower_is_seen_in_36_requests() -> None:
    """Gaps grow evenly from 8 to 38 ms: 4 users, 36 answers of 200 tokens."""
    first_ns, gaps, now = [], [], [0.0] * 4
    whole_ms = 36 / 4 * 200 * 23.0
    for number in range(36):
        at_ms = now[number % 4]
        first_ns.append(round(at_ms * 1e6))
        for _ in range(199):
            gaps.append(8 + 30 * at_ms / whole_ms)
            at_ms += gaps[-1]
        now[number % 4] = at_ms
    pieces = pieces_of(np.array(first_ns), np.full(36, 199), np.array(gaps))
    slices = gap_slices(pieces, 0, max(first_ns))
    assert slices is not None
    change = gap_change(pieces, slices)
    assert change is not None and change.size > 2


def test_a_step_is_seen_by_the_answers_on_both_sides_of_it() -> None:
    """Four times as slow from half of the time on: in at least 9 of 10 runs of 40 requests."""
    found = []
    for seed in range(10):
        run = closed_loop(
            np.random.default_rng(seed),
            40,
            4,
            "deterministic",
            changes=[Slowdown(5, END, 4)],
        )
        found.append(looked_at(run))
    seen = [change for change in found if change is not None]
    assert len(seen) >= 9
    assert all(3 < change.size < 5 for change in seen)


def test_an_answer_is_cut_into_pieces() -> None:
    """20 gaps: two pieces of ten; seven gaps: none."""
    records = table(
        record(0, gaps_ms=(10.0,) * 10 + (20.0,) * 10), record(1, gaps_ms=(5.0,) * 7)
    )
    sizes, gaps = records.lists("itl_ms")
    pieces = pieces_of(records.optional_instants("first_token_mono_ns"), sizes, gaps)
    assert pieces.answer.tolist() == [0, 0]
    assert pieces.gap_ms.tolist() == pytest.approx([10, 20])
    assert (pieces.to_ns - pieces.from_ns).tolist() == pytest.approx(
        [100e6, 200e6], rel=1e-3
    )
