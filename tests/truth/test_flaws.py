"""Flaws of a client that each rule must see, and honest clients that it must not take for them:
each was called the other once, and is here with the smallest log that shows it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.truth.test_judge import MS, SERVER
from truth.cases import Case, read_cases
from truth.finding import Level
from truth.judge import Verdict, judge
from truth.log import Entry, Log
from truth.repeats import merged
from truth.result import Result, Seen
from truth.runner import Client, Observed, Runner
from truth.tools import tool_named

CASES = {case.id: case for case in read_cases()}
FIRST_MS, GAP_MS, TOKENS = 100, 20, 5


def entry(
    number: int, at_ms: float, sent: int = TOKENS, outcome: str = "ok", **further: int
) -> Entry:
    """Five tokens, the first after 100 ms, the others 20 ms apart."""
    received = round(at_ms * MS)
    instants = tuple(received + (FIRST_MS + GAP_MS * n) * MS for n in range(sent))
    made = Entry(
        number,
        received,
        instants,
        instants[:1],
        ended_ns=instants[-1] if instants else received,
        outcome=outcome,
        path="/v1/chat/completions",
        request_id=f"r{number}",
        body_sha256=str(number),
        prompt_tokens=116,
        tokens=TOKENS,
    )
    return replace(made, **further)  # type: ignore[arg-type]


def seen(number: int, **further: float | None) -> Seen:
    """What is true of it."""
    true = Seen(
        number,
        ttft_ms=100.0,
        tpot_ms=20.0,
        e2el_ms=180.0,
        itl_ms=[20.0] * 4,
        output_tokens=TOKENS,
    )
    return replace(true, **further)  # type: ignore[arg-type]


def verdict(
    case: Case, log: Sequence[Entry], rows: Sequence[Seen], **counts: object
) -> Verdict:
    return judge(case, Log(tuple(log), SERVER), Result(rows, **counts))  # type: ignore[arg-type]


def wrong(
    number: str, log: Sequence[Entry], rows: Sequence[Seen], **counts: object
) -> list[str]:
    """The figures of a case that are called wrong."""
    found = verdict(CASES[number], log, rows, **counts).findings
    return [each.figure for each in found if each.level.word == "wrong"]


def asked(number: str, requests: int) -> Case:
    """The case with fewer requests."""
    case = CASES[number]
    return replace(case, load=replace(case.load, requests=requests))


ALL = range(1, 41)
LOG = [entry(number, number) for number in ALL]
ROWS = [seen(number) for number in ALL]


def test_what_was_not_sent_and_what_is_reported_twice_or_never_existed() -> None:
    assert not wrong("S1", LOG, ROWS, completed=40)
    assert wrong("S1", LOG[:8], ROWS[:8], completed=40) == [
        "requests sent",
        "rows of completed requests",
    ]
    assert wrong("Q1", LOG[:8], ROWS[:8])[-1] == "requests sent"
    log = [entry(number, number) for number in range(1, 81)]
    half = [seen(number) for number in range(1, 81, 2)]
    assert wrong("P1", log, half) == ["requests in no count"]
    twice = [*ROWS[:30], *ROWS[:10]]
    assert wrong("S1", LOG, twice, completed=40) == ["requests reported twice"]
    invented = [*ROWS[:39], seen(999)]
    assert wrong("S1", LOG, invented, completed=40) == ["requests that the log has not"]


def test_percentiles_of_the_summary_are_those_of_the_rows_in_every_case() -> None:
    in_seconds = {"p50_e2el_ms": 0.18}
    assert wrong("S1", LOG, ROWS, completed=40, reported=in_seconds) == ["p50_e2el_ms"]
    assert not wrong("S1", LOG, ROWS, completed=40, reported={"p50_e2el_ms": 180.0})


def test_a_warm_up_in_the_figures_is_seen_also_if_their_number_is_right() -> None:
    log = [entry(number, 10 * number) for number in range(1, 49)]
    rows = [seen(number) for number in range(1, 49)]
    assert wrong("S5", log, rows[:40], completed=40) == ["warm-up among the requests"]
    assert not wrong("S5", log, rows[8:], completed=40)


def test_more_in_flight_than_is_reported() -> None:
    """16 at a time, of which every second is reported."""
    log = [entry(n, (n - 1) // 16 * 181 + n % 16 / 100) for n in range(1, 81)]
    rows = [seen(number) for number in range(1, 81, 2)]
    assert wrong("Q1", log, rows) == [
        "most in flight",
        "mean in flight",
        "requests in no count",
    ]


def test_a_request_that_comes_as_the_last_token_goes_out_is_not_beside_it() -> None:
    """The server writes down the end of an answer only afterwards."""
    log = [entry(1, 0, ended_ns=200 * MS), entry(2, 180.01)]
    case = replace(CASES["Q1"], load=replace(CASES["Q1"].load, requests=2, streams=1))
    assert verdict(case, log, [seen(1), seen(2)]).passed


def test_requests_that_the_client_hangs_up_in_a_pause_are_not_dropped() -> None:
    """A timeout for reading: dropped, or sent again."""
    cut = entry(2, 0, sent=3, outcome="client closed")
    case = asked("F7", 2)
    dropped = verdict(case, [entry(1, 0), cut], [seen(1)], completed=1, failed=0)
    assert dropped.word == "wrong"
    again = [entry(1, 0), cut, entry(3, 641)]
    rows = [seen(1), seen(3)]
    assert verdict(case, again, rows, completed=2, failed=0).word == "wrong"
    # At the end of a run, beyond what was asked for, it may hang up.
    rest = entry(3, 0.5, sent=3, outcome="client closed", ended_ns=190 * MS)
    log = [entry(1, 0), rest, entry(2, 1)]
    assert verdict(case, log, [seen(1), seen(2)], completed=2, failed=0).passed


def test_a_run_that_a_failure_ends_is_not_the_run_that_was_asked_for() -> None:
    log = [entry(1, 0), entry(2, 1, sent=3, outcome="cut")]
    assert wrong("F9", log, [seen(1)], completed=1, failed=1) == ["requests sent"]


def test_refused_requests_are_no_rows_with_a_name_or_without() -> None:
    refused = entry(2, 0, sent=0, outcome="refused")
    log = [entry(1, 0), refused]
    rows = [seen(1), Seen(2, e2el_ms=1.0)]
    found = verdict(asked("F5", 2), log, rows, completed=2, failed=1)
    assert "failed ones in the latencies" in [
        each.figure for each in found.findings if each.level.word == "wrong"
    ]
    unnamed = [Seen(e2el_ms=180.0), Seen(e2el_ms=1.0)]
    assert verdict(asked("F5", 2), log, unnamed, completed=1, failed=1).word == "wrong"


def test_a_probe_that_meets_a_fault_is_no_failure_of_the_load() -> None:
    log = [
        entry(1, 0),
        entry(2, 1, sent=3, outcome="reset"),
        entry(3, 300),
        entry(4, 301, sent=3, outcome="error_event"),
    ]
    found = verdict(asked("F9", 2), log, [seen(3)], completed=1, failed=1)
    assert found.word == "right"


def test_ttft_counts_from_the_request_where_headers_are_late() -> None:
    rows = [seen(number, ttft_ms=50.0) for number in range(1, 17)]
    log = LOG[:16]
    assert wrong("F8", log, rows, completed=16, failed=0) == ["error of TTFT, p99, ms"]


def test_a_run_that_ends_by_time_lasts_as_long() -> None:
    log = [entry(number, 200 * number) for number in range(1, 25)]
    rows = [seen(number) for number in range(1, 25)]
    assert not wrong("S3", log, rows, completed=24, failed=0)
    short = wrong("S3", log[:9], rows[:9], completed=9, failed=0)
    assert short == ["length of the run, s"]
    # A probe, and rows without names.
    unnamed = [replace(row, number=None) for row in rows[1:]]
    assert not wrong("S3", log, unnamed, completed=23, failed=0)


LOG_22, ROWS_22 = LOG[:22], ROWS[:22]


def test_forms_of_answers_are_judged_each() -> None:
    """One of the eleven comes late, or has no name."""
    tokens = 22 * TOKENS
    assert not wrong("C16", LOG_22, ROWS_22, output_tokens=tokens)
    late = [seen(n, ttft_ms=160.0 if n % 11 == 3 else 100.0) for n in range(1, 23)]
    assert len(wrong("C16", LOG_22, late, output_tokens=tokens)) == 1
    unnamed = [
        replace(row, number=None) if row.ttft_ms == 160.0 else row for row in late
    ]
    assert len(wrong("C16", LOG_22, unnamed, output_tokens=tokens)) == 1
    assert wrong("C16", LOG_22, ROWS_22[:1], failed=21, output_tokens=TOKENS) == [
        "completed"
    ]


def test_without_names_an_early_first_token_is_seen() -> None:
    rows = [Seen(ttft_ms=70.0) for _ in range(12)]
    found = wrong("C10", LOG[:12], rows, output_tokens=12 * TOKENS)
    assert found == ["error of TTFT, least / p50, ms"]


def test_tokens_are_not_events_in_rates_and_tpot() -> None:
    """Three tokens in each of five events: the time of a token is a third of a gap's."""
    log = [replace(each, event_tokens=(3,) * 5) for each in LOG[:12]]
    rows = [seen(number, tpot_ms=80 / 14) for number in range(1, 13)]
    rates = {"request_rps": 2.0, "output_tok_per_s": 30.0}
    assert not wrong("C6", log, rows, output_tokens=180, reported=rates)
    by_events = {"request_rps": 2.0, "output_tok_per_s": 10.0}
    found = wrong("C6", log, ROWS[:12], output_tokens=180, reported=by_events)
    assert found == ["TPOT, p50, ms", "tokens/s a request/s"]


