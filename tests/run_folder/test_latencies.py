"""Every metric against cases worked by hand."""

from __future__ import annotations

import math
from itertools import accumulate
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_load.analysis.figures.rates import (
    _peak_of_few,
    in_flight_imbalance,
    peak_in_flight,
    peak_output_tok_per_s,
    token_times_ns,
)
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.statistics.censoring import ProductLimit, cut_shift
from llama_load.analysis.statistics.statistics import (
    describe,
    percentile_interval,
    quick_percentile,
)
from llama_load.run_folder.arithmetic import latencies as metric
from llama_load.run_folder.observed.window import Window, window_of
from llama_load.run_folder.vocabulary.slo import Slo, meets, parse_slo
from llama_load.run_folder.vocabulary.thresholds import evaluate, parse_threshold
from tests.make_records import MS, failed, record, table


def test_latencies_of_a_request() -> None:
    """Started at 1000 ms, tokens at 1050, 1060, 1090, 1250 ms: TTFT 50, ITL 10, 30, 160, E2EL 250,
    TPOT 200 / 3."""
    stamps = [1050 * MS, 1060 * MS, 1090 * MS, 1250 * MS]
    ttft = metric.ttft_ms(1000 * MS, stamps[0])
    e2el = metric.e2el_ms(1000 * MS, stamps[-1])
    assert (ttft, e2el) == (50.0, 250.0)
    assert metric.itl_ms(stamps) == [10.0, 30.0, 160.0]
    assert metric.tpot_ms(ttft, e2el, 3) == pytest.approx(200 / 3)


def test_what_was_not_stamped_is_none() -> None:
    assert metric.ttft_ms(5, None) is None
    assert metric.connect_ms(5, None) is None
    assert metric.itl_ms([]) == metric.itl_ms([7]) == []


def test_queueing_is_reported_only_where_headers_show_it() -> None:
    """llama-server holds its headers until a slot is free; other servers send them early; with a
    token they say nothing."""
    assert metric.queue_ms(1 * MS, 4 * MS, headers_alone=True, held=True) == 3.0
    assert metric.queue_ms(1 * MS, 4 * MS, headers_alone=False, held=True) is None
    assert metric.queue_ms(1 * MS, 4 * MS, headers_alone=True, held=False) is None


def test_statistics_are_numpys() -> None:
    """1, 2, 3, 10: mean 4, median 2.5, std sqrt(12.5), p90 = 3 + 0.7 * 7."""
    sample = describe(np.array([3.0, 1.0, math.nan, 10.0, 2.0]), [90.0])
    assert (sample.count, sample.mean, sample.median, sample.std) == (
        4,
        4.0,
        2.5,
        pytest.approx(math.sqrt(12.5)),
    )
    assert sample.percentiles[90.0] == pytest.approx(7.9)


def test_an_empty_sample_is_none_not_zero() -> None:
    sample = describe(np.array([]), [99.0])
    assert (sample.count, sample.mean, sample.percentiles[99.0]) == (0, None, None)


@pytest.mark.parametrize("count", [1, 2, 3, 9, 200])
@pytest.mark.parametrize("p", [0, 50, 75, 90, 99, 100])
def test_the_quick_percentile_is_numpys(count: int, p: float) -> None:
    values = np.random.default_rng(count).lognormal(3, 1, count)
    assert quick_percentile(values, p) == pytest.approx(np.percentile(values, p))


def test_percentile_interval_of_a_known_case() -> None:
    """Median of 10: ranks 2 and 9 enclose it with 97.9 %, ranks 3 and 8 only with 89.1 % (binomial
    table)."""
    assert percentile_interval(np.arange(1.0, 11.0), 50) == (2.0, 9.0)
    low, high = percentile_interval(np.arange(1.0, 1001.0), 99)
    assert (low, high) == (983.0, 997.0)
    assert percentile_interval(np.arange(1.0, 65.0), 99)[1] is None


