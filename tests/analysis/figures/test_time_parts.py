"""Where the time went: the parts sum to E2EL whatever the records hold, and each part is that of
the planted schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.analysis.figures.time_parts import KEYS, RequestParts, request_parts
from llama_load.analysis.figures.time_sums import SharedDecode, TimeParts, sum_up
from llama_load.analysis.statistics.intervals import (
    Intervals,
    queue_grants,
    slot_grants,
)
from llama_load.run_folder.observed.record import RequestRecord
from tests.make_records import MS, failed, record, table

HOST = "http://h"


def llama(
    index: int = 0,
    *,
    start_ms: float = 0,
    queue_ms: float | None = 0,
    prompt_ms: float = 99,
    gaps_ms: tuple[float, ...] = (20, 20),
    **changed: Any,
) -> RequestRecord:
    """A request as llama-server reports it: sent 1 ms after its start, headers when it has a slot,
    then its prompt."""
    fields: dict[str, Any] = {
        "queue_ms": queue_ms,
        "server_prompt_ms": prompt_ms,
        "server_predict_ms": sum(gaps_ms),
    }
    return record(
        index,
        start_ms=start_ms,
        first_ms=1 + (queue_ms or 0) + prompt_ms,
        gaps_ms=gaps_ms,
        **fields | changed,
    )


def parts_of(*records: RequestRecord, slots: int | None = 4) -> RequestParts:
    return request_parts(table(*records), {} if slots is None else {HOST: slots})


def known(parts: RequestParts, row: int = 0) -> dict[str, float]:
    """The known parts of a request that are not 0, ms."""
    return {
        key: round(float(parts[key][row]), 3) for key in KEYS if parts[key][row] > 0
    }


def sums(*records: RequestRecord, slots: int | None = 4) -> TimeParts:
    found = sum_up(parts_of(*records, slots=slots))
    assert found is not None
    return found


def decode_of(*records: RequestRecord) -> SharedDecode:
    found = sums(*records).decode
    assert found is not None
    return found


def vllm(index: int = 0, *, first_ms: float = 381) -> RequestRecord:
    """A request as vLLM reports it with --enable-per-request-metrics, sent after 1 ms: 300 ms in
    the queue, 80 ms from there to the first token, 40 ms to the last."""
    own = {
        "server_queue_ms": 300.0,
        "server_prompt_ms": 80.0,
        "server_predict_ms": 40.0,
    }
    return record(index, first_ms=first_ms, **own)


def test_the_servers_own_queue_is_its_wait() -> None:
    """Whatever was in flight beside it, and whether its slots are known or not."""
    expected = {"connect": 1, "slot_wait": 300, "prefill": 80, "decode_alone": 40}
    for slots in (None, 1, 4):
        assert known(parts_of(vllm(0), vllm(1), slots=slots), 1) == expected


def test_what_the_servers_queue_does_not_explain_is_not_attributed() -> None:
    """50 ms between sending and its queue: reading the prompt, a router."""
    found = known(parts_of(vllm(first_ms=431), slots=None))
    assert (found["slot_wait"], found["unattributed"]) == (300, 50)


# ------------------------------------------------------------------ they sum to E2EL

instants = st.none() | st.integers(-50, 500).map(lambda ms: ms * MS)
times = st.none() | st.floats(0, 400)


@st.composite
def any_record(draw: st.DrawFn) -> RequestRecord:
    gaps = tuple(draw(st.lists(st.floats(0, 300, width=32), max_size=4)))
    start_ms, first_ms = draw(st.integers(0, 300)), draw(st.floats(0, 300))
    changed: dict[str, Any] = {
        "host": draw(st.sampled_from([HOST, "http://other"])),
        "status": draw(st.sampled_from(["ok", "ok", "ok", "cancelled", "reset"])),
        "sent_mono_ns": draw(instants),
        "queue_ms": draw(times),
        "client_queue_ms": draw(times),
        "server_queue_ms": draw(times),
        "server_prompt_ms": draw(times),
        "server_predict_ms": draw(times),
        "images": draw(st.sampled_from([None, None, 2])),
        "warmup": draw(st.booleans()),
    }
    if not gaps and draw(st.booleans()):  # not streamed
        changed |= {
            "first_token_mono_ns": None,
            "last_token_mono_ns": None,
            "ttft_ms": None,
        }
    return record(start_ms=start_ms, first_ms=first_ms, gaps_ms=gaps, **changed)


@given(st.lists(any_record(), min_size=1, max_size=8), st.none() | st.integers(1, 4))
def test_the_parts_sum_to_e2el(records: list[RequestRecord], slots: int | None) -> None:
    """For every request with an E2EL, whatever its stamps and the server's own times claim; and no
    part is negative."""
    parts = parts_of(*records, slots=slots)
    for row, each in enumerate(records):
        if each.status != "ok" or each.e2el_ms is None:
            assert np.isnan(parts["total_ms"][row])
            assert all(np.isnan(parts[key][row]) for key in KEYS)
            continue
        values = [parts[key][row] for key in KEYS if not np.isnan(parts[key][row])]
        assert sum(values) == pytest.approx(
            each.e2el_ms + (each.client_queue_ms or 0), abs=0.01
        )
        assert min(values) > -0.01


@given(st.lists(any_record(), min_size=1, max_size=8))
def test_the_sums_of_the_parts_are_the_sum_of_e2el(
    records: list[RequestRecord],
) -> None:
    found = sum_up(parts_of(*records))
    if found is not None:
        assert sum(
            part.sum_ms for part in found.parts.values() if part is not None
        ) == pytest.approx(found.total_ms, abs=0.1)


# ------------------------------------------------------------------ each part, on a schedule


def test_a_request_alone() -> None:
    """1 ms to connect and send, 99 ms prefill, 40 ms decode: nothing else, and nothing left
    over."""
    assert known(parts_of(llama())) == {"connect": 1, "prefill": 99, "decode_alone": 40}


def test_one_slot_makes_the_second_request_wait() -> None:
    """The first is served from 1 to 141 ms; the second has its headers then. Its wait is that for a
    slot, not for batches, although the first was being prefilled."""
    second = llama(1, queue_ms=140)
    assert known(parts_of(llama(), second, slots=1), 1) == {
        "connect": 1,
        "slot_wait": 140,
        "prefill": 99,
        "decode_alone": 40,
    }


def test_a_wait_that_the_servers_own_times_do_not_explain_is_counted() -> None:
    """One slot, 139 ms a request. Eight that come at once wait for each other. Eight that come each
    200 ms do not; a proxy that holds back their tokens for 600 ms makes the slot look taken."""
    queue = [llama(index, queue_ms=139 * index) for index in range(8)]
    assert parts_of(*queue, slots=1)["queue_excess"] == pytest.approx(0, abs=1e-6)
    assert sums(*queue, slots=1).unexplained_ms == pytest.approx(0, abs=1e-6)

    held = []
    for index in range(8):
        late = llama(index, start_ms=200 * index, queue_ms=600)
        held.append(replace(late, queue_ms=None))
    found = parts_of(*held, slots=1)
    assert found["slot_wait"].mean() > 300
    assert found["queue_excess"].sum() == pytest.approx(found["slot_wait"].sum())
    assert sums(*held, slots=1).unexplained_ms == pytest.approx(600, abs=5)
    assert parts_of(*held, slots=None)["queue_excess"].tolist() == [0] * 8

    with_images = [replace(request, images=1) for request in held]
    assert parts_of(*with_images, slots=1)["queue_excess"].tolist() == [0] * 8


def test_with_a_slot_free_the_wait_is_for_other_prompts_batches() -> None:
    """The first prompt fills the batches until 100 ms; then the second begins, and the first
    decodes meanwhile."""
    parts = parts_of(llama(gaps_ms=(99,)), llama(1, queue_ms=99), slots=2)
    assert known(parts, 1) == {
        "connect": 1,
        "batch_wait": 99,
        "prefill": 99,
        "decode_alone": 40,
    }
    assert known(parts, 0) == {"connect": 1, "prefill": 99, "decode_shared": 99}


def test_prompts_in_the_same_batches_share_their_time() -> None:
    """Two are prefilled together from 1 to 100 ms: each has half of it, and waits for the other in
    the other half."""
    assert known(parts_of(llama(), llama(1)), 1) == {
        "connect": 1,
        "batch_wait": 49.5,
        "prefill": 49.5,
        "decode_alone": 40,
    }


def test_requests_to_another_replica_change_nothing() -> None:
    other = llama(1, start_ms=110, host="http://other", prompt_ms=30)
    assert known(parts_of(llama(), other)) == {
        "connect": 1,
        "prefill": 99,
        "decode_alone": 40,
    }


def test_a_warm_up_or_a_cancelled_request_disturbs_like_any_other() -> None:
    """It has its slot from 104 ms on and is cut at 125 ms, before its first token: the gap from 100
    to 120 ms is its."""
    cut = llama(
        1,
        start_ms=100,
        queue_ms=3,
        first_token_mono_ns=None,
        status="cancelled",
        ended_mono_ns=125 * MS,
        e2el_ms=None,
    )
    assert known(parts_of(llama(), cut))["decode_shared"] == 20
    assert (
        known(parts_of(llama(), llama(1, start_ms=100, prompt_ms=19, warmup=True)))[
            "decode_shared"
        ]
        == 20
    )


def test_the_server_without_times_leaves_what_it_does_not_report_together() -> None:
    """Its headers come at once: between sending and first token, waiting and prefill cannot be
    separated."""
    parts = parts_of(record())
    assert known(parts) == {"connect": 1, "unattributed": 99, "decode_alone": 40}
    assert all(
        np.isnan(parts[key][0])
        for key in ("slot_wait", "batch_wait", "prefill", "network")
    )


def test_unknown_slots_leave_the_wait_unattributed() -> None:
    assert known(parts_of(llama(queue_ms=50), slots=None))["unattributed"] == 50


def test_images_are_read_before_the_wait_for_a_slot() -> None:
    """With a slot free, 50 ms between sending and the prompt are the images'; not where it had to
    wait for a slot."""
    vision = llama(
        1,
        images=1,
        queue_ms=None,
        prompt_ms=100,
        first_token_mono_ns=151 * MS,
        ttft_ms=151,
        e2el_ms=191,
    )
    assert known(parts_of(vision)) == {
        "connect": 1,
        "image_prefill": 150,
        "decode_alone": 40,
    }
    busy = llama(0, start_ms=-50, gaps_ms=(20,))
    assert known(parts_of(busy, vision, slots=1), 1)["image_prefill"] == 100


def test_time_beyond_the_servers_own_is_the_networks() -> None:
    """The server decoded for 30 ms of 40, and its prompt took 89 ms of the 99 after the headers."""
    slow = llama(server_prompt_ms=89, server_predict_ms=30)
    assert known(parts_of(slow)) == {
        "connect": 1,
        "prefill": 89,
        "decode_alone": 30,
        "network": 20,
    }


def test_an_open_loop_begins_with_the_client_queue() -> None:
    parts = parts_of(llama(client_queue_ms=250))
    assert known(parts)["client_queue"] == 250
    assert parts["total_ms"][0] == 250 + 140


def test_an_answer_that_is_not_streamed_is_split_by_the_servers_times() -> None:
    whole = llama(
        queue_ms=None,
        prompt_ms=89,
        server_predict_ms=40,
        first_token_mono_ns=None,
        ttft_ms=None,
        e2el_ms=140,
        itl_ms=[],
    )
    assert known(parts_of(whole)) == {
        "connect": 1,
        "unattributed": 10,
        "prefill": 89,
        "decode_alone": 40,
    }


def test_a_wait_with_a_slot_free_and_nobody_in_prefill_is_unattributed() -> None:
    """Another client's requests may be in the slots, or the server reads a long prompt."""
    assert known(parts_of(llama(queue_ms=50))) == {
        "connect": 1,
        "unattributed": 50,
        "prefill": 99,
        "decode_alone": 40,
    }


