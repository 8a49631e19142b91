"""A second group of answers at equal work is named, and no server whose waits, prompts and load
alone make two groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from llama_load.analysis.checks.answer_sources import at_equal_work
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.statistics.equal_work import Work, begins_ns, explained_ttft
from llama_load.analysis.statistics.outliers import Instants, Outliers, outliers
from llama_load.analysis.statistics.pace import paces_ms
from llama_load.analysis.statistics.second_group import smallest_seen
from llama_load.analysis.statistics.two_groups import two_groups
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes
from tests.make_records import record, table
from tests.source_runs import Case, looked_at

PARALLEL = Case(users=6, slots=100)
CLEAN = (
    Case(
        name="first wave, one queue",
        users=16,
        slots=4,
        answers="equal",
        prompts="equal",
    ),
    Case(name="slots free or occupied", load=0.8, slots=4),
    Case(name="lengths by intention", users=8, slots=100, prompts="bimodal"),
    Case(
        name="one prompt at a time",
        users=8,
        slots=64,
        one_by_one=True,
        prompts="bimodal",
        answers="equal",
    ),
    Case(name="conversations", users=8, slots=4, turns=5),
    Case(name="each answer at its own speed", users=4, speed=1.0, noise=0.5),
    Case(
        name="drafts, short answers, aborts",
        load=0.8,
        hidden_drafts=True,
        answers="short",
        aborted=0.1,
    ),
)


@pytest.mark.parametrize("case", CLEAN, ids=lambda case: case.name)
def test_one_server_is_one_group(case: Case) -> None:
    for seed in range(2):
        by_ttft, by_pace = looked_at(case, 150, seed)
        assert by_ttft.groups is None
        assert by_pace.groups is None


def test_answers_of_one_token_occupy_no_slot_while_they_generate() -> None:
    """They end with their first token: none is in the answer at the same time as another, and no
    queue of no slots is tried."""
    starts = np.array([0, 1, 2], dtype=np.int64)
    ends = np.array([10, 11, 12], dtype=np.int64) * 1_000_000
    judged = np.ones(3, dtype=np.bool_)
    for slots in (None, 0):
        work = Work(
            started_ns=starts,
            first_ns=ends,
            ended_ns=ends,
            prompt_tokens=np.full(3, 8.0),
            is_judged=judged,
            slots=slots,
        )
        assert len(explained_ttft(work).quotients) == 3


def test_first_tokens_before_their_requests_are_left_out() -> None:
    """A clock that jumped: they have no logarithm."""
    starts = np.arange(40, dtype=np.int64) * 10**9
    firsts = starts + 10**8
    firsts[:3] = starts[:3] - 10**6
    firsts[3] = starts[3]
    judged = np.ones(40, dtype=np.bool_)
    work = Work(
        started_ns=starts,
        first_ns=firsts,
        ended_ns=firsts + 10**8,
        prompt_tokens=np.full(40, 8.0),
        is_judged=judged,
    )
    assert len(explained_ttft(work).quotients) == 40


def test_whole_answers_take_slots_and_show_no_prefill() -> None:
    """Every third answer comes whole; at times more requests are there than the two slots. What
    prompts take explains the first tokens of the others."""
    draw = np.random.default_rng(7)
    count = 150
    starts = np.cumsum(draw.exponential(0.4e9, count)).astype(np.int64)
    tokens = draw.integers(20, 200, count).astype(np.float64)
    is_whole = np.arange(count) % 3 == 0
    free = [0, 0]
    firsts = np.empty(count, dtype=np.int64)
    ends = np.empty(count, dtype=np.int64)
    for row in range(count):
        begin = max(int(starts[row]), free.pop(free.index(min(free))))
        firsts[row] = begin + int(1e6 * (20 + tokens[row]))
        ends[row] = firsts[row] + 400_000_000
        free.append(int(ends[row]))
    explained = explained_ttft(
        Work(
            started_ns=starts,
            first_ns=np.where(is_whole, ends, firsts),
            ended_ns=ends,
            prompt_tokens=tokens,
            is_judged=np.ones(count, dtype=np.bool_),
            is_whole=is_whole,
        )
    )
    quotients = explained.quotients[~is_whole]
    assert (firsts - starts).max() > 1.5 * (20 + 200) * 1e6  # some waited
    assert quotients.min() > 0.8
    assert quotients.max() < 1.25


@pytest.mark.parametrize(
    ("share", "ratio", "base"),
    [
        (0.12, 15.0, PARALLEL),  # a gateway's cache
        (0.3, 15.0, PARALLEL),
        (
            0.33,
            30.0,
            Case(load=0.7, slots=4),
        ),  # a filter in front of a queue: it waits for no slot
        (0.12, 0.3, PARALLEL),  # repeated by a gateway
        (0.5, 3.0, Case(users=8, slots=4)),  # every second answer from a faster server
    ],
)
def test_a_second_source_is_found(share: float, ratio: float, base: Case) -> None:
    """In every run of 300 requests, by TTFT or by pace."""
    case = Case(
        users=base.users, load=base.load, slots=base.slots, share=share, ratio=ratio
    )
    for seed in range(3):
        by_ttft, by_pace = looked_at(case, 300, seed)
        groups = by_ttft.groups or by_pace.groups
        assert groups is not None
        assert groups.share == pytest.approx(min(share, 1 - share), abs=0.08)


def test_a_router_by_length_is_two_sources() -> None:
    """Prompts above the median go to a model of half the speed: longer prompts explain a slower
    pace, but not that there is none between."""
    draw = np.random.default_rng(4)
    lengths = draw.lognormal(5.0, 0.5, 120)
    made = []
    for number, length in enumerate(lengths):
        gap_ms = 20.0 if length > np.median(lengths) else 10.0
        gaps = (gap_ms * draw.lognormal(0, 0.1, 40)).tolist()
        made.append(
            record(
                number,
                start_ms=1500.0 * number,
                first_ms=100 + 0.05 * length,
                gaps_ms=tuple(gaps),
                prompt_tokens=round(length),
            )
        )
    records = table(*made)
    checks = at_equal_work(Evidence(records=records, figures=summarize(records)))
    (found,) = [check for check in checks if check.name == "second_group_ratio"]
    assert not found.ok
    assert "60 of 120 answers have a token every" in found.text


def test_it_is_said_what_would_have_been_found() -> None:
    """400 requests with 10 % of scatter show smaller shares than 60."""
    large = smallest_seen(looked_at(PARALLEL, 400, 0)[0])
    small = smallest_seen(looked_at(PARALLEL, 60, 0)[0])
    assert large is not None and large <= 0.05
    assert small is None or small >= 0.1


def test_groups_that_follow_each_other_are_a_change_of_the_server() -> None:
    """Twenty times as slow in the second half: one episode, which the checks of its time name."""
    draw = np.random.default_rng(1)
    times = draw.lognormal(0, 0.1, 200)
    assert two_groups(np.where(np.arange(200) % 3, times, 20 * times)) is not None
    assert two_groups(np.where(np.arange(200) < 100, times, 20 * times)) is None


def test_a_request_begins_when_a_slot_is_free() -> None:
    """Two slots: the third waits for the first end, the fourth for the second one."""
    started, ended = np.array([0, 0, 1, 2]), np.array([5, 8, 9, 12])
    assert begins_ns(started, ended, 2).tolist() == [0, 0, 5, 8]


def test_a_pace_is_without_stalls() -> None:
    """20 gaps of 10 ms and one of 500 ms, which counts as three times 10 ms: 230 / 21."""
    steady = [record(n, gaps_ms=(10.0,) * 21) for n in range(20)]
    found = paces_ms(
        table(
            *steady,
            record(20, gaps_ms=(10.0,) * 20 + (500.0,)),
            record(21, gaps_ms=(10.0,) * 5),
        )
    )
    assert found[0] == pytest.approx(10)
    assert found[20] == pytest.approx(230 / 21)
    assert np.isnan(found[21])


def requests(
    fast: Sequence[int], *, later: Sequence[int] = (), cached: int | None = None
) -> list[RequestRecord]:
    """100 requests, one after the other, 300 ms to the first token with a scatter of 5 %; 21 ms of
    these."""
    draw = np.random.default_rng(3)
    made = []
    for number in range(100):
        first_ms = float((21 if number in fast else 300) * draw.lognormal(0, 0.05))
        turn = 2 if number in later else 1
        made.append(
            record(
                number,
                start_ms=number * 1000,
                first_ms=first_ms,
                gaps_ms=(20.0,) * 12,
                turn=turn,
                cached_tokens=cached,
            )
        )
    return made


def check_of(made: Sequence[RequestRecord]) -> tuple[float | None, str]:
    records = table(*made)
    check, *_ = at_equal_work(Evidence(records=records, figures=summarize(records)))
    return check.value, check.text


def test_a_cache_in_front_of_the_server_is_named() -> None:
    """Every eighth answer after 21 ms: 13 of 100."""
    value, text = check_of(requests(range(0, 100, 8)))
    assert value == pytest.approx(0.13)
    assert text.startswith("13 of 100 answers got their first token after 21")
    assert "two sources answer" in text


def test_later_turns_are_no_second_group() -> None:
    """Their history is cached. Where the server does not report it, they are not judged; where it
    does, they are a kind of their own."""
    fast = range(1, 100, 2)
    assert check_of(requests(fast, later=fast))[0] == 0
    assert check_of(requests(fast, later=fast, cached=0))[0] == 0
    assert check_of(requests(()))[0] == 0


def test_a_queue_of_the_server_is_no_second_source() -> None:
    """As with one LoRA at a time on vLLM: every second request waits 400 ms in the server's queue,
    which only its counters tell, or each answer. A queue of 10 ms on average explains nothing."""
    made = []
    for number, each in enumerate(requests(())):
        waits_ms = 400.0 * (number % 2)
        first_ms = 21.0 + waits_ms
        made.append(
            record(
                number,
                start_ms=number * 1000,
                first_ms=first_ms,
                gaps_ms=(20.0,) * 12,
                server_queue_ms=waits_ms,
                prompt_tokens=each.prompt_tokens,
            )
        )
    assert check_of(made)[0] == 0.0

    unreported = [replace(each, server_queue_ms=None) for each in made]
    records = table(*unreported)
    values = []
    for queue_ms in (0.0, 10.0, 190.0):
        counters = ServerCounters(
            times=ServerTimes(100, 100.0, 100.0, 100 * queue_ms, 1.0, 1.0)
        )
        evidence = Evidence(
            records=records, figures=summarize(records), counters=counters
        )
        check, *_ = at_equal_work(evidence)
        values.append(check.value)
    assert values == [0.5, 0.5, None]


def test_one_slow_request_that_makes_the_mean_is_named() -> None:
    """The first of 40 takes 18 s, on a server of 300 ms: mean 742 ms with it, 300 without. Its
    prompt is one of the longest, so that its time per prompt token is not the longest."""
    made = [
        replace(each, prompt_tokens=5 + 5 * (number % 10))
        for number, each in enumerate(requests(())[:40])
    ]
    slow = record(
        0, start_ms=0, first_ms=18_000, gaps_ms=(20.0,) * 12, prompt_tokens=50
    )
    records = table(slow, *made[1:])
    _, check = at_equal_work(Evidence(records=records, figures=summarize(records)))
    assert (check.name, check.ok) == ("outlier_shift", False)
    assert check.value == pytest.approx(0.6, abs=0.02)
    assert check.spoils == ("TTFT", "E2EL", "upper percentiles", "rates")
    assert "raise --warmup" in check.sentence


def test_two_slow_requests_of_100_that_make_p99_are_named() -> None:
    """They take 1.2 s, others 300 ms: the mean is 6 % larger, and P99 four times as large."""
    made = [
        replace(each, prompt_tokens=5 + 5 * (number % 10))
        for number, each in enumerate(requests(()))
    ]
    for place in (30, 70):
        made[place] = record(
            place,
            start_ms=made[place].started_mono_ns / 1e6,
            first_ms=1_200,
            gaps_ms=(20.0,) * 12,
            prompt_tokens=25,
        )
    records = table(*made)
    checks = at_equal_work(Evidence(records=records, figures=summarize(records)))
    (check,) = [check for check in checks if check.name == "outlier_shift"]
    assert not check.ok and "upper percentiles" in check.spoils


def test_late_first_tokens_of_slow_answers_spoil_the_pace_too() -> None:
    """The last 2 of 100 took 30 times as long to the first token and between tokens; where their
    tokens came as fast as others', TPOT is right."""
    for gap_ms, spoils in ((600.0, True), (20.0, False)):
        slow = []
        for number in (98, 99):
            slow.append(
                record(
                    number,
                    start_ms=98_000 + number,
                    first_ms=9000,
                    gaps_ms=(gap_ms,) * 12,
                )
            )
        records = table(*requests(())[:98], *slow)
        _, check = at_equal_work(Evidence(records=records, figures=summarize(records)))
        assert (check.name, check.ok) == ("outlier_shift", False)
        assert ({"TPOT", "ITL"} <= set(check.spoils)) is spoils