@pytest.mark.parametrize("percentile", [0, 0.5, 25, 50, 90, 99, 99.9, 100])
@pytest.mark.parametrize("n", [1, 2, 7, 64, 1000])
def test_percentile_intervals_are_those_of_the_exact_binomial_distribution(
    n: int, percentile: float
) -> None:
    """By whole numbers: the largest l with P(K < l) <= 2.5 %, the smallest u with P(K >= u) <= 2.5
    %."""
    hit = round(10 * percentile)  # in thousandths
    # below[l] = 1000^n P(K < l)
    below = [
        0,
        *accumulate(
            comb(n, k) * hit**k * (1000 - hit) ** (n - k) for k in range(n + 1)
        ),
    ]
    low = max(rank for rank in range(n + 1) if 40 * below[rank] <= 1000**n)
    high = next(
        rank for rank in range(1, n + 2) if 40 * (1000**n - below[rank]) <= 1000**n
    )
    expected = (float(low) if low else None, float(high) if high <= n else None)
    assert percentile_interval(np.arange(1.0, n + 1), percentile) == expected


@settings(max_examples=settings().max_examples // 2)
@given(st.integers(0, 2**32), st.sampled_from([50.0, 90.0, 99.0]))
def test_percentile_intervals_cover_the_truth(seed: int, percentile: float) -> None:
    """Of 200 samples of 700 uniform values, at least 90 % of the 95 % intervals hold the true
    percentile."""
    samples = np.sort(np.random.default_rng(seed).random((200, 700)), axis=1)
    inside = sum(
        low <= percentile / 100 <= high
        for low, high in (percentile_interval(row, percentile) for row in samples)
    )
    assert inside >= 180


def test_duration_runs_from_first_start_to_last_end_failures_included() -> None:
    """Starts 100 ms; the last to end is the failed one, at 900 ms."""
    assert window_of(
        table(record(0, start_ms=100), failed(1, start_ms=200, end_ms=900))
    ).seconds == pytest.approx(0.8)
    assert window_of(table()).seconds == 0.0


def test_peak_in_flight_is_what_was_in_flight() -> None:
    """0-121, 50-171 and 121-… ms: two at once; the third starts as the first one ends."""
    spans = [
        record(0, start_ms=0, first_ms=120, gaps_ms=()),
        record(1, start_ms=50, first_ms=120, gaps_ms=()),
    ]
    spans.append(record(2, start_ms=121, first_ms=10, gaps_ms=()))
    assert peak_in_flight(table(*spans)) == 2


def test_vllms_peaks_are_counted_in_whole_seconds_from_the_first_start() -> None:
    """Requests of 0.1 s at 10.0, 10.3, 10.6 and 11.2 s: never two at once, three touch the first
    second. Their tokens come at 0.05 and 0.1 s after each start: six in the first second, whatever
    events they came in. Failed ones do not count."""
    short = [
        record(index, start_ms=at, first_ms=50, gaps_ms=(50,))
        for index, at in enumerate((10_000, 10_300, 10_600, 11_200))
    ]
    records = table(*short, failed(9, start_ms=9_900, end_ms=12_000))
    found = summarize(records)
    # the failed one was in flight
    assert (found.max_concurrent_requests, found.peak_in_flight) == (3, 2)
    assert found.max_output_tokens_per_s == 6
    long = table(
        record(0, start_ms=0, first_ms=900, gaps_ms=(200, 950)),
        record(1, start_ms=2_100, first_ms=10, gaps_ms=()),
    )
    assert summarize(long).max_concurrent_requests == 2, "2.05 and 2.1 s are one second"
    one = summarize(table(record(0, first_ms=100, gaps_ms=(10,), output_tokens=8)))
    assert (one.max_output_tokens_per_s, one.peak_output_tok_per_s) == (8, None), (
        "shorter than a second"
    )
    assert (
        summarize(table()).max_concurrent_requests,
        summarize(table()).max_output_tokens_per_s,
    ) == (0, None)


def test_peak_output_counts_tokens_not_events_in_any_second() -> None:
    """Events at 0.1, 0.5, 0.9 and 1.3 s, 2 tokens each; the busiest second holds three of them,
    from 0.1 to below 1.1 or later."""
    one = record(0, first_ms=100, gaps_ms=(400, 400, 400), output_tokens=8)
    assert peak_output_tok_per_s(table(one), Window(0, 1400 * MS)) == pytest.approx(6.0)


def test_the_busiest_second_begins_anywhere() -> None:
    """Ten tokens just before a whole second and ten just after it: 20 within a second, where
    buckets of whole seconds hold 10."""
    early = record(0, first_ms=905, gaps_ms=(10,) * 9)
    late = record(1, first_ms=1005, gaps_ms=(10,) * 9)
    assert peak_output_tok_per_s(
        table(early, late), Window(0, 2000 * MS)
    ) == pytest.approx(20.0)


def test_a_run_of_less_than_a_second_has_no_busiest_second() -> None:
    """64 tokens in 0.17 s are 384 a second; a peak of 64 next to it would be nonsense."""
    assert peak_output_tok_per_s(table(record(0)), Window(0, 999 * MS)) is None


@given(st.lists(st.integers(0, 2900), min_size=1, max_size=40))
def test_the_busiest_second_is_never_below_the_mean(firsts: list[int]) -> None:
    records = table(
        *(record(i, first_ms=ms, gaps_ms=()) for i, ms in enumerate(firsts))
    )
    assert (peak_output_tok_per_s(records, Window(0, 3000 * MS)) or 0) >= len(
        firsts
    ) / 3 - 1e-9


def test_tokens_are_where_usage_placed_them() -> None:
    """Events at 0.1, 0.5, 0.9 and 1.3 s. With 1, 1, 1 and 5 tokens the second second has more than
    the first; another request that has no such list keeps its even spread, and one whose list does
    not fit its events, too."""
    placed = record(
        0,
        first_ms=100,
        gaps_ms=(400, 400, 400),
        output_tokens=8,
        event_tokens=[1, 1, 1, 5],
    )
    even = record(1, first_ms=100, gaps_ms=(400,), output_tokens=3)
    unfit = record(2, first_ms=100, gaps_ms=(400,), output_tokens=4, event_tokens=[4])
    ((times_ns, weights),) = token_times_ns(table(even, placed, unfit))
    found = sorted(zip(np.round(times_ns / MS).tolist(), weights.tolist(), strict=True))
    assert found == [
        (100, 1),
        (100, 1.5),
        (100, 2),
        (500, 1),
        (500, 1.5),
        (500, 2),
        (900, 1),
        (1300, 5),
    ]
    assert peak_output_tok_per_s(table(placed), Window(0, 1400 * MS)) == 7


def test_peak_output_of_many_requests_is_that_of_all_tokens_together() -> None:
    """2500 requests, each 7 ms after the one before, are read in batches; their seconds overlap."""
    gaps = [(20.0 + index % 5, 400.0, 30.0) for index in range(2500)]
    arrived_ms = np.sort(
        np.array(
            [7 * index + np.cumsum([100, *own]) for index, own in enumerate(gaps)]
        ).ravel()
    )
    records = [
        record(index, start_ms=7 * index, gaps_ms=own) for index, own in enumerate(gaps)
    ]
    in_a_second = np.searchsorted(arrived_ms, arrived_ms + 1000) - np.arange(
        len(arrived_ms)
    )
    window = Window(0, 18_500 * MS)
    found = peak_output_tok_per_s(table(*records), window)
    # of a window of which the empty steps are not kept
    assert _peak_of_few(table(*records), window) == found
    assert found == pytest.approx(
        in_a_second.max(), rel=0.01
    )  # seconds begin in steps of 10 ms


# What a time cuts


def test_throughput_of_a_run_that_a_time_cuts_is_that_of_its_time() -> None:
    """8 users, 10 s and 100 tokens a request, 15 s: 800 tokens of answers and 400 of those that
    were cut, in 15 s: 80 tok/s, not 53."""
    gaps = (100.0,) * 99
    answered = [record(i, first_ms=100, gaps_ms=gaps) for i in range(8)]
    nothing = dict.fromkeys(["ttft_ms", "tpot_ms", "e2el_ms"])
    cut = [
        record(
            8 + i,
            start_ms=10_000,
            first_ms=50,
            gaps_ms=gaps[:49],
            status="cancelled",
            ended_mono_ns=15_000 * MS,
            **nothing,
        )
        for i in range(8)
    ]
    records = table(*answered, *cut)
    figures = summarize(records, window=window_of(records, 15_000 * MS))
    assert figures.output_throughput == pytest.approx(80.0)
    assert figures.request_throughput == pytest.approx(8 / 15)
    assert figures.total_token_throughput == pytest.approx(80 + 160 / 15)
    assert (figures.completed, figures.cancelled, figures.total_output_tokens) == (
        8,
        8,
        800,
    )
    assert figures.distributions["itl"].count == 8 * 99
    # what it would be without the window
    assert summarize(records).output_throughput == pytest.approx(800 / 15)


def test_the_product_limit_estimate_of_a_known_case() -> None:
    """Answers after 1, 2, 4 and 5 s, one cut after 3 s. S: 4/5 at 1, 3/5 at 2, then of two left
    half and none: 3/10 at 4, 0 at 5. Mean 1 + 0.8 + 0.6 x 2 + 0.3 = 3.3; the median is 4, where S
    first is 1/2 or less."""
    found = ProductLimit(np.array([1.0, 2.0, 4.0, 5.0]), np.array([3.0]))
    assert found.mean == pytest.approx(3.3)
    assert (found.percentile(50), found.percentile(40), found.percentile(99)) == (
        4.0,
        2.0,
        5.0,
    )
    assert ProductLimit(np.array([1.0]), np.array([2.0])).percentile(99) == math.inf


@given(st.lists(st.floats(1, 100), min_size=2, max_size=50))
def test_without_a_cut_the_product_limit_estimate_is_the_sample(
    values: list[float],
) -> None:
    sample = np.array(values)
    found = ProductLimit(sample, np.zeros(0))
    assert found.mean == pytest.approx(sample.mean())
    assert found.percentile(50) == np.percentile(sample, 50, method="inverted_cdf")
    assert cut_shift(sample, np.zeros(0), np.zeros(0), [99.0]) == 0.0


def test_the_product_limit_estimate_finds_what_the_cut_hides() -> None:
    """Exponential answers of 10 s in the mean, one after the other by each user, cut after 30 s:
    the mean of min(10 s answers, 30 s) is 10 (1 - exp(-3)) = 9.5 s, which the estimate finds; those
    that ended take 7.2 s in the mean."""
    draw = np.random.default_rng(1)
    known, cut = [], []
    for _ in range(2000):
        at = 0.0
        while at < 30:
            took = float(draw.exponential(10))
            (known if at + took < 30 else cut).append(min(took, 30 - at))
            at += took
    assert np.mean(known) < 7.5
    assert ProductLimit(np.array(known), np.array(cut)).mean == pytest.approx(
        9.5, rel=0.02
    )


def test_imbalance_in_flight_counts_every_moment() -> None:
    """Three at a time on two replicas: 2 and 1 is as even as it can be."""
    sent = [record(i, host=f"http://{host}") for i, host in enumerate("aab")]
    assert in_flight_imbalance(table(*sent), ["http://a", "http://b"]) == 0.0
    sent = [record(i, host="http://a") for i in range(3)]
    assert in_flight_imbalance(table(*sent), ["http://a", "http://b"]) == 1.0
    assert in_flight_imbalance(table(record()), ["http://h", "http://g"]) is None
    assert in_flight_imbalance(table(record()), ["http://h"]) is None


# What is not known


def test_sums_over_some_of_the_answers_are_no_totals() -> None:
    """10 tokens of two prompts each, unknown of the third: at least 20, and no total throughput."""
    figures = summarize(table(record(0), record(1), record(2, prompt_tokens=None)))
    assert (
        figures.total_input_tokens,
        figures.known_input_tokens,
        figures.total_token_throughput,
    ) == (None, 20, None)
    assert figures.output_throughput is not None
    figures = summarize(table(record(0, output_tokens=None), record(1)))
    assert (
        figures.total_output_tokens,
        figures.known_output_tokens,
        figures.output_throughput,
    ) == (None, 3, None)


def test_goodput_of_what_was_not_measured_is_unknown() -> None:
    """A whole answer has no TTFT: it neither meets an objective nor misses it."""
    whole = table(
        record(0, ttft_ms=None, tpot_ms=None, first_token_mono_ns=None, itl_ms=[])
    )
    assert meets(whole, (Slo("ttft", 100.0),)) is None
    assert meets(whole, (Slo("tpot", 100.0),)) is None
    assert meets(whole, (Slo("e2el", 140.0),)) == 1
    assert summarize(whole, slos=(Slo("ttft", 100.0),)).request_goodput is None
    refused = table(
        record(0), record(1, tpot_ms=None)
    )  # most of it came in the first event
    assert meets(refused, (Slo("tpot", 100.0),)) is None


@pytest.mark.parametrize(
    ("p", "least"), [(50, 2), (90, 10), (95, 20), (99, 100), (99.9, 1000), (1, 100)]
)
def test_a_percentile_needs_a_value_beyond_it(p: float, least: int) -> None:
    few, enough = (
        describe(np.arange(1.0, count + 1), [p]) for count in (least - 1, least)
    )
    assert few.percentile(p) is None
    assert enough.percentile(p) == enough.percentiles[p] is not None


def test_totals_by_hand() -> None:
    """Two good requests (3 tokens each, 10 prompt tokens) and a failed one, within 2 s."""
    figures = summarize(
        table(
            record(0),
            record(1, start_ms=1000, first_ms=300, gaps_ms=(10, 50)),
            failed(2, end_ms=2000),
        ),
        [99.0],
        (Slo("ttft", 200.0),),
    )
    assert (figures.completed, figures.failed, figures.duration_s) == (2, 1, 2.0)
    assert (figures.total_input_tokens, figures.total_output_tokens) == (20, 6)
    assert (
        figures.request_throughput,
        figures.output_throughput,
        figures.total_token_throughput,
    ) == (1.0, 3.0, 13.0)
    assert figures.request_goodput == 0.5
    assert figures.failure_ratio == pytest.approx(1 / 3)
    assert figures.distributions["ttft"].mean == 200.0
    assert figures.distributions["itl"].mean == 25.0
    assert figures.distributions["itl"].count == 4
    assert figures.distributions["tpot"].median == 25.0
    assert figures.distributions["e2el"].mean == 250.0
    assert [
        (failure.kind, failure.count, failure.example) for failure in figures.failures
    ] == [("http_500", 1, "boom")]


def test_cancelled_requests_are_neither_success_nor_failure() -> None:
    figures = summarize(
        table(record(0), record(1, status="cancelled", ttft_ms=None, itl_ms=[]))
    )
    assert (
        figures.completed,
        figures.failed,
        figures.cancelled,
        figures.failure_ratio,
    ) == (1, 0, 1, 0.0)
    assert figures.distributions["ttft"].count == 1


def test_goodput_wants_every_objective() -> None:
    """TTFT 100, TPOT 20, E2EL 140; a one-token answer has no TPOT to miss."""
    records = table(record(0), record(1, gaps_ms=()))
    assert meets(records, (Slo("ttft", 100.0), Slo("e2el", 140.0))) == 2
    assert meets(records, (Slo("tpot", 19.0),)) == 1
    assert parse_slo("tpot:50") == Slo("tpot", 50.0)
    for nonsense in ("tpot", "tpot:", "tpot:-1", "itl:5", "ttft:fast"):
        with pytest.raises(ValueError, match="METRIC:MILLISECONDS"):
            parse_slo(nonsense)


def test_thresholds() -> None:
    assert evaluate(parse_threshold("p99_ttft_ms > 500"), {"p99_ttft_ms": 501.0}).failed
    assert not evaluate(
        parse_threshold("p99.9_ttft_ms>=500"), {"p99.9_ttft_ms": 499}
    ).failed
    assert evaluate(parse_threshold("completed<5"), {"completed": 4}).failed


def test_a_threshold_on_what_was_not_measured_fails() -> None:
    """A gate that saw nothing must not let through."""
    assert evaluate(parse_threshold("p99_ttft_ms>500"), {"p99_ttft_ms": None}).failed
    few = evaluate(
        parse_threshold("p99_ttft_ms>500"), {"p99_ttft_ms": None, "count_ttft": 64}
    )
    assert (few.failed, few.why) == (True, "n/a (64 values, 100 needed)")
    assert evaluate(parse_threshold("p42_ttft_ms>500"), {}).failed
    for nonsense in ("", "p99_ttft_ms", "p99_ttft_ms>fast", ">5"):
        with pytest.raises(ValueError, match="KEY>NUMBER"):
            parse_threshold(nonsense)


def test_e2el_per_token_counts_every_token_and_the_prefill() -> None:
    """2 s for 100 tokens, the first one too: 20 ms each, 50 tokens/s."""
    assert metric.e2el_per_token_ms(2000.0, 100) == 20.0
    assert metric.e2el_per_token_ms(2000.0, None) is None
    assert metric.e2el_per_token_ms(None, 100) is None
    assert metric.e2el_per_token_ms(2000.0, 0) is None