def test_failed_requests_have_no_parts_and_no_sums() -> None:
    assert sum_up(parts_of(failed())) is None


# ------------------------------------------------------------------ decode while others are
# prefilled


def test_few_gaps_of_the_reference_took_most_of_the_decode_time() -> None:
    """8 requests of 128 tokens. 56 of their 1016 gaps take 1158 ms, while another request is
    prefilled; 960 take 44 ms."""
    disturbed = (44.0,) * 60 + (1158.0,) * 7 + (44.0,) * 60
    begin_ms, prefill_ms = 100 + 60 * 44, 7 * 1158
    others = llama(9, start_ms=begin_ms - 1, prompt_ms=prefill_ms, gaps_ms=())
    found = decode_of(*(llama(index, gaps_ms=disturbed) for index in range(8)), others)
    assert (found.gaps, found.shared_gaps) == (1016, 56)
    assert found.gap_share == pytest.approx(0.055, abs=0.001)
    assert found.time_share == pytest.approx(0.606, abs=0.001)
    assert found.mean_shared_gap_ms == pytest.approx(1158)
    assert found.mean_other_gap_ms == pytest.approx(44)


def test_a_gap_that_a_prefill_only_touches_is_alone() -> None:
    """The other's prefill from 101 to 106 ms covers a quarter of the gap from 100 to 120 ms."""
    assert (
        decode_of(llama(), llama(1, start_ms=100, prompt_ms=5, gaps_ms=())).shared_gaps
        == 0
    )
    assert (
        decode_of(llama(), llama(1, start_ms=100, prompt_ms=15, gaps_ms=())).shared_gaps
        == 1
    )