def test_times_of_a_few_requests_are_not_those_of_the_run() -> None:
    few = [*ROWS[:15], *(seen(number, e2el_ms=None) for number in range(16, 41))]
    assert wrong("T8", LOG, few) == ["error of E2EL, p50 / p99, ms"]
    nan = [seen(number, ttft_ms=float("nan")) for number in range(1, 31)]
    assert wrong("T8", LOG, [*nan, *ROWS[30:]]) == ["error of TTFT, p50 / p99, ms"]


def test_a_log_that_may_be_wrong_itself_proves_nothing() -> None:
    log = [replace(each, kernel_ns=(each.sent_ns[0] + 60 * MS,)) for each in LOG]
    assert verdict(CASES["T8"], log, ROWS).word == "void"


Lateness = Callable[[random.Random, int], float]


@pytest.mark.parametrize(
    "late",
    [
        lambda rng, n: 300.0 if n == 50 else rng.uniform(0, 1),
        lambda rng, n: rng.expovariate(1 / 60),
        lambda rng, n: max(0.0, 300 - 40 * n % 1000),
    ],
    ids=["one", "each by itself", "pauses"],
)
def test_lateness_of_each_request(late: Lateness) -> None:
    """25 requests/s, an even schedule. Who tells the lateness of each is right, however late they
    are; who tells that of other requests, or of some, is not."""
    rng = random.Random(1)
    behind = [late(rng, number) for number in range(100)]
    log = [entry(n + 1, 40 * n + ms) for n, ms in enumerate(behind)]
    rows = [seen(n + 1, late_ms=ms) for n, ms in enumerate(behind)]
    assert not wrong("A5", log, rows)
    order = sorted(range(100), key=lambda n: -behind[n])
    some = [replace(row, late_ms=0.0) for row in rows]
    for place in order[:2]:
        some[place] = rows[place]
    if sum(ms > 20 for ms in behind) > 2:
        assert wrong("A5", log, some)
        shuffled = rng.sample(behind, 100)
        others = [
            replace(row, late_ms=ms) for row, ms in zip(rows, shuffled, strict=True)
        ]
        assert wrong("A5", log, others)