def test_a_slow_end_spoils_the_rates() -> None:
    """The last 2 of 40 took 8 s to the first token, when all others were answered."""
    slow = []
    for number in (38, 39):
        slow.append(
            record(
                number, start_ms=38_000 + number, first_ms=8000, gaps_ms=(20.0,) * 12
            )
        )
    records = table(*requests(())[:38], *slow)
    (*_, check) = at_equal_work(Evidence(records=records, figures=summarize(records)))
    assert (check.name, check.ok) == ("outlier_shift", False)
    assert {"TTFT", "rates"} <= set(check.spoils)


def test_the_slowest_of_an_honest_queue_is_no_outlier() -> None:
    """40 requests at 80 and 95 % load, where the longest wait moves the mean by 5 % and more."""
    for seed in range(4):
        for load in (0.8, 0.95):
            looked = looked_at(Case(load=load), 40, seed)[0]
            count = len(looked.quotients)
            at_once = np.zeros(count, dtype=np.int64)
            assert (
                outliers(np.ones(count), looked.quotients, at_once, at_once + 1) is None
            )


def test_one_request_stands_alone_by_less_where_the_others_are_alike() -> None:
    """The first of 40 took four times as long as others: of 300 ms that scatter by 5 % it makes
    mean TTFT 7 % larger; where they scatter by 40 %, or of 200, it is one of many."""
    draw = np.random.default_rng(0)

    def found(count: int, sigma: float) -> bool:
        usual = np.exp(sigma * draw.standard_normal(count))
        usual[0] = 4.0 * float(np.median(usual))
        begun = np.arange(count, dtype=np.int64) * 1_000
        one = outliers(300.0 * usual, usual, begun, begun + 300, are_alike=True)
        return one is not None

    assert found(40, 0.05)
    assert not found(200, 0.05)
    assert not any(found(40, 0.4) for _ in range(10))


