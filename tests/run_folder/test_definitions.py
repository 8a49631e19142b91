"""The examples of the docstrings: definitions of figures, their units, and what is unknown."""

from __future__ import annotations

import numpy as np
import pytest

from llama_load.analysis.figures.rates import peak_output_tok_per_s, token_times_ns
from llama_load.analysis.statistics.statistics import describe, percentile_interval
from llama_load.analysis.statistics.timing_error import errors_ms
from llama_load.run_folder.arithmetic import latencies as metric
from llama_load.run_folder.observed.speculation import Speculation
from llama_load.run_folder.observed.window import Window
from llama_load.run_folder.vocabulary.slo import Slo, parse_slo
from tests.make_records import MS, record, table


def test_how_far_the_client_is_from_the_server() -> None:
    """Received at 1000 ms, sent at 1100, 1120 and 1150: TTFT 100, gaps 20 and 30. The client says
    100.5, 21 and 28. Of the second request, one gap was merged, so that only its TTFT can be
    compared."""
    sent = [1100 * MS, 1120 * MS, 1150 * MS]
    log = [
        {"request_id": name, "received_mono_ns": 1000 * MS, "sent_mono_ns": sent}
        for name in ("other", "a", "b")
    ]
    rows = [
        {"request_id": "a", "ttft_ms": 100.5, "itl_ms": [21.0, 28.0]},
        {"request_id": "b", "ttft_ms": 99.0, "itl_ms": [50.0]},
    ]
    ttft, itl = errors_ms(rows, log)
    np.testing.assert_allclose(ttft, [0.5, -1.0])
    np.testing.assert_allclose(itl, [1.0, -2.0])
    assert [len(errors) for errors in errors_ms([], log)] == [0, 0]


def test_the_clients_own_delay() -> None:
    """Connected after 3.0 ms of which the round trip took 0.2: 2.8; never below 0. On an open
    connection: until the first write."""
    assert metric.own_delay_ms(5 * MS, 8 * MS, MS // 5) == pytest.approx(2.8)
    assert metric.own_delay_ms(5 * MS, 6 * MS, 2 * MS) == 0.0
    assert metric.own_delay_ms(5 * MS, None, None, first_write_ns=7 * MS) == 2.0
    assert metric.own_delay_ms(5 * MS, None, 2 * MS) is None
    assert metric.own_delay_ms(5 * MS, 8 * MS, None) is None


def test_lateness_is_what_neither_the_schedule_nor_the_limit_explains() -> None:
    """Scheduled for 1000 ms, allowed at 1249, sent at 1250: 1 ms late of 250 ms in the client's
    queue."""
    assert metric.client_queue_ms(1000 * MS, 1250 * MS) == 250.0
    assert metric.late_ms(1000 * MS, 1249 * MS, 1250 * MS) == 1.0
    assert metric.late_ms(1000 * MS, None, 1250 * MS) == 250.0
    assert metric.late_ms(1000 * MS, 900 * MS, 1250 * MS) == 250.0
    assert metric.late_ms(None, 900 * MS, 1250 * MS) is None


def test_speeds_of_a_request() -> None:
    """11980 and 128 tokens in 96.4 s: 125.6 tok/s; 500 prompt tokens in 250 ms: 2000/s; 127 tokens
    after the first in 64 s: 1.98/s."""
    assert metric.tokens_per_s(11980, 128, 96_400) == pytest.approx(125.6, abs=0.01)
    assert metric.prompt_per_s(500, 250.0) == 2000.0
    assert metric.predict_per_s(128, 64_000.0) == pytest.approx(127 / 64)
    assert metric.predict_per_s(2, 10.0) == 100.0
    for unknown in ((None, 5, 5.0), (5, None, 5.0), (5, 5, None), (5, 5, 0.0)):
        assert metric.tokens_per_s(*unknown) is None
    assert (
        metric.prompt_per_s(None, 5.0)
        is metric.prompt_per_s(5, None)
        is metric.prompt_per_s(0, 5.0)
        is None
    )
    assert (
        metric.predict_per_s(1, 5.0)
        is metric.predict_per_s(None, 5.0)
        is metric.predict_per_s(5, None)
        is None
    )


def test_the_order_of_a_sample_does_not_matter() -> None:
    """Of its percentiles and of their intervals."""
    ordered = np.arange(1.0, 1001.0)
    shuffled = np.random.default_rng(0).permutation(ordered)
    assert describe(shuffled, [50.0, 99.0]) == describe(ordered, [50.0, 99.0])
    assert describe(shuffled, [99.0]).intervals[99.0] == percentile_interval(
        ordered, 99
    )


@pytest.mark.parametrize(
    "text", ["ttft:0", "ttft:-5", "ttft:nan", "ttft", "ttft:", "speed:5", "ttft:5ms"]
)
def test_an_objective_is_a_latency_over_zero(text: str) -> None:
    assert parse_slo("ttft:0.5") == Slo("ttft", 0.5)
    with pytest.raises(ValueError, match="--goodput takes METRIC:MILLISECONDS"):
        parse_slo(text)


def test_events_count_as_one_token_each_where_their_number_is_unknown() -> None:
    """Three events of a request that says nothing of its tokens, within the second from 10 s on."""
    unknown = record(start_ms=10_000, output_tokens=None)
    weights = np.concatenate([weights for _, weights in token_times_ns(table(unknown))])
    assert weights.tolist() == [1.0, 1.0, 1.0]
    assert (
        peak_output_tok_per_s(table(unknown), Window(10_000 * MS, 11_000 * MS)) == 3.0
    )


def test_the_busiest_second_is_within_the_window() -> None:
    """Tokens at 0.9, 1.1, 2.3 and 2.6 s, of which two are in a window from 1 to 2.5 s, more than a
    second apart."""
    one = record(first_ms=900, gaps_ms=(200, 1200, 300))
    assert peak_output_tok_per_s(table(one), Window(1000 * MS, 2500 * MS)) == 1.0
    assert peak_output_tok_per_s(table(one), Window(0, 2700 * MS)) == 2.0
    assert peak_output_tok_per_s(table(one), Window(1000 * MS, 1999 * MS)) is None


def test_what_a_server_drafted_since() -> None:
    """Counters that shrink are those of a server that was restarted; drafts that are not counted
    stay unknown."""
    before = Speculation(30, 20, 10, [9, 8])
    after = Speculation(60, 50, 20, [18, 16, 4])
    assert after.since(before) == Speculation(30, 30, 10, [9, 8, 4])
    assert before.since(after) is None
    assert Speculation(60, 50, 9, [18, 16]).since(before) is None
    assert Speculation(60, 50, None, [18, 16]).since(before) == Speculation(
        30, 30, None, [9, 8]
    )