Gaps = Callable[[random.Random, int], float]


@pytest.mark.parametrize(
    ("gap_s", "figure"),
    [
        (lambda rng, _: rng.choice((0.0001, 0.0999)), "gap distance"),
        (lambda rng, n: rng.expovariate(20 * (0.5 + n / 300)), "mean instant"),
    ],
    ids=["two gaps", "a rate that rises"],
)
def test_arrivals_that_are_no_poisson_process(gap_s: Gaps, figure: str) -> None:
    """Found in most of them; 4 standard errors are not all there is."""
    found = sum(figure in wrong_arrivals(seed, gap_s) for seed in range(20))
    assert found >= 14


def test_honest_arrivals_are_hardly_ever_called_wrong() -> None:
    """Six figures at 4 standard errors: of 4,000 runs 3 were."""
    honest = [
        wrong_arrivals(seed, lambda rng, _: rng.expovariate(20)) for seed in range(30)
    ]
    assert honest.count([]) >= 29


def wrong_arrivals(seed: int, gap_s: Gaps) -> list[str]:
    rng = random.Random(seed)
    at_ms = 0.0
    log = []
    for number in range(300):
        at_ms += 1e3 * gap_s(rng, number)
        log.append(entry(number + 1, at_ms))
    return wrong("A1", log, [seen(number + 1) for number in range(300)])


def test_a_result_that_cannot_be_judged_fails_its_case_alone(tmp_path: Path) -> None:
    """A summary with `null` for a rate, in a run that was made before."""
    case = CASES["S1"]
    nothing: Any = {"request_rps": None}
    result = Result(ROWS, reported=nothing, completed=40)
    runner = Runner(Client(tool_named("csv")), tmp_path)
    run = (case.load, case.server, case.machine)
    runner._runs[run] = Observed(log=Log(tuple(LOG), SERVER), result=result)
    found = runner.verdict(case)
    assert (found.word, found.passed) == ("failed", False)
    assert found.failed.startswith("its result cannot be judged (TypeError")


def test_of_several_runs_one_without_figures_does_not_hide_a_wrong_one() -> None:
    wrong_one = Verdict(CASES["S1"], level=Level.WRONG)
    assert merged([Verdict(CASES["S1"]), wrong_one]).word == "wrong"
