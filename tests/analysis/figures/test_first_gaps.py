"""A long first gap is an early first token only where neither prompts of others nor a full decoding
explain it."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from llama_load.analysis.statistics.first_gaps import (
    EARLY_BY_GAP,
    TOGETHER,
    FirstGaps,
    first_gaps,
)
from llama_load.analysis.statistics.statistics import quick_percentile
from llama_load.run_folder.observed.record import RequestRecord
from tests.analysis.figures.test_verdict import bad, verdict
from tests.make_records import record, table

GAP_MS, GAPS = 20.0, 30


def early(made: list[RequestRecord]) -> float:
    """The share of these answers that are called early."""
    records = table(*made)
    return float(
        first_gaps(records, records).are_early(records.numbers("ttft_ms")).mean()
    )


def closed_loop(
    users: int, *, first_ms: float, first_gap_ms: float
) -> list[RequestRecord]:
    """Streams that do not delay each other."""
    draw = np.random.default_rng(1)
    made: list[RequestRecord] = []
    for user in range(users):
        at_ms = user * 171.0
        for _ in range(12):
            gaps = (first_gap_ms, *(GAP_MS * draw.lognormal(0, 0.05, GAPS)).tolist())
            made.append(
                record(len(made), start_ms=at_ms, first_ms=first_ms, gaps_ms=gaps)
            )
            at_ms += first_ms + sum(gaps) + 1 + float(draw.exponential(30))
    return made


def test_a_token_at_two_fifths_of_the_way_is_early_under_any_load() -> None:
    """It comes after 135 ms, the first one that was generated after 300. With one user and with
    six."""
    for users in (1, 6):
        assert early(closed_loop(users, first_ms=135, first_gap_ms=165 + GAP_MS)) == 1
        assert early(closed_loop(users, first_ms=300, first_gap_ms=GAP_MS)) == 0


def test_an_opening_of_two_events_is_early() -> None:
    """A tag and a line break after 20 ms, what was generated 400 ms later; not where the third
    token is as soon as any."""
    draw = np.random.default_rng(8)
    for gap_ms, is_early in ((400.0, True), (GAP_MS, False)):
        made = []
        for number in range(60):
            gaps = (GAP_MS, gap_ms, *(GAP_MS * draw.lognormal(0, 0.05, GAPS)).tolist())
            at_ms = number * 1500.0
            opened = record(number, start_ms=at_ms, first_ms=20, gaps_ms=gaps)
            made.append(opened)
        found = verdict(*made)
        assert ("early_first_ratio" in bad(found)) is is_early
        assert ("began with 2 events" in found.headline) is is_early


def test_answers_that_wait_to_be_decoded_are_not_early() -> None:
    """Disaggregated prefill: eight users, prompts of 100 ms, a decode node for four answers at
    once."""
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
        made.append(
            record(
                number, start_ms=start_ms, first_ms=first_at_ms - start_ms, gaps_ms=gaps
            )
        )
    assert np.median([each.itl_ms[0] for each in made]) > 300
    assert early(made) <= 0.05


def test_waves_of_prompts_one_after_the_other_are_not_early() -> None:
    """Six requests at a time: their prompts take 100 ms each, and who is first waits for the
    others' before its second token."""
    made = []
    for wave in range(10):
        for place in range(6):
            first_ms = 100.0 * (place + 1)
            gaps = (600 - first_ms + GAP_MS, *[GAP_MS] * GAPS)
            made.append(
                record(
                    len(made),
                    start_ms=wave * 2000 + place * 0.1,
                    first_ms=first_ms,
                    gaps_ms=gaps,
                )
            )
    assert early(made) == 0


def of_random_gaps(seed: int) -> list[RequestRecord]:
    """Answers of 2 to 40 gaps with any scatter, of which half have a first gap that is some times
    as long as it would be."""
    draw = np.random.default_rng(seed)
    made = []
    for number in range(60):
        gaps = 20 * draw.lognormal(
            0, draw.choice((0.01, 0.5, 1.5)), draw.integers(2, 41)
        )
        gaps[0] *= draw.choice((1, 1, 2.9, 3, 3.1, 10))
        made.append(record(number, gaps_ms=tuple(gaps.tolist())))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_a_first_gap_is_long_above_three_times_the_90th_percentile(seed: int) -> None:
    records = table(*of_random_gaps(seed))
    expected = []
    for piece in records.table["itl_ms"].to_pylist():
        # gaps of events that come together part no events
        mean_ms = np.float32(piece).astype(float).mean()
        apart_ms = [gap_ms for gap_ms in piece[1:] if gap_ms >= TOGETHER * mean_ms]
        usual_ms = np.percentile(apart_ms, 90) if apart_ms else np.inf
        expected.append(bool(piece[0] > EARLY_BY_GAP * usual_ms))
    assert first_gaps(records, records).is_long.tolist() == expected


def test_percentiles_are_taken_only_where_a_first_gap_may_be_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a million answers they would take half a minute."""
    taken = []

    def counted(values: np.ndarray, share: float) -> float:
        taken.append(share)
        return quick_percentile(values, share)

    monkeypatch.setattr(
        "llama_load.analysis.statistics.first_gaps.quick_percentile", counted
    )
    records = table(*closed_loop(20, first_ms=300, first_gap_ms=GAP_MS * 1.5))
    first_gaps(records, records)
    assert not taken

    records = table(*closed_loop(20, first_ms=300, first_gap_ms=GAP_MS * 30))
    first_gaps(records, records)
    assert taken


def hand_overs(draw: np.random.Generator, share: float, extra: float) -> bool:
    """Whether 40 of 60 first gaps are taken for hand-overs, in half to one and a half times 200 ms,
    after prompts that take 20 to 500 ms and send their first token after this share of it. Early
    ones alone are looked at: short gaps after late first tokens are not among them."""
    prompt_ms = draw.uniform(20, 500, 60)
    ttft_ms = share * prompt_ms
    gap_ms = (1 - share) * prompt_ms + 200 * draw.uniform(0.5, 1.5, 60)
    gaps = FirstGaps(gap_ms, np.full(60, GAP_MS), gap_ms, gap_ms > 0, step_ms=GAP_MS)
    early = gaps.are_early(ttft_ms)
    return gaps.are_hand_overs(early, ttft_ms, prompt_ms, np.full(60, extra))


def test_hand_overs_are_known_though_only_long_ones_are_seen() -> None:
    """Of later first tokens only the longest gaps are early, which looks like a dependence."""
    draw = np.random.default_rng(5)
    taken = [hand_overs(draw, 1.0, extra=0.0) for _ in range(200)]
    assert np.mean(taken) > 0.97
    invented = [hand_overs(draw, 0.2, extra=0.0) for _ in range(200)]
    assert np.mean(invented) < 0.03


def test_an_event_that_no_token_stands_behind_is_no_hand_over() -> None:
    """The opening tag of the thoughts, from the chat template."""
    draw = np.random.default_rng(6)
    assert not hand_overs(draw, 1.0, extra=1.0)
    assert hand_overs(draw, 1.0, extra=np.nan)