def test_slow_requests_among_the_first_ones_are_outliers_together() -> None:
    """Seven of the first 13 of 200 took three times as long as others, with others between them;
    spread over the run, as a router to a slow server has them, they are no outliers."""
    usual = np.exp(0.05 * np.random.default_rng(0).standard_normal(200))
    begun = np.arange(200, dtype=np.int64) * 1_000
    slow = np.array([0, 1, 2, 3, 5, 10, 12])

    def found(places: Instants) -> Outliers | None:
        values = usual.copy()
        values[places] *= 3
        return outliers(300 * values, values, begun, begun + 300, are_alike=True)

    at_start = found(slow)
    assert at_start is not None and set(at_start.places) == set(slow)
    assert at_start.shift == pytest.approx(1 - 200 / 214, abs=0.005)
    assert found(slow * 15) is None


def test_slow_requests_begun_before_any_end_are_outliers_together() -> None:
    """Five of the eight that met the server at its start took ten times as long."""
    values = np.exp(0.05 * np.random.default_rng(0).standard_normal(100))
    values[[0, 1, 3, 5, 7]] *= 10
    begun = np.maximum(0, np.arange(100, dtype=np.int64) - 8) * 1_000
    until = begun + np.rint(300 * values).astype(np.int64)
    found = outliers(300 * values, values, begun, until)
    assert found is not None and set(found.places) == {0, 1, 3, 5, 7}


def test_slow_requests_of_one_time_are_outliers_together() -> None:
    """Four of 40 waited for 10 s at one time, or one after the other, as others for 300 ms. At
    different times, with others between them, they are no such thing."""
    rng = np.random.default_rng(0)
    usual = 300.0 * np.exp(0.1 * rng.standard_normal(40))
    begun = np.arange(40, dtype=np.int64) * 1_000
    apart = usual.copy()
    apart[5::10] = 10_300.0
    assert outliers(apart, apart / 300, begun, begun + 300) is None

    values = usual.copy()
    values[20:24] = 10_300.0
    in_turn = outliers(values, values / 300, begun, begun + 300)
    assert in_turn is not None
    assert sorted(in_turn.places.tolist()) == [20, 21, 22, 23]

    # a quick one between them, sent in the same instant and answered after them
    values[22] = usual[22]
    values[24] = 10_300.0
    begun[20:25] = 20_000
    begun[25:] += 10_000
    until = begun + values.astype(np.int64)
    until[22] = 40_000
    found = outliers(values, values / 300, begun, until)
    assert found is not None
    assert sorted(found.places.tolist()) == [20, 21, 23, 24]
    assert found.shift == pytest.approx(0.77, abs=0.01)
