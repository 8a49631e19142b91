"""Whether a server was the same all the time: planted changes are named with their time, and
constant servers are not accused.

The rates of `benchmarks/steadiness.py`, with fewer seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.steadiness import Loop, mark_of_changed
from llama_load.analysis.checks.same import _cold_start
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.statistics.backlog import backlog
from llama_load.analysis.statistics.changes import Change, is_confirmed
from llama_load.analysis.statistics.constancy import TPOT, TTFT, Constancy, constancy
from llama_load.analysis.statistics.constant_load import Observed
from llama_load.analysis.statistics.detection import least_change, least_detected
from llama_load.analysis.topics.steady.steady_part import steady_part
from tests.queue_runs import (
    LAWS,
    SLOTS,
    QueueRun,
    Slowdown,
    closed_loop,
    observed,
    open_loop,
    shared_loop,
)

S = 1_000_000_000
END = 1e7
SEEDS = 8


def alarms(run: QueueRun, cut_s: float | None = None) -> list[str]:
    """What the verdict would call changed."""
    found = constancy(observed(run, cut_s))
    names = [
        each.name
        for each in found.changes
        if each.change.size > LIMITS["changed_ratio"].limit
    ]
    grown = (
        None if run.scheduled_ns is None else backlog(run.scheduled_ns, run.ended_ns)
    )
    if grown is not None and grown.deficit > max(
        grown.limit, LIMITS["backlog_ratio"].limit
    ):
        names.append("backlog")
    return names + ["cold start"] * (
        found.cold_start is not None and found.cold_start.is_cold
    )


def rate(
    make: Callable[[np.random.Generator], QueueRun],
    cut_s: float | None = None,
    seeds: int = SEEDS,
) -> float:
    return (
        sum(
            bool(alarms(make(np.random.default_rng(seed)), cut_s))
            for seed in range(seeds)
        )
        / seeds
    )


def test_constant_servers_are_seldom_accused() -> None:
    """At most 2 % of open loops at 50 to 80 % load and closed loops of 1 to 4 x slots; 184 runs
    here, thousands in the benchmark."""
    runs = [
        lambda rng, n=n, load=load: open_loop(rng, n, load)
        for n in (100, 300)
        for load in (0.5, 0.7, 0.8)
    ]
    runs += [
        lambda rng, n=n, u=u, law=law: closed_loop(rng, n, u, law)
        for n in (100, 300)
        for u in (4, 16)
        for law in LAWS
    ]
    runs += [
        lambda rng, law=law: closed_loop(rng, 300, 8, law, varies="speed")
        for law in LAWS
    ]
    runs += [lambda rng, load=load: shared_loop(rng, 300, load) for load in (0.5, 0.8)]
    rates = [rate(make) for make in runs]
    assert np.mean(rates) <= 0.02
    assert max(rates) <= 2 / SEEDS


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("changes", "until_s", "begin_s"),
    [
        ([Slowdown(20, END, 10)], 40, 20),  # TPOT 20 -> 200 ms
        ([Slowdown(40, END, 4)], 60, 40),
        ([Slowdown(30, END, 10)], 60, 30),
        ([Slowdown(20, 40, 2)], 60, 20),  # a slow middle third
        ([Slowdown(60, END, 0.5)], 90, 60),  # faster
    ],
)
def test_a_change_is_seen_and_dated(
    law: str, changes: list[Slowdown], until_s: float, begin_s: float
) -> None:
    """Closed loops of four users, cut by their time: in all of the seeds but one, and the time of
    the change is right to 5 s."""
    factor = changes[0].factor
    seen = 0
    for seed in range(10):
        run = closed_loop(
            np.random.default_rng(seed), 2000, 4, law, changes=changes, until_s=until_s
        )
        found = constancy(observed(run, until_s)).changes
        if not found:
            continue
        change = next(
            (each.change for each in found if each.name == TPOT), found[0].change
        )
        seen += (change.factor > 1) == (factor > 1) and abs(
            change.begin_ns / S - begin_s
        ) < 5
    assert seen >= 9


def test_a_slow_start_is_seen() -> None:
    """The first third of the requests takes six times as long; so does the first third of the
    time."""
    for begin, end in ((0, 66), (0, 30)):
        run = closed_loop(
            np.random.default_rng(0), 100, 4, changes=[Slowdown(begin, end, 6)]
        )
        change = constancy(observed(run)).changes[0].change
        assert (
            abs(change.end_ns / S - end) < 0.15 * end
            if change.at_begin
            else abs(change.begin_ns / S - end) < 0.15 * end
        )


def test_one_cold_first_request_is_seen_and_one_long_prompt_is_not() -> None:
    run = closed_loop(np.random.default_rng(0), 100, 4, slow_first=60)
    seen = observed(run)
    cold = constancy(seen).cold_start
    assert cold is not None and cold.is_cold
    assert (5000 < cold.first_ms < 7000, cold.requests) == (True, 4)
    prompt_tokens = np.full(100, 100.0)
    prompt_tokens[0] = 6000
    long = constancy(replace(seen, prompt_tokens=prompt_tokens)).cold_start
    assert long is not None and not long.is_cold


def test_a_first_request_that_the_others_overtake_was_left_waiting() -> None:
    """A server that fills its batches with others' prompts, to the end of the run; a server that
    begins 6 s late serves nobody meanwhile."""
    run = closed_loop(np.random.default_rng(0), 100, 4, slow_first=60)
    left = constancy(observed(run)).cold_start
    assert left is not None and left.is_cold and not left.was_left_waiting
    run = closed_loop(np.random.default_rng(0), 100, 4, slow_first=600)
    left = constancy(observed(run)).cold_start
    assert left is not None and left.was_left_waiting and left.overtook > 90
    check = _cold_start(left)
    assert f"{left.overtook} of 96 later requests got theirs before it" in check.text
    assert "-b and -ub" in check.sentence


def test_a_cold_start_at_its_detection_limit_is_named() -> None:
    """In 38 of 40 runs at least; prefills take 100 ms."""
    named = 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        usual = constancy(observed(closed_loop(draw, 100, 4))).cold_start
        assert usual is not None and not usual.is_cold
        slow = usual.detects * usual.slowest_ms / 100
        run = closed_loop(np.random.default_rng(1000 + seed), 100, 4, slow_first=slow)
        cold = constancy(observed(run)).cold_start
        named += cold is not None and cold.is_cold
    assert named >= 38


def test_requests_that_took_no_time_are_no_cold_start() -> None:
    """Nothing was measured in them, and nothing fails."""
    seen = observed(closed_loop(np.random.default_rng(0), 100, 4))
    seen = replace(seen, ended_ns=np.full(100, int(seen.started_ns.min())))
    assert constancy(seen).cold_start is None


def test_a_change_is_seen_where_latencies_depend_on_the_load() -> None:
    """Continuous batching at 40 % load, twice as slow in the middle third of 188 s: at equal load
    the latencies differ."""

    def slow(rng: np.random.Generator) -> QueueRun:
        return shared_loop(rng, 300, 0.4, changes=[Slowdown(63, 125, 2)])

    assert rate(slow) >= 0.6


def test_a_data_set_that_is_sorted_by_length_is_no_change_of_the_server() -> None:
    """Prompts of 100 to 400 tokens, in this order, and TTFT in proportion; the same TTFT without
    such prompts is a change."""
    seen = observed(closed_loop(np.random.default_rng(0), 400, 4))
    longer = np.linspace(1, 4, 400)
    slower = replace(seen, ttft_ms=100 * longer)
    assert [each.name for each in constancy(slower).changes] == ["TTFT"]
    explained = constancy(replace(slower, prompt_tokens=100 * longer))
    assert (explained.changes, [each.name for each in explained.explained]) == (
        [],
        ["TTFT"],
    )


def test_prompts_that_grow_evenly_explain_ttft() -> None:
    """Prompts of 400 to 1600 tokens, TTFT 150 ms + 0.1 ms a token that scatters by 5 %, one user.
    The same prompts in another order explain no TTFT that grows."""
    rng = np.random.default_rng(0)
    run = observed(closed_loop(rng, 120, 1))
    prompts = np.linspace(400, 1600, 120)
    ttft_ms = (150 + 0.1 * prompts) * np.exp(0.05 * rng.standard_normal(120))
    seen = replace(run, ttft_ms=ttft_ms, prompt_tokens=prompts)

    sorted_ones = constancy(seen)
    assert (sorted_ones.changes, [each.name for each in sorted_ones.explained]) == (
        [],
        ["TTFT"],
    )
    assert sorted_ones.prompts is not None
    assert sorted_ones.prompts.factor > sorted_ones.explained[0].change.factor > 1.25

    shuffled = constancy(replace(seen, prompt_tokens=rng.permutation(prompts)))
    assert [each.name for each in shuffled.changes] == ["TTFT"]


def test_answers_that_grow_explain_e2el() -> None:
    """Answers of 30 to 120 tokens, in this order, 100 ms + 20 ms a token. Answers of the same
    lengths in another order explain no E2EL that grows."""
    rng = np.random.default_rng(0)
    run = observed(closed_loop(rng, 400, 4))
    tokens = np.linspace(30, 120, 400)
    e2el_ms = 100 + 20 * tokens
    even_ms = np.full(400, 20.0)
    seen = replace(
        run, ttft_ms=5 * even_ms, tpot_ms=even_ms, e2el_ms=e2el_ms, tokens=tokens
    )
    assert [each.name for each in constancy(seen).changes if each.name == "E2EL"] == []
    shuffled = constancy(replace(seen, tokens=rng.permutation(tokens)))
    assert "E2EL" in [each.name for each in shuffled.changes]


def test_one_slow_request_is_no_change_and_four_are() -> None:
    """A part of the time with one slow request among 80 others, or with four; and the wrong
    direction."""
    change = Change(0, 10 * S, inside=200.0, outside=20.0, at_begin=True, at_end=False)
    middle = np.concatenate((np.full(4, 5 * S), np.full(80, 50 * S)))
    values = np.concatenate((np.full(4, 200.0), np.linspace(19, 21, 80)))
    assert is_confirmed(change, values, middle)
    assert not is_confirmed(change, values[3:], middle[3:])
    assert not is_confirmed(replace(change, inside=2.0), values, middle)


def test_a_stall_is_seen_in_the_throughput() -> None:
    """10 s of nothing in the middle of a minute."""
    assert (
        rate(
            lambda rng: closed_loop(
                rng, 2000, 4, changes=[Slowdown(25, 35, 1e4)], until_s=60
            ),
            60,
        )
        >= 0.9
    )


def test_an_overloaded_open_loop_alone_has_a_growing_backlog() -> None:
    """1000 arrivals at 80 % of the capacity: never; at 150 %: always."""

    def grows(load: float) -> float:
        runs = [
            open_loop(np.random.default_rng(seed), 1000, load) for seed in range(20)
        ]
        return float(np.mean(["backlog" in alarms(run) for run in runs]))

    assert (grows(0.8), grows(1.5)) == (0.0, 1.0)


def test_a_backlog_counts_arrivals_and_completions() -> None:
    """100/s arrive, 80/s are completed, for 2 s: from 1 s on 80 of 100 arrivals are completed."""
    arrivals = (np.arange(200) * 0.01 * S).astype(np.int64)
    grown = backlog(arrivals, ((np.arange(200) + 1) * 0.0125 * S).astype(np.int64))
    assert grown is not None
    assert grown.growth == grown.arrivals - grown.completions
    assert grown.deficit == pytest.approx(0.2, abs=0.03)
    assert grown.deficit > grown.limit
    assert backlog(arrivals[:20], arrivals[:20]) is None


def test_a_run_that_is_shorter_than_its_answers_need_has_no_backlog() -> None:
    """60 arrivals in 0.6 s, answered 0.51 s later each: from half of the time on 30 arrive and 9 are
    completed, because the run began on an idle server. With answers that take longer and longer, it
    is a backlog."""
    arrivals = (np.arange(60) * 0.01 * S).astype(np.int64)
    took = np.random.default_rng(5).normal(0.51, 0.02, 60)
    assert backlog(arrivals, arrivals + (took * S).astype(np.int64)) is None
    longer = took + np.arange(60) * 0.02
    grown = backlog(arrivals, arrivals + (longer * S).astype(np.int64))
    assert grown is not None
    assert grown.deficit > grown.limit


def test_arrivals_that_were_never_sent_are_backlog() -> None:
    arrivals = (np.arange(200) * 0.01 * S).astype(np.int64)
    kept_up = backlog(arrivals, arrivals + S // 100)
    behind = backlog(arrivals, arrivals + S // 100, unsent=100)
    assert kept_up is not None
    assert behind is not None
    assert kept_up.deficit <= kept_up.limit
    assert behind.deficit > behind.limit


def failing(is_failed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Constancy:
    """A run of 400 requests in which these fail."""
    seen: Observed = observed(closed_loop(np.random.default_rng(0), 400, 4))
    return constancy(replace(seen, is_ok=~is_failed, is_failed=is_failed))


def test_failures_that_come_together_are_named_and_scattered_ones_are_not() -> None:
    together = np.zeros(400, dtype=np.bool_)
    together[200:206] = True
    ended_s = closed_loop(np.random.default_rng(0), 400, 4).ended_ns[200:206] / S
    burst = failing(together).failures
    assert burst is not None
    assert (
        burst.begin_ns / S
        < np.median(ended_s)
        < burst.end_ns / S
        < burst.begin_ns / S + 15
    )
    assert (burst.inside > 0.2, burst.outside) == (True, 0.0)
    scattered = np.zeros(400, dtype=np.bool_)
    scattered[np.arange(10, 400, 70)] = True
    assert failing(scattered).failures is None


def test_a_step_of_ttft_shows_in_few_requests() -> None:
    """Four users, 40 requests of a second: the first twelve wait for 70 ms, the others for one
    second longer. Where one of them does not, there is no step."""
    ttft_ms = np.where(np.arange(40) < 12, 70.0, 1070.0)
    found = constancy(few(ttft_ms))
    (named,) = found.changes
    assert named.name == TTFT and named.change.factor == pytest.approx(1070 / 70)
    assert not constancy(few(np.full(40, 70.0))).changes
    ttft_ms[30] = 70.0
    assert not constancy(few(ttft_ms)).changes


def test_answers_that_grow_explain_a_step_of_ttft_in_few_requests() -> None:
    """First tokens wait for the answers of others: from 300 to 750 ms where answers have 25 tokens
    and then 61, which scatter; not from 300 to 1500 ms."""
    is_late = np.arange(40) >= 20
    lengths = np.where(is_late, 61.0, 25.0)
    explained = replace(few(np.where(is_late, 750.0, 300.0)), tokens=lengths)
    assert not constancy(explained).changes
    slower = replace(few(np.where(is_late, 1500.0, 300.0)), tokens=lengths)
    assert [named.name for named in constancy(slower).changes] == [TTFT]


def few(ttft_ms: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Observed:
    """These requests of four users, one after the other, each of a second and its wait."""
    started_ns = np.zeros(len(ttft_ms), dtype=np.int64)
    free_ns = [0, 0, 0, 0]
    lasted_ns = np.rint((ttft_ms + 1000) * 1e6).astype(np.int64)
    for place, lasted in enumerate(lasted_ns.tolist()):
        user = free_ns.index(min(free_ns))
        started_ns[place] = free_ns[user]
        free_ns[user] += lasted
    ended_ns = started_ns + lasted_ns
    ones = np.ones(len(ttft_ms))
    return Observed(
        started_ns=started_ns,
        first_ns=started_ns + np.rint(ttft_ms * 1e6).astype(np.int64),
        ended_ns=ended_ns,
        is_ok=ones > 0,
        is_failed=ones < 0,
        ttft_ms=ttft_ms,
        tpot_ms=ones,
        e2el_ms=ttft_ms + 1000,
        tokens=ones,
        prompt_tokens=ones,
        begin_ns=0,
        end_ns=int(started_ns.max()),
    )


def test_few_requests_leave_it_unknown() -> None:
    assert (
        constancy(observed(closed_loop(np.random.default_rng(0), 20, 4))).judged == []
    )


def test_nothing_is_quadratic_in_the_requests() -> None:
    """100,000 requests: a square of them would not fit into memory."""
    n = 100_000
    started = np.sort(np.random.default_rng(0).integers(0, 10_000 * S, n))
    run = QueueRun(started, started, started + S // 10, started + 2 * S, np.full(n, 46))
    assert alarms(run) == []
    assert steady_part(
        started, run.ended_ns, run.tpot_ms, scheduled_ns=started
    ).is_steady


def test_a_change_as_large_as_the_detection_limit_never_passes() -> None:
    """100 and 300 requests of four users: what the limit promises is planted into the middle third
    of another run. (60 runs of each of 28 loops: `benchmarks.steadiness detection`.)"""
    for requests in (100, 300):
        for seed in range(3):
            loop = Loop(requests, SLOTS, "exponential", "tokens")
            limit = least_detected(constancy(observed(loop.run(seed))).detects)
            assert limit is not None and 1.05 < limit < 1.4
            assert mark_of_changed(loop, 100 + seed, limit) != "✓"


def test_a_constant_server_says_what_would_have_been_seen() -> None:
    """300 requests show changes of 1.2 x; 40 show none."""
    even = constancy(observed(Loop(300, SLOTS, "exponential", "tokens").run(1)))
    assert set(even.detects) == set(even.judged)
    limit = least_detected(even.detects)
    assert limit is not None and limit < 1.2
    assert (
        least_detected(
            constancy(observed(Loop(40, SLOTS, "exponential", "tokens").run(1))).detects
        )
        is None
    )


def test_a_backlog_as_large_as_the_detection_limit_is_called_out() -> None:
    """1000 arrivals at a load that leaves behind as many as the limit of 19 % says: 1 / (1 - 0.19)
    of the capacity."""
    even = open_loop(np.random.default_rng(0), 1000, 0.8)
    assert even.scheduled_ns is not None
    quiet = backlog(even.scheduled_ns, even.ended_ns)
    assert quiet is not None and 0.18 < quiet.detects < 0.22
    found = 0
    for seed in range(SEEDS):
        run = open_loop(
            np.random.default_rng(100 + seed), 1000, 1 / (1 - quiet.detects)
        )
        assert run.scheduled_ns is not None
        grown = backlog(run.scheduled_ns, run.ended_ns)
        found += grown is not None and grown.deficit > grown.limit
    assert found >= SEEDS - 1


def test_a_detection_limit_beyond_any_change_is_none() -> None:
    """Slices that scatter by a factor of 100 show no change of any size; it was printed as
    542235077 x."""
    steady = np.exp(0.05 * np.random.default_rng(0).standard_normal(24))
    none = np.zeros(0)
    limit = least_change(steady, none, has_waits=False)
    assert limit is not None and limit < 2
    wild = np.exp(5 * np.random.default_rng(0).standard_normal(24))
    assert least_change(wild, none, has_waits=False) is None
