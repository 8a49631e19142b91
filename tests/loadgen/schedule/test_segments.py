"""The segments of a run: which requests are scheduled when, and how many may be in flight; and the
flags that say so."""

from __future__ import annotations

import math
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.options import RunOptions, read_options
from llama_load.loadgen.schedule.segments import (
    MOST_ARRIVALS,
    LoadModel,
    Segment,
    of_conversations,
    plan_segments,
    total_requests,
)
from llama_load.loadgen.schedule.stages import parse_stages
from llama_load.loadgen.workloads.arrival import Arrival


def staged(
    text: str,
    num_prompts: int | None = None,
    run_time_s: float | None = None,
    **model: object,
) -> list[Segment]:
    return plan_segments(
        LoadModel(stages=parse_stages(text), **model), num_prompts, run_time_s
    )


def one(found: list[Segment]) -> Segment:
    (segment,) = found
    return segment


def instants(segment: Segment) -> list[float]:
    return [round(float(at), 6) for at in segment.scheduled_s]


# Closed loops


@pytest.mark.parametrize(
    ("num_prompts", "run_time_s"), [(64, None), (None, 30.0), (64, 30.0), (None, None)]
)
def test_a_closed_loop_has_what_the_flags_say(
    num_prompts: int | None, run_time_s: float | None
) -> None:
    """By count, by time, by what comes first, or until it is stopped; as many in flight as there
    are users."""
    segment = one(plan_segments(LoadModel(), num_prompts, run_time_s))
    assert (segment.total, segment.seconds) == (num_prompts, run_time_s)
    assert (
        segment.scheduled_s,
        segment.stage_index,
        segment.most_users,
        segment.limit_at(5.0),
    ) == (None, None, None, None)
    assert (segment.is_limited, segment.users_to_begin(10.0)) == (False, 0)
    assert not LoadModel().is_open


def test_a_stage_without_an_amount_takes_that_of_the_flags() -> None:
    """One with its own amount takes nothing from them: neither the count nor the time."""
    found = staged("1,8:128,16:30s", 64, 600.0)
    assert [(segment.total, segment.seconds) for segment in found] == [
        (64, 600.0),
        (128, None),
        (None, 30.0),
    ]
    assert [segment.first_stage for segment in found] == [0, 1, 2]
    assert [
        (segment.most_users, segment.users_to_begin(10.0), segment.limit_at(0.0))
        for segment in found
    ] == [(1, 1, 1), (8, 8, 8), (16, 16, 16)]
    assert all(segment.is_limited for segment in found)
    assert total_requests(found) is None  # the last has as many as fit its time
    assert total_requests(staged("1,8:128", 64)) == 192


def test_a_spike_is_one_stretch_whose_limit_jumps() -> None:
    """4, 32 and 4 in flight for 30 s each: 90 s, the changes at 30 and 60 s, after the end the last
    one's."""
    first, spike = staged("1:16,spike:4-32:30s")
    assert (first.first_stage, spike.first_stage) == (0, 1)
    assert (spike.total, spike.seconds, spike.starts_s) == (
        None,
        90.0,
        [0.0, 30.0, 60.0],
    )
    assert [spike.limit_at(at) for at in (0.0, 29.9, 30.0, 59.9, 60.0, 90.0, 95.0)] == [
        4,
        4,
        32,
        32,
        4,
        4,
        4,
    ]
    assert (spike.most_users, spike.users_to_begin(1.0)) == (32, 32)
    assert [
        spike.stage_of(number, at)
        for number, at in ((0, 0.0), (50, 30.0), (9, 59.9), (7, 60.0))
    ] == [1, 2, 2, 3]


def test_a_soak_is_one_stretch_of_windows() -> None:
    """A minute in six: 10 s each, always 8 in flight."""
    segment = one(staged("soak:8:1m"))
    assert (segment.seconds, segment.starts_s) == (
        60.0,
        [0.0, 10.0, 20.0, 30.0, 40.0, 50.0],
    )
    assert {segment.limit_at(at) for at in range(70)} == {8}
    assert [segment.stage_index_at(at) for at in (0.0, 9.9, 10.0, 59.0, 61.0)] == [
        0,
        0,
        1,
        5,
        5,
    ]


