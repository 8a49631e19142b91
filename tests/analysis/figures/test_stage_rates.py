"""The rates of a timed stage are those of its own load: not of requests that the stage before left
in flight."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from llama_load.analysis.figures.stage_figures import window_at_own_load
from llama_load.analysis.figures.summary import window_rates
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.window import Window
from tests.make_records import MS, record, table

S = 1000
# A request: the first token after 100 ms, then 45 gaps of 20 ms, and its end 1 ms later: 46 tokens
# in about 1 s.
ONE_USER_TOK_PER_S = 46 / 1.001


def closed_loop(
    stage: int, users: int, begin_ms: float, until_ms: float, gaps: int = 45
) -> list[RequestRecord]:
    """Each user sends requests of `gaps` gaps one after the other, the last one before `until_ms`;
    they begin in turns."""
    sent: list[RequestRecord] = []
    takes_ms = 101 + 20 * gaps
    for user in range(users):
        start_ms = begin_ms + user * takes_ms / users
        while start_ms < until_ms:
            sent.append(
                record(
                    len(sent), start_ms=start_ms, stage=stage, gaps_ms=(20.0,) * gaps
                )
            )
            start_ms += takes_ms
    return sent


def rate(
    requests: Sequence[RequestRecord],
    stage: int,
    begin_s: int,
    end_s: int,
    users: int | None,
) -> tuple[float, Window]:
    """Output tokens/s of a stage, and the part of its time that they are of."""
    records = table(*requests)
    window = window_at_own_load(
        records, stage, Window(begin_s * S * MS, end_s * S * MS, is_cut=True), users
    )
    found = window_rates(records, window).output_throughput
    assert found is not None
    return found, window


def test_a_stage_after_a_spike_has_the_rates_of_its_own_load() -> None:
    """1, 8 and 1 users for 10 s each. The requests of the spike take up to 9 s, so eight streams go
    on into the last stage."""
    spike = closed_loop(1, 8, 10_000, 20_000, gaps=445)
    last_ends_ms = max(each.ended_mono_ns for each in spike) / MS
    requests = [
        *closed_loop(0, 1, 0, 10_000),
        *spike,
        *closed_loop(2, 1, last_ends_ms, 40_000),
    ]
    before, whole = rate(requests, 0, 0, 10, 1)
    assert before == pytest.approx(ONE_USER_TOK_PER_S, rel=0.02) and whole.seconds == 10

    after, window = rate(requests, 2, 20, 40, 1)
    assert after == pytest.approx(ONE_USER_TOK_PER_S, rel=0.05)
    assert 2 < window.seconds < 15

    mixed = window_rates(
        table(*requests), Window(20 * S * MS, 40 * S * MS, is_cut=True)
    ).output_throughput
    assert (
        mixed is not None and mixed > 2 * ONE_USER_TOK_PER_S
    )  # what all of its time would say


def test_a_stage_with_the_load_before_it_has_the_rates_of_all_its_time() -> None:
    """The eight that are left in flight are its own load: from its own requests alone the rate
    would be too low."""
    first = closed_loop(0, 8, 0, 10_000)
    second = closed_loop(1, 8, 10_050, 20_000)
    found, window = rate([*first, *second], 1, 10, 20, 8)
    assert window.seconds == 10
    assert found == pytest.approx(8 * ONE_USER_TOK_PER_S, rel=0.05)


def test_a_stage_that_never_had_its_own_load_has_no_rates() -> None:
    """Eight streams of 9 s in a stage of 2 s for one user."""
    spike = closed_loop(0, 8, 0, 8_000, gaps=445)
    records = table(*spike, *closed_loop(1, 1, 17_500, 18_000))
    window = window_at_own_load(
        records, 1, Window(8 * S * MS, 10 * S * MS, is_cut=True), 1
    )
    assert window.seconds == 0
    assert window_rates(records, window).output_throughput is None


def test_an_open_stage_begins_when_the_surplus_of_a_higher_rate_has_ended() -> None:
    """32/s for 10 s, then 2/s: 32 requests of a second are in flight at the change, later 2. The
    other way round 2 are left."""
    high = [
        record(n, start_ms=n * 31.25, stage=0, gaps_ms=(20.0,) * 45) for n in range(320)
    ]
    low = [
        record(n, start_ms=10_000 + n * 500, stage=1, gaps_ms=(20.0,) * 45)
        for n in range(20)
    ]
    found, window = rate([*high, *low], 1, 10, 20, None)
    assert window.seconds == pytest.approx(9, abs=0.1)
    assert found == pytest.approx(2 * 46, rel=0.05)

    early = [
        record(n, start_ms=n * 500, stage=0, gaps_ms=(20.0,) * 45) for n in range(20)
    ]
    late = [
        record(n, start_ms=10_000 + n * 31.25, stage=1, gaps_ms=(20.0,) * 45)
        for n in range(320)
    ]
    assert rate([*early, *late], 1, 10, 20, None)[1].seconds == 10
