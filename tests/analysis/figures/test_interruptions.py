"""A server that stood still is named, with the figures that it moves; long prompts and single slow
streams are no such thing."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from llama_load.analysis.checks.interruptions import connected_late, stood_still
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.interruption import moved_by
from llama_load.analysis.figures.spoiled import E2EL, RATES, TPOT, TTFT
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.statistics.standstill import standstill
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.worker_health import WorkerHealth
from tests.make_records import MS, record, table

GAPS = 20


def answers(
    users: int = 4,
    each: int = 10,
    *,
    stall_ms: float = 0.0,
    of: int | None = None,
    at: int = 100,
) -> list[RequestRecord]:
    """A closed loop: gaps of 20 ms with a scatter of 10 %, first tokens after 100 ms. The server
    stands still for `stall_ms` when the first user's answers have had `at` gaps; `of`: so many
    users notice it (None: all)."""
    draw = np.random.default_rng(1)
    made: list[RequestRecord] = []
    until_ms = None
    for user in range(users):
        at_ms = 5.0 * user
        gone = 0
        for _ in range(each):
            gaps_ms = 20.0 * draw.lognormal(0, 0.1, GAPS)
            begin_ms = at_ms + 100
            if user == 0 and gone <= at < gone + GAPS:
                until_ms = begin_ms + float(gaps_ms[: at - gone].sum())
            gone += GAPS
            is_hit = of is None or user < of
            ends_ms = begin_ms + np.cumsum(gaps_ms)
            if (
                stall_ms
                and is_hit
                and until_ms is not None
                and begin_ms <= until_ms < ends_ms[-1]
            ):
                gaps_ms[int(np.searchsorted(ends_ms, until_ms))] += stall_ms
            each_ms = tuple(float(gap) for gap in gaps_ms)
            made.append(record(len(made), start_ms=at_ms, gaps_ms=each_ms))
            at_ms = begin_ms + sum(each_ms) + 1
    return made


def check_of(made: list[RequestRecord], **more: object) -> Check | None:
    records = table(*made)
    evidence = Evidence(records=records, figures=summarize(records))
    return next(stood_still(replace(evidence, **more)), None)  # type: ignore[arg-type]


def test_a_server_that_stands_still_for_a_second_of_five_is_named() -> None:
    check = check_of(answers(stall_ms=1000.0))
    assert check is not None and not check.ok
    assert {TPOT, E2EL, RATES} <= set(check.spoils)
    assert "stood still for 10" in check.text


def test_a_standstill_of_a_hundredth_of_the_time_spoils_no_mean() -> None:
    check = check_of(answers(users=1, each=40, stall_ms=200.0))
    assert check is not None and check.ok
    assert check.value == pytest.approx(0.01, abs=0.01)


def test_no_standstill_without_a_stall_or_in_one_stream_of_four() -> None:
    assert check_of(answers()) is None
    assert check_of(answers(stall_ms=1000.0, of=1)) is None


def test_a_pause_of_the_client_is_not_the_servers() -> None:
    paused = WorkerHealth("local", longest_pause_ms=950.0)
    assert check_of(answers(stall_ms=1000.0), health=[paused]) is None


def test_a_server_that_stands_still_between_answers_is_named() -> None:
    """A queue at one slot: prompts of a second, answers of a tenth, nothing for 10 s in the middle.
    Before the first token of all, and where prompts may be cached, no such time is known."""
    draw = np.random.default_rng(3)

    def queue(stalled: int | None) -> list[RequestRecord]:
        made = []
        free_ms = 0.0
        for number in range(60):
            start_ms = 1300.0 * number
            begin_ms = max(start_ms, free_ms)
            prefill_ms = 1000.0 * float(draw.lognormal(0, 0.1))
            if number == stalled:
                prefill_ms += 10_000.0
            first_ms = begin_ms + prefill_ms - start_ms
            gaps_ms = tuple(8.0 * draw.lognormal(0, 0.1, 16))
            made.append(
                record(number, start_ms=start_ms, first_ms=first_ms, gaps_ms=gaps_ms)
            )
            free_ms = start_ms + first_ms + sum(gaps_ms)
        return made

    check = check_of(queue(30))
    assert check is not None and not check.ok
    assert {TTFT, E2EL} <= set(check.spoils)
    assert check_of(queue(None)) is None
    assert check_of(queue(0)) is None
    second_turns = [replace(each, turn=2, cached_tokens=None) for each in queue(30)]
    assert check_of(second_turns) is None


def test_a_long_prompt_that_is_processed_alone_is_no_standstill() -> None:
    """Forty times as many tokens as others; its first token ends the gap."""
    made = answers(users=1, stall_ms=1000.0)
    assert standstill(table(*made), np.ones(len(made), bool)) is not None
    gap = max(made, key=lambda each: max(each.itl_ms or [0.0]))
    gaps_ms = list(gap.itl_ms or [])
    longest = int(np.argmax(gaps_ms))
    end_ms = (gap.first_token_mono_ns or 0) / MS + sum(gaps_ms[: longest + 1])
    prompt = record(
        999,
        start_ms=end_ms - 1000,
        first_ms=1000,
        gaps_ms=(20.0,) * 4,
        prompt_tokens=400,
    )
    assert standstill(table(*made, prompt), np.ones(len(made) + 1, bool)) is None


def test_looking_for_a_standstill_takes_no_memory_for_each_token() -> None:
    """Four bytes a token are read in any case; of a million answers with 200 gaps each, all long
    ones took 2 GB."""
    gaps = np.random.default_rng(1).exponential(20, (12_000, 100)).astype(np.float32)
    offsets = pa.array(np.arange(0, gaps.size + 1, 100, dtype=np.int32))
    lists = pa.ListArray.from_arrays(offsets, pa.array(gaps.ravel()))
    first_ns = pa.array(np.arange(12_000) * MS)
    answered = pa.table({"itl_ms": lists, "first_token_mono_ns": first_ns})
    tracemalloc.start()
    try:
        assert standstill(Records(answered), np.zeros(12_000, bool)) is None
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 12 << 20


def test_half_of_the_time_is_half_of_the_means_and_rates() -> None:
    """Two answers of 100 and 2 x 20 ms; nothing came between 40 and 60 ms of the first one."""
    records = table(record(0), record(1, start_ms=200))
    moved = moved_by(
        records,
        40 * MS,
        60 * MS,
        percentiles=(99.0,),
        stops_streams=True,
        is_open=False,
    )
    assert moved.shifts["TTFT"] == pytest.approx(20 / 200)
    assert moved.shifts[E2EL] == moved.shifts[RATES] == pytest.approx(20 / 280)
    assert moved.shifts[TPOT] == 0


def test_requests_of_an_open_loop_queue_up_behind_it() -> None:
    """The second one starts after it, and waits until the first has ended."""
    records = table(record(0), record(1, start_ms=70, first_ms=200))
    shifts = [
        moved_by(
            records,
            40 * MS,
            60 * MS,
            percentiles=(),
            stops_streams=True,
            is_open=is_open,
        ).shifts["TTFT"]
        for is_open in (False, True)
    ]
    assert shifts[1] >= shifts[0] > 0


def _connecting(
    late: int, connect_ms: float, own_delay_ms: float = 0.1
) -> Check | None:
    """Of 40 requests the first `late` have a connection after so long, with as much more TTFT."""
    rows = []
    for number in range(40):
        more_ms = connect_ms if number < late else 0.0
        row = record(number, start_ms=3000.0 * number, first_ms=300.0 + more_ms)
        own_ms = own_delay_ms if number < late else 0.1
        rows.append(replace(row, connect_ms=1.0 + more_ms, own_delay_ms=own_ms))
    records = table(*rows)
    evidence = Evidence(records=records, figures=summarize(records))
    return next(connected_late(evidence), None)


def test_connections_that_take_a_second_are_named_where_they_move_a_figure() -> None:
    """2 of 40 requests wait 1 s for their connection: mean TTFT is 350 ms, 300 without."""
    check = _connecting(2, 1000.0)
    assert check is not None and not check.ok
    assert check.value is not None
    assert {TTFT, E2EL, RATES} <= set(check.spoils)
    assert check.text.startswith(
        "2 of 40 connections took 1001 ms (median), the others 0.9 ms"
    )
    assert _connecting(40, 1000.0) is None  # all alike: the network
    assert _connecting(2, 50.0) is None
    assert _connecting(2, 1000.0, own_delay_ms=1000.0) is None  # the client's own