def test_a_soak_by_rate_is_one_schedule_over_its_windows() -> None:
    """11 in 11 s, evenly: windows of 1.83 s have one or two each, and none is lost at their ends. A
    spike keeps its own."""
    segment = one(
        plan_segments(
            LoadModel(stages=parse_stages("soak:1/s:11s"), process="constant"),
            None,
            None,
        )
    )
    assert instants(segment) == [float(second) for second in range(1, 12)]
    assert segment.stage_index.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert np.bincount(one(staged("soak:50/s:60s")).stage_index).sum() == 3000
    assert np.bincount(one(staged("spike:1/s-9/s:10s")).stage_index).tolist() == [
        10,
        90,
        10,
    ]


def test_a_trace_that_takes_years_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"the trace takes 1e\+12 s: check its time unit"
    ):
        plan_segments(LoadModel(arrivals=(Arrival(0.0), Arrival(1e12))), None, None)


@pytest.mark.parametrize(
    ("text", "limits"), [("1-16:60s", [1, 9, 16]), ("16-1:60s", [16, 9, 1])]
)
def test_a_ramp_has_users_enough_for_its_steepest_end(
    text: str, limits: list[int]
) -> None:
    """Half way between 1 and 16 there are 8.5 -> 9."""
    segment = one(staged(text))
    assert [segment.limit_at(at) for at in (0.0, 30.0, 60.0)] == limits
    assert (segment.most_users, segment.total, segment.seconds) == (16, None, 60.0)


# Open loops


def test_a_rate_with_a_count_ends_after_it() -> None:
    """4 at 2 a second, evenly: 0.5, 1.0, 1.5 and 2.0 s; the time is as long as they take."""
    segment = one(plan_segments(LoadModel(rate_rps=2.0, process="constant"), 4, None))
    assert instants(segment) == [0.5, 1.0, 1.5, 2.0]
    assert (segment.total, segment.seconds, segment.stage_index.tolist()) == (
        4,
        None,
        [0, 0, 0, 0],
    )


def test_a_rate_with_a_time_has_the_count_that_comes_by_then() -> None:
    """2 a second for 3 s: 6; all are answered, so the time cuts none. 2.5 a second for 3 s: 7.5 ->
    8, as -t rounds."""
    segment = one(plan_segments(LoadModel(rate_rps=2.0), None, 3.0))
    assert (segment.total, segment.seconds, float(segment.scheduled_s[-1])) == (
        6,
        None,
        pytest.approx(3.0),
    )
    assert one(plan_segments(LoadModel(rate_rps=2.5), None, 3.0)).total == 8


def test_a_rate_with_both_ends_by_what_comes_first() -> None:
    segment = one(plan_segments(LoadModel(rate_rps=2.0), 100, 3.0))
    assert (segment.total, segment.seconds, float(segment.scheduled_s[-1])) == (
        100,
        3.0,
        pytest.approx(50.0),
    )


def test_a_ramp_of_the_whole_run_goes_to_its_rate() -> None:
    """From 1 to 4 a second in three arrivals: gaps of 1/1, 1/2.5 and 1/4 s by the linear, 1/1, 1/2,
    1/4 by the exponential one."""
    model = {"rate_rps": 4.0, "ramp_start_rps": 1.0, "process": "constant"}
    assert instants(one(plan_segments(LoadModel(ramp="linear", **model), 3, None))) == [
        1.0,
        1.4,
        1.65,
    ]
    assert instants(
        one(plan_segments(LoadModel(ramp="exponential", **model), 3, None))
    ) == [1.0, 1.5, 1.75]


def test_a_ramp_of_rates_is_bent_as_the_flag_says() -> None:
    """From 1 to 3 a second within 1.9 s: linear 1/1 + 1/2 + 1/3 = 1.833 s, three arrivals; four
    would take 2.23 s. An exponential one: 1/1 + 1/1.732 + 1/3 = 1.911 s is too long, so two: 1/1 +
    1/3."""
    assert instants(one(staged("1/s-3/s:1.9s", process="constant"))) == [
        1.0,
        1.5,
        1.833333,
    ]
    assert instants(
        one(staged("1/s-3/s:1.9s", process="constant", ramp="exponential"))
    ) == [1.0, 1.333333]


def test_rates_of_stages_have_amounts_of_their_own() -> None:
    """3 at 1 a second, 2 s of 2 a second (4), 1 by --num-prompts; each segment counts from its own
    begin."""
    found = staged("1/s:3,2/s:2s,4/s", 1, None, process="constant")
    assert [instants(segment) for segment in found] == [
        [1.0, 2.0, 3.0],
        [0.5, 1.0, 1.5, 2.0],
        [0.25],
    ]
    assert [
        (segment.total, segment.seconds, segment.first_stage) for segment in found
    ] == [(3, None, 0), (4, None, 1), (1, None, 2)]
    assert total_requests(found) == 8
    assert [segment.stage_of(0, 99.0) for segment in found] == [0, 1, 2]