def test_a_server_that_reports_no_prefill_is_said_to_include_queueing() -> None:
    assert decode_of(record(), record(1)).includes_queueing
    assert not decode_of(llama(), llama(1)).includes_queueing


# ------------------------------------------------------------------ intervals


def ns(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def test_overlapping_intervals_are_covered_once_and_shared_fairly() -> None:
    """[0, 10) and [5, 15): 15 ns are covered; the first has 5 + 5/2."""
    both = Intervals(ns(0, 5), ns(10, 15))
    assert both.covered(ns(0, 12, 20), ns(20, 30, 30)).tolist() == [15, 3, 0]
    assert both.share(ns(0), ns(10)).tolist() == [7.5]


def test_instants_are_looked_up_in_the_union(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand intervals that overlap, and one apart: the union has four ends, in which all
    gaps of a run are looked up."""
    starts = np.append(np.arange(10_000, dtype=np.int64) * 10, 200_000)
    sizes: list[int] = []
    real = np.interp
    monkeypatch.setattr(
        np, "interp", lambda x, at, summed: sizes.append(len(at)) or real(x, at, summed)
    )
    assert Intervals(starts, starts + 15).covered_until(
        ns(5, 150_000, 200_005)
    ).tolist() == [5, 100_005, 100_010]
    assert sizes == [4]


def test_touching_intervals_leave_no_gap() -> None:
    """[5, 10), [0, 5) and [20, 30), which are not in order."""
    assert Intervals(ns(5, 0, 20), ns(10, 5, 30)).covered_until(
        ns(0, 7, 15, 25, 40)
    ).tolist() == [0, 7, 10, 15, 20]


def test_no_interval_covers_nothing() -> None:
    assert Intervals(ns(3), ns(3)).covered(ns(0), ns(9)).tolist() == [0]


def test_slots_go_to_requests_in_the_order_of_arrival() -> None:
    """Two slots: the third waits for the first to leave at 5, the fourth for the third, which
    leaves before the second."""
    assert slot_grants(ns(0, 1, 2, 3), ns(5, 9, 7, 9), 2).tolist() == [0, 1, 5, 7]
    assert queue_grants(ns(0, 1, 2, 3), ns(5, 8, 2, 9), 2).tolist() == [0, 1, 5, 7]


def test_a_request_waits_for_a_slot_of_its_own_model() -> None:
    """A router with a slot for each of two models: the second request to `small` waits until the
    first has ended, after 141 ms; that to `large` does not. Two slots for all explain no wait."""
    rows = [
        llama(0, model="small"),
        llama(1, start_ms=10, queue_ms=130, model="small"),
        llama(2, start_ms=20, model="large"),
    ]
    of_all = request_parts(table(*rows), {HOST: 2})
    assert "slot_wait" not in known(of_all, 1)
    by_model = {HOST: {"small": 1, "large": 1}}
    parts = request_parts(table(*rows), {HOST: 2}, by_model)
    assert known(parts, 1)["slot_wait"] == pytest.approx(130, abs=1)
    assert "slot_wait" not in known(parts, 2)
