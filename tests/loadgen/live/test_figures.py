"""Live figures are those of the records, in bounded memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from llama_load.loadgen.live import LiveFigures
from llama_load.loadgen.live.drawn_tokens import token_instants_ns
from llama_load.loadgen.live.exposition import exposition
from llama_load.loadgen.live.figures import MOST_GROUPS, PORTION
from llama_load.loadgen.live.gauges import CORE_WAIT, LOOP_LAG, OTHERS
from llama_load.loadgen.live.groups import OTHERS as OTHER_GROUPS
from llama_load.loadgen.live.groups import GroupKey, added
from llama_load.loadgen.live.live_series import MOST_GAUGES, MOST_STEPS, TimeSeries
from llama_load.page.live_view import judgement
from llama_load.run_folder.observed.new_tokens import NewTokens
from llama_load.run_folder.observed.record import RequestRecord, to_batch
from tests.make_records import record

S = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def request(number: int, **more) -> RequestRecord:
    """Ended at `number` seconds after one of a second; TTFT `number` ms, gaps 1 and 2 ms."""
    start = max(0, number - 1) * S
    own = {
        "stage": 0,
        "started_mono_ns": start,
        "ended_mono_ns": number * S,
        "ttft_ms": float(number),
        "itl_ms": [1.0, 2.0],
        "output_tokens": 3,
    }
    return replace(record(number), **(own | more))


def test_batches_and_single_records_give_the_same_figures() -> None:
    records = [
        request(number, status="ok" if number % 5 else "timeout", stage=number % 2)
        for number in range(1, PORTION * 2)
    ]
    one, many = (LiveFigures(lambda: 2000 * S) for _ in range(2))
    for each in records:
        one.add(each)
    many.add_batch(to_batch(records))
    first, second = one.groups(), many.groups()
    assert first.keys() == second.keys()
    for key in first:
        assert (first[key].completed, first[key].failures) == (
            second[key].completed,
            second[key].failures,
        )
        assert first[key].sums_ms == pytest.approx(second[key].sums_ms)
        assert all(
            (first[key].sketches[name] == second[key].sketches[name]).all()
            for name in first[key].sketches
        )


def test_tokens_of_requests_that_failed_do_not_count() -> None:
    """A prompt that was refused was never processed: it is in no report, and not in Prometheus'
    counters."""
    live = LiveFigures(lambda: 200 * S)
    live.add(request(1, prompt_tokens=100, cached_tokens=10))
    live.add(
        request(
            2,
            status="http_429",
            prompt_tokens=900,
            cached_tokens=900,
            output_tokens=None,
        )
    )
    live.add(request(3, status="cut_off", prompt_tokens=100, output_tokens=2))
    total = added(live.groups().values())
    assert (
        total.prompt_tokens,
        total.cached_tokens,
        total.output_tokens,
        total.failed,
    ) == (100, 10, 3, 2)
    page = exposition(live, [], {}).decode()
    counted = {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name
        in ("llama_load_prompt_tokens_total", "llama_load_output_tokens_total")
    }
    assert counted == {
        "llama_load_prompt_tokens_total": 100,
        "llama_load_output_tokens_total": 3,
    }
    alone = LiveFigures(lambda: 200 * S)
    alone.add(request(1))
    assert sum(live.series(0, 0)["output_tok_per_s"]) == sum(
        alone.series(0, 0)["output_tok_per_s"]
    )


def test_figures_are_those_of_the_records() -> None:
    live = LiveFigures(lambda: 200 * S)
    records = [request(number) for number in range(1, 201)]
    for each in [
        *records,
        request(7, status="http_500"),
        request(8, warmup=True),
        request(9, status="cancelled"),
    ]:
        live.add(each)
    total = added(live.groups().values())
    assert (total.completed, total.failed, total.failures) == (200, 1, {"http_500": 1})
    assert total.failure_ratio == pytest.approx(1 / 201)
    ttft = [each.ttft_ms for each in records]
    assert total.percentiles_ms("ttft") == pytest.approx(
        list(np.percentile(ttft, [50, 90, 99])), rel=0.01
    )
    assert total.mean_ms("ttft") == pytest.approx(100.5)
    assert total.count("itl") == 400
    assert total.output_tokens == 600, "those of the failed one do not count"
    assert total.output_throughput == pytest.approx(600 / 200)


def test_a_percentile_of_too_few_values_is_not_shown() -> None:
    live = LiveFigures(lambda: 200 * S)
    for number in range(1, 51):
        live.add(request(number))
    p50, p90, p99 = added(live.groups().values()).percentiles_ms("ttft")
    assert p50 is not None and p90 is not None and p99 is None


def test_groups_are_bounded() -> None:
    """A server's or a data set's names cannot fill the memory; nothing is lost."""
    live = LiveFigures(lambda: 200 * S)
    for number in range(MOST_GROUPS + 50):
        live.add(request(number, workload=f"w{number}"))
    groups = live.groups()
    assert len(groups) == MOST_GROUPS + 1
    assert groups[OTHER_GROUPS].completed == 50


def test_a_day_fits_the_steps_and_loses_nothing() -> None:
    clock = Clock()
    live = LiveFigures(clock)
    for second in range(0, 86_400, 300):
        clock.ns = second * S
        live.add(request(second))
        live.sample("measuring", {}, {"in_flight": 3})
    series = live.series(0, 0)
    assert len(series["t_s"]) <= MOST_STEPS
    assert series["width_s"] == 128
    # the last step is not over
    assert sum(series["requests_per_s"][:-1]) * 128 == pytest.approx(288, abs=3)
    assert set(series["gauges"]["in_flight"]) == {3.0}


def test_tokens_and_gaps_are_drawn_when_they_came() -> None:
    """One user, answers of 4 s in a row: 25 tok/s in every second, and a gap in each; not 100 at
    the end of each answer."""
    clock = Clock()
    live = LiveFigures(clock)
    clock.ns = 20 * S
    answer = {"ttft_ms": 20.0, "itl_ms": [40.0] * 99, "output_tokens": 100}
    for number in range(5):
        live.add(
            request(
                4 * number + 4,
                started_mono_ns=4 * number * S,
                ended_mono_ns=(4 * number + 4) * S - 1,
                **answer,
            )
        )
    series = live.series(0, 0)
    assert series["step"] == list(range(20))
    assert all(24 <= rate <= 26 for rate in series["output_tok_per_s"]) and sum(
        series["output_tok_per_s"]
    ) == pytest.approx(500)
    assert all(value is not None for value in series["p50_itl_ms"])
    assert [
        place for place, value in enumerate(series["p50_ttft_ms"]) if value is not None
    ] == [0, 4, 8, 12, 16]
    assert [place for place, value in enumerate(series["requests_per_s"]) if value] == [
        3,
        7,
        11,
        15,
        19,
    ]
    assert series["settled_s"] == 20, "nothing is in flight"
    live.sample("measuring", {GroupKey("chat", 0, ""): 1}, {"in_flight": 1.0})
    assert live.series(0, 0)["settled_s"] == pytest.approx(16), (
        "an answer under way may be 4 s old"
    )


def test_instants_of_odd_answers() -> None:
    """Without a TTFT at the end; one token; gaps that are no numbers; none after the end."""
    numbers = {
        "started_mono_ns": np.array([0.0, 0.0, 0.0, 0.0]),
        "ended_mono_ns": np.array([9e9, 9e9, 9e9, 1e9]),
        "ttft_ms": np.array([500.0, np.nan, 2000.0, 700.0]),
    }
    first, came, lengths = token_instants_ns(
        numbers, [np.array(gaps) for gaps in ([100.0, 200.0], [], [np.nan], [600.0])]
    )
    assert (first / 1e9).tolist() == [0.5, 9.0, 2.0, 0.7] and lengths.tolist() == [
        2,
        0,
        1,
        1,
    ]
    assert (came / 1e9).tolist() == pytest.approx([0.6, 0.8, 2.0, 1.0])


def test_only_what_has_changed_is_sent_again() -> None:
    clock = Clock()
    live = LiveFigures(clock)
    clock.ns = 5 * S
    live.add(request(5))
    before = live.series(0, 0)
    clock.ns = 9 * S
    live.add(request(9))
    assert live.series(before["version"], before["width_s"])["step"] == [8, 9], (
        "its tokens came in 8, its end in 9"
    )
    assert live.series(before["version"], 99)["step"] == [4, 5, 8, 9], (
        "another width: everything"
    )


def test_an_instant_of_the_future_or_past_cannot_break_the_steps() -> None:
    series = TimeSeries(0)
    assert series.steps_of(np.array([-5 * S, 3 * S, 10**18]), 10 * S).tolist() == [
        0,
        3,
        10,
    ]


def test_gauges_are_bounded() -> None:
    series = TimeSeries(0)
    series.sample({f"gauge {number}": 1.0 for number in range(500)}, 0)
    assert len(series.since(0)["gauges"]) == MOST_GAUGES


def test_the_exposition_has_the_counts_of_the_records() -> None:
    live = LiveFigures(lambda: 300 * S)
    for number in range(1, 201):
        live.add(request(number, host="http://a:1"))
    live.add(request(3, host="http://a:1", status="timeout"))
    live.sample(
        "stage 8 measuring",
        {GroupKey("chat", 0, "http://a:1"): 4},
        {"in_flight": 4, "gpu 0 power": 300.0},
    )
    text = exposition(live, ["8"], {"run": 'quo"te\n', "label": "ünï"}).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    buckets = {
        float(sample.labels["le"]): sample.value
        for sample in families["llama_load_ttft_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    # TTFT of 1, 2, … 200 ms; le includes its bound
    assert buckets[0.1] == 100 and buckets[float("inf")] == 200
    (total,) = (
        s
        for s in families["llama_load_ttft_seconds"].samples
        if s.name.endswith("_sum")
    )
    assert total.value == pytest.approx(20.1)
    assert total.labels == {"workload": "sharegpt", "stage": "8", "host": "http://a:1"}
    (failed,) = families["llama_load_requests_failed"].samples
    assert (failed.labels["class"], failed.value) == ("timeout", 1)
    assert families["llama_load_requests_in_flight"].samples[0].value == 4
    assert families["llama_load_measuring"].samples[0].value == 1
    assert families["llama_load_telemetry"].samples[0].labels == {
        "series": "gpu 0 power"
    }


def test_before_the_first_run_there_is_something_to_scrape() -> None:
    families = [
        family.name
        for family in text_string_to_metric_families(exposition(None, [], {}).decode())
    ]
    assert families == ["llama_load_measuring"]


def test_what_the_client_feels_is_said_while_the_run_goes_on() -> None:
    live = LiveFigures(lambda: 20 * S)
    live.add(request(1, e2el_ms=100.0))
    live.sample("measuring", {}, {LOOP_LAG: 4.0, CORE_WAIT: 4.0, OTHERS: 90.0})
    assert list(judgement(added(live.groups().values()), live)) == []
    live.sample("measuring", {}, {LOOP_LAG: 40.0, CORE_WAIT: 30.0, OTHERS: 90.0})
    lag, waits = judgement(added(live.groups().values()), live)
    assert lag["word"] == waits["word"] == "CLIENT-BOUND"
    assert (
        "40.0 ms late; other programs take 90 %" in lag["text"]
        and "30 % of the time" in waits["text"]
    )


def test_tokens_are_drawn_when_they_arrive_and_counted_once() -> None:
    """A second answer in the same figures goes on for seconds: its first token and its output are
    in the series at once, and its record changes no step of them."""
    clock = Clock()
    live = LiveFigures(clock)
    instants = np.array([n * S // 2 for n in range(1, 8)])  # from 0.5 s to 3.5 s
    clock.ns = 2 * S
    live.add_tokens([NewTokens(7, 0, 0, instants[:3])])  # up to 1.5 s
    series = live.series(0, 0)
    assert series["output_tok_per_s"] == [1.0, 2.0]
    assert series["first_tokens"] == {"t_s": [0.5], "ttft_ms": [500.0]}
    assert series["settled_s"] > 1.5
    clock.ns = 4 * S
    live.add_tokens([NewTokens(7, 3, 0, instants[2:])])
    drawn = live.series(0, 1)
    assert drawn["output_tok_per_s"] == [1.0, 2.0, 2.0, 2.0]
    own = {
        "prompt_index": 7,
        "started_mono_ns": 0,
        "ended_mono_ns": 4 * S - 1,
        "ttft_ms": 500.0,
        "itl_ms": [500.0] * 6,
        "output_tokens": 7,
    }
    live.add(request(7, **own))
    after = live.series(0, 1)
    changes = ("version", "requests_per_s", "settled_s")
    assert {k: v for k, v in after.items() if k not in changes} == {
        k: v for k, v in drawn.items() if k not in changes
    }
    group = added(live.groups().values())
    assert (group.completed, group.count("itl"), group.count("ttft")) == (1, 6, 1)


def test_the_last_output_ends_where_tokens_are_complete() -> None:
    """Steps before the first token are left out, and the present one."""
    clock = Clock()
    live = LiveFigures(clock)
    clock.ns = 5 * S
    instants = np.array([S * 5 // 2, 3 * S, S * 7 // 2, S * 9 // 2])
    live.add_tokens([NewTokens(7, 0, 0, instants)])
    assert live.last_output(20) == [1.0, 2.0]
    clock.ns = 6 * S
    assert live.last_output(20) == [1.0, 2.0, 1.0]
    assert live.last_output(2) == [2.0, 1.0]
    live.looks_every_s = 1.0  # what came after the last look is not known
    assert live.last_output(20) == [1.0, 2.0]


def test_a_record_corrects_the_tokens_that_were_drawn() -> None:
    """Its events had two tokens each, and the last two events were not drawn."""
    clock = Clock()
    live = LiveFigures(clock)
    clock.ns = 2 * S
    live.add_tokens([NewTokens(7, 0, 0, np.array([S // 2, S]))])
    own = {
        "prompt_index": 7,
        "started_mono_ns": 0,
        "ended_mono_ns": 2 * S - 1,
        "ttft_ms": 500.0,
        "itl_ms": [500.0, 400.0, 300.0],
        "output_tokens": 8,
    }
    live.add(request(7, **own))
    series = live.series(0, 0)
    assert series["output_tok_per_s"] == [2.0, 6.0]
    assert len(series["first_tokens"]["t_s"]) == 1


def test_tokens_whose_beginning_was_not_drawn_wait_for_the_record() -> None:
    """A message was lost: what came after it would be drawn without it."""
    clock = Clock()
    live = LiveFigures(clock)
    clock.ns = 2 * S
    live.add_tokens([NewTokens(7, 5, 0, np.array([S, S + 1]))])
    assert live.series(0, 0)["output_tok_per_s"] == []


def test_a_stage_begins_once() -> None:
    clock = Clock()
    live = LiveFigures(clock)
    clock.ns = 3 * S
    live.stage_begins(1)
    clock.ns = 5 * S
    live.stage_begins(1)
    assert live.stages == {1: 3.0}