def test_a_spike_of_rates_is_one_schedule() -> None:
    """1 a second for 2 s, 4 a second for 2 s, 1 a second for 2 s: 2 + 8 + 2 arrivals; a place goes
    by the schedule, not by when a request could be sent."""
    before, spike = staged("9/s:1,spike:1/s-4/s:2s", process="constant")
    assert before.first_stage == 0
    assert instants(spike) == [
        1.0,
        2.0,
        2.25,
        2.5,
        2.75,
        3.0,
        3.25,
        3.5,
        3.75,
        4.0,
        5.0,
        6.0,
    ]
    assert spike.stage_index.tolist() == [0, 0, *[1] * 8, 2, 2]
    assert [spike.stage_of(number, 500.0) for number in (0, 2, 11)] == [1, 2, 3]
    assert spike.most_users is None


def test_no_stage_has_an_arrival_after_its_time() -> None:
    """2.5 a second for 3 s: the eighth would come at 3.2 s, 0.2 s into the spike, after the spike's
    first two."""
    segment = one(staged("spike:2.5/s-10/s:3s", process="constant"))
    assert Counter(segment.stage_index.tolist()) == {0: 7, 1: 30, 2: 7}
    assert float(segment.scheduled_s[6]) == pytest.approx(2.8)


open_stages = st.one_of(
    st.builds(
        "spike:{:.2f}/s-{:.2f}/s:{}s".format,
        st.floats(0.5, 30),
        st.floats(0.5, 30),
        st.integers(4, 20),
    ),
    st.builds("soak:{:.2f}/s:{}s".format, st.floats(0.5, 20), st.integers(13, 60)),
    st.builds(
        "{:.2f}/s-{:.2f}/s:{}s".format,
        st.floats(1.0, 30),
        st.floats(1.0, 30),
        st.integers(2, 20),
    ),
    st.builds("{:.2f}/s:{}".format, st.floats(0.5, 30), st.integers(1, 50)),
    st.builds("{:.2f}/s:{}s".format, st.floats(0.5, 30), st.integers(3, 30)),
)
processes = st.one_of(
    st.fixed_dictionaries({"process": st.sampled_from(["poisson", "constant"])}),
    st.fixed_dictionaries(
        {"process": st.just("gamma"), "burstiness": st.floats(0.05, 20)}
    ),
)


@given(
    st.lists(open_stages, min_size=1, max_size=3).map(",".join),
    processes,
    st.integers(0, 2**40),
)
def test_every_arrival_is_within_the_stage_it_belongs_to(
    text: str, process: dict, seed: int
) -> None:
    """In ascending order, each once, each stage but a window of a soak with some; and the stages
    are those of the time, but at the very border."""
    numbers = []
    for segment in staged(text, seed=seed, **process):
        assert segment.total == len(segment.scheduled_s) == len(segment.stage_index)
        assert (np.diff(segment.scheduled_s) >= 0).all()
        assert "soak" in text or set(segment.stage_index.tolist()) == set(
            range(len(segment.stages))
        )
        for stage_index, (stage, start_s) in enumerate(
            zip(segment.stages, segment.starts_s, strict=True)
        ):
            own = segment.scheduled_s[segment.stage_index == stage_index]
            if not len(own):
                continue
            end_s = start_s + stage.seconds if stage.seconds else math.inf
            assert start_s <= own.min() <= own.max() <= end_s
            assert (
                segment.stage_index_at(float(own.min() + own.max()) / 2) == stage_index
                or own.min() == own.max() == end_s
            )
        numbers += [segment.stage_of(number, 0.0) for number in range(segment.total)]
    assert "soak" in text or sorted(set(numbers)) == list(
        range(len(parse_stages(text)))
    )


def test_stages_at_the_same_rate_have_schedules_of_their_own() -> None:
    """Each is drawn by its own seed; the whole course again comes out the same."""
    first, second = staged("2/s:50,2/s:50", seed=3)
    assert not np.array_equal(first.scheduled_s, second.scheduled_s)
    again, _ = staged("2/s:50,2/s:50", seed=3)
    assert np.array_equal(first.scheduled_s, again.scheduled_s)


