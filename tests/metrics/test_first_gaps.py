"""A long first gap is an early first token only where neither prompts of others nor a full decoding explain it."""

from __future__ import annotations

import heapq

import numpy as np

from llama_load.metrics.first_gaps import first_gaps
from llama_load.observed.record import RequestRecord
from tests.make_records import record, table

GAP_MS, GAPS = 20.0, 30


def early(made: list[RequestRecord]) -> float:
    """The share of these answers that are called early."""
    records = table(*made)
    return float(first_gaps(records, records).are_early(records.numbers("ttft_ms")).mean())


def closed_loop(users: int, *, first_ms: float, first_gap_ms: float) -> list[RequestRecord]:
    """Streams that do not delay each other."""
    draw = np.random.default_rng(1)
    made: list[RequestRecord] = []
    for user in range(users):
        at_ms = user * 171.0
        for _ in range(12):
            gaps = (first_gap_ms, *(GAP_MS * draw.lognormal(0, 0.05, GAPS)).tolist())
            made.append(record(len(made), start_ms=at_ms, first_ms=first_ms, gaps_ms=gaps))
            at_ms += first_ms + sum(gaps) + 1 + float(draw.exponential(30))
    return made


def test_a_token_at_two_fifths_of_the_way_is_early_under_any_load() -> None:
    """It comes after 135 ms, the first one that was generated after 300. With one user and with six."""
    for users in (1, 6):
        assert early(closed_loop(users, first_ms=135, first_gap_ms=165 + GAP_MS)) == 1
        assert early(closed_loop(users, first_ms=300, first_gap_ms=GAP_MS)) == 0


def test_answers_that_wait_to_be_decoded_are_not_early() -> None:
    """Disaggregated prefill: eight users, prompts of 100 ms, a decode node for four answers at once."""
    made: list[RequestRecord] = []
    places = [0.0] * 4
    ready = [float(10 * user) for user in range(8)]
    draw = np.random.default_rng(2)
    for number in range(100):
        start_ms = heapq.heappop(ready)
        first_at_ms = start_ms + 100 * float(draw.lognormal(0, 0.1))
        begin_ms = max(first_at_ms, places[0])
        count = int(draw.integers(10, 50))
        end_ms = begin_ms + GAP_MS * count
        heapq.heapreplace(places, end_ms)
        heapq.heappush(ready, end_ms + 1)
        gaps = (begin_ms + GAP_MS - first_at_ms, *[GAP_MS] * (count - 1))
        made.append(record(number, start_ms=start_ms, first_ms=first_at_ms - start_ms, gaps_ms=gaps))
    assert np.median([each.itl_ms[0] for each in made]) > 300
    assert early(made) <= 0.05


def test_waves_of_prompts_one_after_the_other_are_not_early() -> None:
    """Six requests at a time: their prompts take 100 ms each, and who is first waits for the others' before its second token."""
    made = []
    for wave in range(10):
        for place in range(6):
            first_ms = 100.0 * (place + 1)
            gaps = (600 - first_ms + GAP_MS, *[GAP_MS] * GAPS)
            made.append(record(len(made), start_ms=wave * 2000 + place * 0.1, first_ms=first_ms, gaps_ms=gaps))
    assert early(made) == 0