def test_a_trace_is_cut_by_the_number_of_prompts() -> None:
    """And by the time, when it is played."""
    arrivals = [Arrival(0.0), Arrival(0.5), Arrival(2.0), Arrival(2.0)]
    whole = one(plan_segments(LoadModel(arrivals=arrivals), None, None))
    assert (
        instants(whole),
        whole.total,
        whole.seconds,
        whole.stage_index.tolist(),
    ) == ([0.0, 0.5, 2.0, 2.0], 4, None, [0, 0, 0, 0])
    cut = one(plan_segments(LoadModel(arrivals=arrivals, max_in_flight=5), 2, 60.0))
    assert (instants(cut), cut.total, cut.seconds, cut.limit_at(1.0)) == (
        [0.0, 0.5],
        2,
        60.0,
        5,
    )
    assert LoadModel(arrivals=arrivals).is_open


@pytest.mark.parametrize(
    ("most", "horizon_s", "users"),
    [
        (None, 0.0, 1),  # the first comes at 0.5 s, but somebody must be there
        (None, 2.0, 4),  # at 0.5, 1.0, 1.5 and 2.0 s
        (None, 60.0, 10),  # there are no more
        (3, 2.0, 3),
        (8, 2.0, 4),
    ],
)
def test_an_open_loop_begins_with_the_users_that_it_wants_soon(
    most: int | None, horizon_s: float, users: int
) -> None:
    """But never with more than may be in flight."""
    segment = one(
        plan_segments(
            LoadModel(rate_rps=2.0, process="constant", max_in_flight=most), 10, None
        )
    )
    assert segment.users_to_begin(horizon_s) == users
    assert (segment.limit_at(0.0), segment.limit_at(99.0), segment.is_limited) == (
        most,
        most,
        most is not None,
    )


def test_loads_of_both_kinds_go_one_after_the_other() -> None:
    """The limit of the open loop is none of the closed one's."""
    closed, open_ = staged("8:4,2/s:6", max_in_flight=3)
    assert (closed.scheduled_s, closed.limit_at(0.0), open_.limit_at(0.0)) == (
        None,
        8,
        3,
    )
    assert LoadModel(stages=parse_stages("8:4,2/s:6")).is_open
    assert not LoadModel(stages=parse_stages("8:4")).is_open


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("2/s", "a request rate needs an end: give --num-prompts or -t"),
        (
            "0.1/s:4s",
            "stage 0.1/s: at 0.1 requests per second none arrives within 4 s; raise the rate or the time",
        ),
        # rounded it would be one, at 1.67 s
        ("0.6/s:1s", "stage 0.6/s: at 0.6 requests per second none arrives within 1 s"),
        ("0.1/s-0.2/s:1s", "at 0.2 requests per second no request arrives within 1 s"),
        (
            "soak:0.1/s:6s",
            "stage 0.1/s 1/6: at 0.1 requests per second none arrives within 6 s",
        ),
        (
            "1000000/s:1000s",
            "a schedule has room for 100,000,000 requests, got 1,000,000,000",
        ),
        (
            "1000000/s-1/s:1000s",
            "a schedule has room for 100,000,000 requests, got 1,000,000,000",
        ),
        (
            f"1/s:{MOST_ARRIVALS + 1}",
            "a schedule has room for 100,000,000 requests, got 100,000,001",
        ),
    ],
)
def test_what_makes_no_schedule_is_reported_in_a_sentence(
    text: str, sentence: str
) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}"):
        staged(text)


def test_a_rate_without_an_end_is_reported() -> None:
    with pytest.raises(
        UsageError, match="a request rate needs an end: give --num-prompts or -t"
    ):
        plan_segments(LoadModel(rate_rps=2.0), None, None)


# Flags


def options(**given_: object) -> RunOptions:
    return read_options(SimpleNamespace(**given_))


@pytest.mark.parametrize(
    ("given_", "model"),
    [
        ({}, LoadModel()),
        ({"request_rate": "inf", "max_concurrency": "4"}, LoadModel()),
        ({"request_rate": "2.5"}, LoadModel(rate_rps=2.5)),
        (
            {"request_rate": "2", "max_concurrency": "4"},
            LoadModel(rate_rps=2.0, max_in_flight=4),
        ),
        (
            {"request_rate": "2", "max_concurrency": "4", "on_limit": "drop"},
            LoadModel(rate_rps=2.0, max_in_flight=4, drops=True),
        ),
        (
            {"request_rate": "2", "burstiness": "0.5"},
            LoadModel(rate_rps=2.0, burstiness=0.5, process="gamma"),
        ),
        (
            {"request_rate": "2", "arrival": "gamma"},
            LoadModel(rate_rps=2.0, process="gamma"),
        ),
        (
            {"request_rate": "2", "arrival": "constant", "seed": "7"},
            LoadModel(rate_rps=2.0, process="constant", seed=7),
        ),
        (
            {"request_rate": "2", "ramp": "linear", "ramp_start_rps": "1"},
            LoadModel(rate_rps=2.0, ramp="linear", ramp_start_rps=1.0),
        ),
        ({"stages": "1,8"}, LoadModel(stages=parse_stages("1,8"))),
        (
            {"stages": "2/s,4/s", "max_concurrency": "4"},
            LoadModel(stages=parse_stages("2/s,4/s"), max_in_flight=4),
        ),
        (
            {"stages": "1/s-9/s:60s", "ramp": "exponential", "burstiness": "2"},
            LoadModel(
                stages=parse_stages("1/s-9/s:60s"),
                ramp="exponential",
                process="gamma",
                burstiness=2.0,
            ),
        ),
        (
            {"stages": "1,8", "stage_prompts": "same", "cache_prompt": "off"},
            LoadModel(stages=parse_stages("1,8"), same_prompts=True),
        ),
        (
            {"stages": "1,8", "stage_prompts": "same", "bust_prefix_cache": True},
            LoadModel(stages=parse_stages("1,8"), same_prompts=True),
        ),
        (
            {
                "trace": "t.csv",
                "speed": "2",
                "arrival": "trace",
                "max_concurrency": "4",
            },
            LoadModel(max_in_flight=4),
        ),
    ],
)
def test_flags_that_go_together_make_a_load(given_: dict, model: LoadModel) -> None:
    """Whose trace is not yet read."""
    assert options(**given_).load == model


def test_all_requests_of_a_conversation_have_the_instant_of_its_arrival() -> None:
    """One a second at even gaps. Three conversations of 3, 1 and 2 requests by time; five requests
    are the first three, cut."""
    model = LoadModel(conversations_per_min=60, process="constant")
    by_time = of_conversations(
        model, one(plan_segments(model, None, 3.0)), iter([3, 1, 2, 9]), None
    )
    assert by_time.scheduled_s is not None
    assert by_time.scheduled_s.tolist() == [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]
    assert (by_time.total, by_time.conversations, by_time.seconds) == (6, 3, None)
    by_count = of_conversations(
        model, one(plan_segments(model, 5, None)), iter([3, 1, 2, 9]), 5
    )
    assert by_count.scheduled_s is not None
    assert by_count.scheduled_s.tolist() == [1.0, 1.0, 1.0, 2.0, 3.0]
    assert (by_count.total, by_count.conversations) == (5, 3)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_conversations_arrive_as_burstily_as_they_should(burstiness: float) -> None:
    """Gaps of gamma arrivals vary by 1 / sqrt(burstiness); 2000 of them show it within a tenth."""
    model = LoadModel(
        conversations_per_min=30,
        burstiness=burstiness,
        process="poisson" if burstiness == 1 else "gamma",
        seed=5,
    )
    found = of_conversations(
        model, one(plan_segments(model, None, 4000.0)), iter([2] * 2000), None
    ).scheduled_s
    assert found is not None
    gaps = np.diff(found[::2], prepend=0.0)
    assert gaps.mean() == pytest.approx(2.0)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.1)


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        (
            {"request_rate": "2", "stages": "1,8"},
            "--request-rate and --stages (1,8) conflict",
        ),
        ({"trace": "t", "request_rate": "2"}, "--trace and --request-rate conflict"),
        ({"trace": "t", "stages": "1,8"}, "--trace and --stages conflict"),
        (
            {"arrival": "trace", "request_rate": "2"},
            "--arrival trace needs a trace: give it with --trace FILE",
        ),
        (
            {"trace": "t", "arrival": "poisson"},
            "--trace and --arrival poisson conflict",
        ),
        (
            {"conversations": "9", "conversation_rate": "9"},
            "--conversations and --conversation-rate conflict",
        ),
        (
            {"conversations": "9", "request_rate": "2"},
            "--conversations and --request-rate both set the load",
        ),
        (
            {"conversations": "9", "stages": "1,8"},
            "--conversations and --stages both set the load: give only one: numbers in",
        ),
        (
            {"conversations": "9", "max_concurrency": "9"},
            "--conversations and --max-concurrency both set the load",
        ),
        (
            {"conversation_rate": "9", "request_rate": "2"},
            "--conversation-rate and --request-rate conflict",
        ),
        (
            {"conversation_rate": "9", "stages": "1,8"},
            "--conversation-rate and --stages conflict",
        ),
        (
            {"conversation_rate": "9", "trace": "t"},
            "--conversation-rate and --trace conflict",
        ),
        (
            {"conversation_rate": "9", "max_concurrency": "9"},
            "--conversation-rate and --max-concurrency conflict",
        ),
        (
            {"conversation_rate": "0"},
            "--conversation-rate must be a number above 0, got '0'",
        ),
        (
            {"arrival": "constant"},
            "--arrival constant needs a rate: give --request-rate",
        ),
        (
            {"arrival": "poisson", "stages": "1,8"},
            "--arrival poisson needs a rate: give --request-rate",
        ),
        (
            {"burstiness": "0.5"},
            "--burstiness 0.5 needs a rate: give --request-rate, and no trace",
        ),
        (
            {"burstiness": "0.5", "trace": "t"},
            "--burstiness 0.5 needs a rate: give --request-rate, and no trace",
        ),
        (
            {"burstiness": "0.5", "request_rate": "2", "arrival": "poisson"},
            "--burstiness 0.5 and --arrival poisson conflict",
        ),
        (
            {"burstiness": "0.5", "request_rate": "2", "arrival": "constant"},
            "--burstiness 0.5 and --arrival constant conflict",
        ),
        ({"ramp": "linear"}, "--ramp linear needs a final rate: give --request-rate"),
        (
            {"ramp": "linear", "stages": "1-8:60s"},
            "--ramp linear needs a final rate: give --request-rate",
        ),
        (
            {"ramp": "linear", "stages": "1/s,8/s"},
            "--ramp linear needs a final rate: give --request-rate",
        ),
        (
            {"ramp": "linear", "request_rate": "2"},
            "a ramp needs both --ramp linear (or exponential) and --ramp-start-rps",
        ),
        (
            {"ramp_start_rps": "1", "request_rate": "2"},
            "a ramp needs both --ramp linear (or exponential) and --ramp-start-rps",
        ),
        ({"ramp_start_rps": "1"}, "--ramp-start-rps needs --request-rate"),
        (
            {"ramp_start_rps": "1", "stages": "1/s-8/s:60s"},
            "--ramp-start-rps needs --request-rate",
        ),
        (
            {"max_concurrency": "4", "stages": "1,8"},
            "--max-concurrency and --stages both set concurrency",
        ),
        (
            {"max_concurrency": "4", "stages": "1,8/s"},
            "--max-concurrency and --stages both set concurrency",
        ),
        (
            {"arrival": "trace"},
            "--arrival trace needs a trace: give it with --trace FILE",
        ),
        (
            {"stages": "1,8", "fail_if": ["output_throughput<9"]},
            "--fail-if 'output_throughput<9' needs a stage: write ",
        ),
        (
            {"on_limit": "drop", "request_rate": "2"},
            "--on-limit drop needs a limit: give --max-concurrency",
        ),
        (
            {"on_limit": "drop", "max_concurrency": "4"},
            "--on-limit drop needs a limit and a rate",
        ),
        (
            {"stage_prompts": "same", "cache_prompt": "off"},
            "--stage-prompts needs --stages",
        ),
        (
            {"stage_prompts": "same", "stages": "1,8"},
            "--stage-prompts same would measure the prompt cache",
        ),
        (
            {"stage_prompts": "same", "stages": "1,8", "cache_prompt": "on"},
            "--stage-prompts same would measure the prompt cache",
        ),
        ({"stages": "1,-8"}, "--stages '-8' is not valid: "),
        ({"request_rate": "0"}, "--request-rate must be a number above 0, got '0'"),
        (
            {"arrival": "later"},
            "--arrival must be one of poisson, constant, gamma, trace, got 'later'",
        ),
    ],
)
def test_flags_that_say_different_things_are_refused(
    given_: dict, sentence: str
) -> None:
    """By one sentence, which says what to leave out or to add."""
    with pytest.raises(UsageError) as raised:
        options(**given_)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(sentence)


def test_all_conflicting_pairs_are_reported_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        options(request_rate="2", stages="1,8", on_limit="drop", arrival="trace")
    assert len(str(raised.value).splitlines()) == 3
