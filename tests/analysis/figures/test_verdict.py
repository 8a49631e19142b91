"""The verdict: each word for its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from llama_load.analysis.checks.same import observed
from llama_load.analysis.checks.small_print import small_print
from llama_load.analysis.checks.verdict import Verdict, judge, stage_checks
from llama_load.analysis.figures.check import Check, limited
from llama_load.analysis.figures.check_limits import CHANGED, LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.prompt_cache import CacheEvidence
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.reports.check_lines import check_lines
from llama_load.run_folder.observed.losses import LostWorker
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.run_folder.observed.server_description import NO_ANSWER
from llama_load.run_folder.observed.speculation import Speculation
from llama_load.run_folder.observed.worker_health import WorkerHealth, within
from llama_load.run_folder.vocabulary.verdict_words import STATEMENTS
from tests.make_records import MS, failed, record, table

WELL = WorkerHealth("local", 1.0, 2.0, 0.2)
UNSHOWN = (
    "this server does not show another model, shortened prompts, other clients, paced streams, "
    "other programs on its machine, wrong counts of tokens"
)


def verdict(
    *records: RequestRecord,
    planned: int | None = None,
    health: WorkerHealth | Sequence[WorkerHealth] = WELL,
    **more: Any,
) -> Verdict:
    rows = table(*records)
    workers = [health] if isinstance(health, WorkerHealth) else health
    evidence = {
        "planned": len(records) if planned is None else planned,
        "health": workers,
    } | more
    return judge(Evidence(records=rows, figures=summarize(rows), **evidence))


def bad(found: Verdict) -> list[str]:
    return [check.name for check in found.checks if not check.ok]


def test_a_clean_run_is_valid() -> None:
    found = verdict(*(record(i) for i in range(5)))
    assert (found.word, bad(found)) == ("VALID", [])


@pytest.mark.parametrize(
    ("word", "check", "found"),
    [
        ("INCOMPLETE", "missing_records", lambda: verdict(record(), planned=2)),
        (
            "INCOMPLETE",
            "missing_records",
            lambda: verdict(record(), record(1, status="cancelled")),
        ),
        ("CLIENT-BOUND", "own_delay_p99_ms", lambda: verdict(record(own_delay_ms=9.0))),
        (
            "CLIENT-BOUND",
            "loop_lag_p99_ms",
            lambda: verdict(record(), health=WorkerHealth("w", 7.0, 9.0, 0.1)),
        ),
        (
            "CLIENT-BOUND",
            "core_busy",
            lambda: verdict(record(), health=WorkerHealth("w", 1.0, 1.0, 0.95)),
        ),
        (
            "CLIENT-BOUND",
            "core_wait_ratio",
            lambda: verdict(
                record(), health=WorkerHealth("w", 1.0, 1.0, 0.1, core_wait_ratio=0.3)
            ),
        ),
        (
            "CLIENT-BOUND",
            "stolen_ratio",
            lambda: verdict(record(), health=WorkerHealth("w", 1.0, 1.0, 0.1, 0.2)),
        ),
        ("CLIENT-BOUND", "master_lag_s", lambda: verdict(record(), master_lag_s=6.0)),
        ("FAILED", "failure_ratio", lambda: verdict(record(), failed(1))),
        (
            "NOT COMPARABLE",
            "cached_prompt_ratio",
            lambda: verdict(record(cached_tokens=9)),
        ),
        (
            "NOT COMPARABLE",
            "cut_by_context_ratio",
            lambda: verdict(record(max_tokens=64)),
        ),
        (
            "NOT COMPARABLE",
            "buffered_ratio",
            lambda: verdict(record(gaps_ms=(0,) * 15, merged_events=15)),
        ),
        ("BLURRED", "merged_ratio", lambda: verdict(record(merged_events=1))),
    ],
)
def test_each_fault_has_its_word(word: str, check: str, found: Any) -> None:
    assert found().word == word
    assert check in bad(found())
    assert LIMITS[check].word == word


def test_each_limit_names_its_statement_and_what_to_do() -> None:
    """A remedy is one short sentence without a full stop; a check gives access to both."""
    for name, row in LIMITS.items():
        assert row.statement in STATEMENTS
        assert row.remedy and not row.remedy.endswith(".") and len(row.remedy) <= 100, (
            name
        )
        check = limited(name, 0.0, "")
        assert (check.statement, check.remedy) == (row.statement, row.remedy)


def test_all_words_that_apply_are_reported_the_gravest_first() -> None:
    """12 of 20 timed out on one slot, one is missing, and the client was busy: the head line names
    the cause of the gravest."""
    slow = [failed(number, kind="first_token_timeout") for number in range(12)]
    good = [record(12 + number) for number in range(8)]
    busy = WorkerHealth("w", 7.0, 9.0, 0.1)
    found = verdict(*slow, *good, users=20, slots=1, health=busy)
    assert found.words == ["FAILED", "CLIENT-BOUND"]
    assert found.headline == (
        "FAILED: 12 of 20 requests failed (60%): 12 × no first token in time: 20 users on 1 slot; try -np 20 or a longer "
        "--first-token-timeout; also CLIENT-BOUND"
    )
    assert [check.ok for check in found.checks[:3]] == [False, False, True]
    assert verdict(failed(), failed(1), planned=3).words == ["INCOMPLETE", "FAILED"]
    assert verdict(record()).words == ["VALID"]


def test_a_valid_run_names_what_is_not_known() -> None:
    """One request shows no change of the server, and other clients are not known: the head line
    says so."""
    found = verdict(record())
    assert found.word == "VALID"
    assert found.headline == (
        "VALID as far as seen: 1 request: too few to see whether the server was the same all the time; "
        f"{UNSHOWN}"
    )


@pytest.mark.parametrize(
    ("detects", "word", "small"),
    [
        # A third of the time 1.2 x as slow would have been named: nothing to add.
        (1.2, "VALID", []),
        (1.5, "VALID", ["with 64 requests a slowdown below 1.5 x would not show"]),
        # What is hidden moves a mean by a third.
        (
            2.3,
            "VALID as far as seen",
            ["with 64 requests a slowdown below 2.3 x would not show"],
        ),
    ],
)
def test_a_valid_run_states_the_smallest_change_that_it_would_show(
    detects: float, word: str, small: list[str]
) -> None:
    change = limited(CHANGED, 1.0, "64 requests show little", detects=detects)
    assert small_print([change], 64) == (word, small)


def test_what_no_run_of_a_server_shows_is_said_once_and_takes_no_word() -> None:
    """Beside a run that could not judge by itself, which does."""
    checks = [
        limited("other_client_ratio", None, "no counters"),
        limited("cached_prompt_ratio", None, "no cached tokens"),
        limited("counter_gap_ratio", None, "no counters"),
    ]
    unshown = "this server does not show other clients, cached prompts, wrong counts of tokens"
    assert small_print(checks, 64) == ("VALID", [unshown])
    lines = [*check_lines(checks, 200)]
    assert [line for line in lines if line.lstrip().startswith("? this")] == [
        f"? {unshown}"
    ]
    assert not any("no counters" in line for line in lines)
    lag = limited("loop_lag_p99_ms", None, "the client was not watched")
    assert small_print([*checks, lag], 64)[0] == "VALID as far as seen"


def test_an_interrupted_run_without_a_planned_number_is_incomplete() -> None:
    rows = table(record())
    evidence = Evidence(records=rows, figures=summarize(rows), health=[WELL])
    assert judge(replace(evidence, interrupted=True)).word == "INCOMPLETE"
    assert judge(evidence).word == "VALID"


def test_cached_prompts_that_were_declared_are_no_fault() -> None:
    assert (
        verdict(record(cached_tokens=9), cache=CacheEvidence(intended=True)).word
        == "VALID"
    )


def test_a_run_that_measured_nothing_is_incomplete_and_fails_its_gate() -> None:
    rows = table(record(status="cancelled", ttft_ms=None, itl_ms=[]))
    figures = summarize(rows)
    assert (
        judge(Evidence(records=rows, figures=figures, health=[WELL])).word
        == "INCOMPLETE"
    )
    assert (
        figures.failure_ratio,
        figures.max_output_tokens_per_s,
        figures.total_input_tokens,
    ) == (None, None, None)


def test_a_finish_by_length_is_a_full_context_only_where_that_is_known() -> None:
    """Without max_tokens llama-server goes on to the context's end; counted events are fewer than
    tokens."""
    assert (
        verdict(record(max_tokens=None), length_means_full=True).word
        == "NOT COMPARABLE"
    )
    assert verdict(record(max_tokens=None)).word == "VALID"
    assert "cut_by_context_ratio" not in bad(
        verdict(record(max_tokens=64, token_source="events"))
    )


def test_a_run_in_which_everything_failed_has_a_verdict() -> None:
    assert verdict(failed(), failed(1)).word == "FAILED"


def test_user_space_stamps_are_reported_without_changing_the_word() -> None:
    found = verdict(record(clock_source="user"))
    assert found.word == "VALID"
    assert any("user space" in check.text for check in found.checks)


def test_the_clients_delays_are_held_against_what_was_measured() -> None:
    """8 ms of lag is negligible for answers of 7 s, as is an own delay of 8 ms for a TTFT of 2 s,
    but not for 140 ms."""
    health = WorkerHealth("w", 8.0, 9.0, 0.1)
    slow = [
        record(i, first_ms=2000, gaps_ms=(2500, 2500), own_delay_ms=8.0)
        for i in range(5)
    ]
    assert verdict(*slow, health=health).word == "VALID"
    fast = [record(i, own_delay_ms=8.0) for i in range(5)]
    assert bad(verdict(*fast, health=health)) == ["own_delay_p99_ms", "loop_lag_p99_ms"]
    limits = {check.name: check.limit for check in verdict(*slow, health=health).checks}
    assert (limits["own_delay_p99_ms"], limits["loop_lag_p99_ms"]) == (20.0, 70.0)


@pytest.mark.parametrize(("gap_ms", "word"), [(1000, "VALID"), (100, "CLIENT-BOUND")])
def test_lateness_is_held_against_the_gap_between_arrivals(
    gap_ms: int, word: str
) -> None:
    """8 ms late is within 1 % of a gap of 1 s, and not of one of 100 ms."""
    sent = [
        record(
            i,
            start_ms=i * gap_ms,
            scheduled_mono_ns=i * gap_ms * MS,
            late_ms=8.0,
            client_queue_ms=8.0,
        )
        for i in range(5)
    ]
    assert verdict(*sent, gap_ms=float(gap_ms)).word == word


def test_a_client_that_stood_still_turns_the_verdict() -> None:
    """2 s once, which no p99 shows."""
    assert bad(verdict(record(), health=WorkerHealth("w", 1.0, 2000.0, 0.1))) == [
        "client_pause_ms"
    ]
    # 500 ms of a second are half of the load; of a minute, less than 1 %.
    assert bad(verdict(record(), health=WorkerHealth("w", 1.0, 500.0, 0.1))) == [
        "client_pause_ms"
    ]
    assert (
        bad(
            verdict(
                record(),
                record(1, start_ms=60_000),
                health=WorkerHealth("w", 1.0, 500.0, 0.1),
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("got", "fixed", "word"),
    [(10, True, "NOT COMPARABLE"), (10, False, "VALID"), (200, True, "VALID")],
)
def test_answers_shorter_than_asked_where_all_were_to_have_the_same_length(
    got: int, fixed: bool, word: str
) -> None:
    """10 of 200 tokens: a clean end of a fast server, unless --ignore-eos or --output-len asked for
    all of them."""
    short = [
        record(
            i, max_tokens=200, output_tokens=got, token_events=got, finish_reason="stop"
        )
        for i in range(5)
    ]
    found = verdict(*short, fixed_lengths=fixed)
    assert found.word == word
    if word != "VALID":
        assert found.headline.startswith(
            "NOT COMPARABLE: 5 of 5 answers ended before the requested length: answers have 5% of the req"
        )


def test_counted_events_do_not_show_how_long_an_answer_is() -> None:
    assert (
        verdict(
            record(max_tokens=200, token_source="events", finish_reason="stop"),
            fixed_lengths=True,
        ).word
        == "VALID"
    )


def test_several_tokens_an_event_blur_the_gaps() -> None:
    """16 tokens an event; one token without a text at the end (llama-server counts its end token)
    is none of these."""
    found = verdict(record(output_tokens=48, max_tokens=48))
    assert (found.word, bad(found)) == ("BLURRED", ["tokens_per_event"])
    assert verdict(record(output_tokens=4, max_tokens=4)).word == "VALID"


def test_a_server_that_slows_down_is_named() -> None:
    """TTFT from 100 to 400 ms over the run; the first eight began before any answer and do not
    count."""
    begun = [record(i, start_ms=0, first_ms=50) for i in range(8)]
    even = [
        record(i, start_ms=1000 + 200 * i, first_ms=100 + i % 7) for i in range(100)
    ]
    rising = [
        record(i, start_ms=1000 + 200 * i, first_ms=100 + 3 * i) for i in range(100)
    ]
    assert verdict(*begun, *even).word == "VALID"
    found = verdict(*begun, *rising)
    assert (found.word, bad(found)) == ("NOT COMPARABLE", ["changed_ratio"])
    assert "TTFT rose from 104 to 387 ms, evenly over the time" in found.headline
    assert verdict(*begun, *rising, is_steady=False).word == "VALID"


def test_requests_that_were_cut_show_their_speed_up_to_there() -> None:
    """First token at 1 s, the 11th at 3 s, then cut: 200 ms per token, although the record has no
    TPOT."""
    cut = record(
        1,
        first_ms=1000,
        status="cancelled",
        tpot_ms=None,
        last_token_mono_ns=3000 * MS,
        token_events=11,
    )
    rows = table(record(0), cut)
    seen = observed(Evidence(records=rows, figures=summarize(rows)))
    assert seen.tpot_ms.tolist() == [20.0, 200.0]
    assert seen.tokens.tolist() == [3.0, 11.0]


def test_later_turns_of_a_conversation_are_slower_by_nature() -> None:
    turns = [
        record(i, start_ms=1000 + 200 * i, first_ms=100 + 3 * i, turn=1 + i // 20)
        for i in range(100)
    ]
    assert verdict(*turns).word == "VALID"


def test_a_queue_without_end_exceeds_the_capacity_of_a_fast_server() -> None:
    """An open loop of 100/s that the server takes at 80/s: it waits at the client."""
    sent = [
        record(
            i,
            start_ms=12.5 * i,
            scheduled_mono_ns=10 * i * MS,
            client_queue_ms=2.5 * i,
            late_ms=0.0,
        )
        for i in range(200)
    ]
    assert bad(verdict(*sent, gap_ms=10.0)) == ["backlog_ratio"]


def test_what_the_client_sends_too_late_is_no_backlog_of_the_server() -> None:
    """100/s were to be sent, and the client sends 80/s, each answered after 20 ms: the server would
    take more, whatever was never sent."""
    sent = [
        record(
            i,
            start_ms=12.5 * i,
            scheduled_mono_ns=10 * i * MS,
            client_queue_ms=2.5 * i,
            late_ms=2.5 * i,
        )
        for i in range(200)
    ]
    assert "backlog_ratio" not in bad(verdict(*sent, gap_ms=10.0))
    assert "late_p99_ms" in bad(verdict(*sent, gap_ms=10.0))
    assert "backlog_ratio" not in bad(verdict(*sent, gap_ms=10.0, unsent=50))


def test_what_a_client_in_time_never_sent_is_a_backlog_of_the_server() -> None:
    """It waits for a place among the requests in flight when the run ends."""
    sent = [
        record(
            i,
            start_ms=10 * i,
            gaps_ms=(1, 1),
            scheduled_mono_ns=10 * i * MS,
            client_queue_ms=0.0,
            late_ms=0.0,
        )
        for i in range(200)
    ]
    assert "backlog_ratio" not in bad(verdict(*sent, gap_ms=10.0))
    assert "backlog_ratio" in bad(verdict(*sent, gap_ms=10.0, unsent=100))


def cancelled(
    index: int, *, start_ms: float, end_ms: float, first_ms: float | None = None
) -> RequestRecord:
    """A request that was cut in flight."""
    nothing = dict.fromkeys(["ttft_ms", "tpot_ms", "e2el_ms", "last_token_mono_ns"])
    first_ns = None if first_ms is None else round((start_ms + first_ms) * MS)
    return record(
        index,
        start_ms=start_ms,
        itl_ms=[],
        status="cancelled",
        ended_mono_ns=round(end_ms * MS),
        first_token_mono_ns=first_ns,
        **nothing,
    )


def test_requests_cut_at_the_end_that_were_as_the_others_are_no_fault() -> None:
    """Eight users, 10 s a request, 15 s: eight answered, eight cut after 5 s. Each answer takes 10
    s, and that is what is shown."""
    answered = [record(i, first_ms=100, gaps_ms=(9900,)) for i in range(8)]
    cut = [
        cancelled(8 + i, start_ms=10_000, end_ms=15_000, first_ms=100) for i in range(8)
    ]
    found = verdict(*answered, *cut, planned=8, cut_ns=15_000 * MS)
    assert found.word == "VALID"
    assert (
        "8 of 16 requests were cut at the end of the time; counting them moves E2EL by 0.0%"
        in [check.text for check in found.checks]
    )


def test_answers_longer_than_the_run_turn_the_verdict() -> None:
    """Fifty answers of 1 s, and ten that were still under way after 15 s: E2EL shows the short ones
    alone."""
    answered = [
        record(i, start_ms=1000 * (i // 5), first_ms=100, gaps_ms=(900,))
        for i in range(50)
    ]
    cut = [
        cancelled(50 + i, start_ms=0, end_ms=15_000, first_ms=100) for i in range(10)
    ]
    found = verdict(*answered, *cut, planned=50, cut_ns=15_000 * MS)
    assert (found.word, bad(found), found.checks[0].spoils) == (
        "BLURRED",
        ["cut_shift"],
        ("E2EL",),
    )


def test_a_run_most_of_whose_requests_were_cut_is_not_comparable() -> None:
    answered = [
        record(i, start_ms=1000 * i, first_ms=100, gaps_ms=(900,)) for i in range(10)
    ]
    cut = [
        cancelled(10 + i, start_ms=0, end_ms=15_000, first_ms=100) for i in range(20)
    ]
    assert (
        verdict(*answered, *cut, planned=10, cut_ns=15_000 * MS).word
        == "NOT COMPARABLE"
    )


def test_few_failures_that_waited_long_move_the_latencies() -> None:
    """300 answers of 140 ms. Two requests failed, below the limit of 1 %: refused after 5 ms they
    say nothing; after 60 s, by a proxy's limit, the mean grows by 2 * 60 s / 302, to 4 times as
    much. A first token that came before is known."""
    answered = [record(index, start_ms=200 * index) for index in range(300)]

    def after(ms: float, status: str = "cut_off") -> dict[str, str | None]:
        gone = [failed(300 + index, start_ms=50, end_ms=50 + ms) for index in range(2)]
        found = verdict(*answered, *(replace(each, status=status) for each in gone))
        return {check.name: check.advice for check in found.checks if not check.ok}

    assert after(5) == {}
    assert after(60_000) == {"failed_shift": None}
    assert after(60_000, "http_504") == {"failed_shift": None}
    # No limit ended what the server answered with nothing.
    assert "hint" in str(after(60_000, "empty_answer")["failed_shift"])


def test_few_refused_requests_with_the_longest_prompts_move_the_latencies() -> None:
    """285 answers after 100 ms, and 15 with the longest prompts after 2 s: 195 ms in the mean.
    Three with longer ones were refused at once; with at least 2 s for them the mean grows by 9 %.
    Three with short prompts would have been like the others."""
    rows = [
        record(index, prompt_chars=1000 + index, prompt_tokens=250)
        for index in range(285)
    ]
    rows += [
        record(index, first_ms=2000, prompt_chars=9000, prompt_tokens=2250)
        for index in range(285, 300)
    ]

    def refused(chars: int) -> list[str]:
        gone = [
            replace(failed(300 + index, end_ms=5), prompt_chars=chars)
            for index in range(3)
        ]
        return bad(verdict(*rows, *gone, is_steady=False))

    assert refused(1200) == []
    assert refused(9500) == ["failed_shift"]


def test_a_part_whose_figures_lack_requests_is_noted() -> None:
    """500 answers of model a, and four of model b, beside which one of b was cut after 20 s: b's
    mean of 140 ms grows to 4 s or more, that of the run by 28 %; where a's answers take 140 s, the
    run's does not grow at all, and its verdict is VALID."""
    rows = [record(index, model="a", first_ms=140_000) for index in range(500)]
    rows += [record(500 + index, model="b") for index in range(4)]
    gone = replace(failed(504, end_ms=20_000, kind="cancelled"), model="b")
    found = verdict(*rows, gone, planned=504, cut_ns=20_000 * MS)
    assert found.word == "VALID"
    (note,) = (check for check in found.checks if check.name == "censored_parts")
    assert "model b (1 of 5" in note.text
    assert "censored_parts" not in {check.name for check in verdict(*rows).checks}


def test_fewer_requests_in_flight_than_users_are_noted() -> None:
    """Two users: one has a request of 141 ms, the other ten; 11 x 141 ms in 1410 ms are 1.1 on
    average."""
    rows = [record(index, start_ms=141 * max(0, index - 1)) for index in range(11)]
    (note,) = (
        check
        for check in verdict(*rows, users=2).checks
        if check.name == "mean_in_flight"
    )
    assert (
        "of 2 configured requests 1.1 were in flight on average, 2 at most" in note.text
    )
    assert "mean_in_flight" not in {
        check.name for check in verdict(*rows, *rows[1:], users=2).checks
    }
    # conversations wait between turns
    turns = [replace(row, turn=1 + index) for index, row in enumerate(rows)]
    assert "mean_in_flight" not in {
        check.name for check in verdict(*turns, users=2).checks
    }


def test_several_answers_to_a_request_are_noted() -> None:
    (note,) = (
        check
        for check in verdict(record(choices=2), record()).checks
        if check.name == "answers_per_request"
    )
    assert "up to 2 answers" in note.text


def test_first_tokens_that_the_end_cut_off_turn_the_verdict() -> None:
    answered = [
        record(i, start_ms=1000 * (i // 5), first_ms=100, gaps_ms=(900,))
        for i in range(50)
    ]
    waiting = [cancelled(50 + i, start_ms=14_500, end_ms=15_000) for i in range(5)]
    assert bad(verdict(*answered, *waiting, planned=50, cut_ns=15_000 * MS)) == [
        "cut_shift"
    ]
    begun = [
        cancelled(50 + i, start_ms=14_500, end_ms=15_000, first_ms=100)
        for i in range(5)
    ]
    assert bad(verdict(*answered, *begun, planned=50, cut_ns=15_000 * MS)) == []


def test_what_the_end_waited_for_is_held_against_the_rest_by_its_speed() -> None:
    """The last five end after the time, with nobody else on the server: twice as fast a token."""
    answered = [
        record(i, start_ms=1000 * (i // 5), first_ms=100, gaps_ms=(450, 450))
        for i in range(50)
    ]
    alike = [
        record(50 + i, start_ms=14_500, first_ms=100, gaps_ms=(450, 450))
        for i in range(5)
    ]
    faster = [
        record(50 + i, start_ms=14_500, first_ms=500, gaps_ms=(50, 50))
        for i in range(5)
    ]
    assert bad(verdict(*answered, *alike, cut_ns=15_000 * MS)) == []
    assert bad(verdict(*answered, *faster, cut_ns=15_000 * MS)) == ["cut_shift"]


@pytest.mark.parametrize(("hosts", "value"), [("ab", 0.0), ("aa", 1.0)])
def test_replicas_that_take_turns_in_being_idle_are_out_of_balance(
    hosts: str, value: float
) -> None:
    """Two at a time, one on each replica, or both on one of them and then both on the other: the
    sums are alike."""
    pairs = [hosts, hosts[::-1] if hosts == "ab" else "bb"] * 4
    sent = [
        record(start_ms=1000 * place, host=f"http://{host}")
        for place, pair in enumerate(pairs)
        for host in pair
    ]
    found = verdict(*sent, hosts=["http://a", "http://b"])
    (check,) = [check for check in found.checks if check.name == "in_flight_imbalance"]
    assert (check.value, check.ok) == (value, value == 0.0)


def test_more_in_flight_than_asked_for_is_another_load() -> None:
    assert bad(verdict(record(), record(1), users=1)) == ["excess_in_flight"]
    # The next request of the same user, 1 ms before the first one ended by clocks that are known
    # within 5 ms.
    synchronized = replace(WELL, clock_uncertainty_ms=5.0)
    assert (
        bad(verdict(record(), record(1, start_ms=140), users=1, health=synchronized))
        == []
    )


def test_the_highest_printed_percentile_limits_the_clients_errors() -> None:
    """1000 answers of 3 events: 5 merged of 3000 are below 1 %, and above 0.1 %. Own delays of 50
    ms in 5 of 1000 are above p99."""
    rows = [
        record(
            index, merged_events=int(index < 5), own_delay_ms=50.0 if index < 5 else 0.1
        )
        for index in range(1000)
    ]
    assert bad(verdict(*rows)) == []
    assert bad(verdict(*rows, percentiles=(50.0, 99.9))) == [
        "own_delay_p99_ms",
        "merged_ratio",
    ]


def test_a_server_that_was_another_at_the_end_is_named() -> None:
    assert (
        verdict(record(), server_changes=[f"{NO_ANSWER}: connection refused"]).word
        == "VALID"
    )
    found = verdict(record(), server_changes=["build b1 -> b2"])
    assert (
        found.headline
        == "NOT COMPARABLE: the server changed during the run: build b1 -> b2; run again against one server"
    )


def test_counts_that_cannot_be_are_named() -> None:
    found = verdict(
        record(),
        record(
            1,
            count_doubt="usage: 4000000000000096 output tokens where at most 64 were requested",
        ),
    )
    assert found.headline == (
        "NOT COMPARABLE: 1 answer with impossible token counts: usage: 4000000000000096 output tokens where at "
        "most 64 were requested; update the server"
    )


def test_client_bound_says_who_took_the_cpu() -> None:
    """Two workers of one machine, the server on the same machine, and somebody else."""
    own = [
        WorkerHealth(
            f"box_{number}",
            9.0,
            12.0,
            0.9,
            machine_busy=0.97,
            own_share=0.2,
            server_share=0.5,
        )
        for number in range(2)
    ]
    checks = {check.name: check for check in verdict(record(), health=own[0]).checks}
    assert checks["core_busy"].text.endswith(
        "its machine: 97% busy (client 20%, server 50%, others 27%)"
    )
    found = judge(
        Evidence(
            records=table(record()), figures=summarize(table(record())), health=own
        )
    )
    assert {check.name: check for check in found.checks}["core_busy"].text.endswith(
        "(client 40%, server 50%, others 7%)"
    )


def test_a_client_that_waits_for_a_core_is_named_with_the_remedy() -> None:
    """Of two workers the one that waited longer; more priority helps only a client that has
    none."""

    def found(*health: WorkerHealth) -> Check:
        return next(
            check
            for check in verdict(record(), health=health).checks
            if check.name == "core_wait_ratio"
        )

    starved = WorkerHealth(
        "w",
        1.0,
        1.0,
        0.1,
        core_wait_ratio=0.3,
        core_wait_longest_ms=166.0,
        priority="normal",
    )
    well = WorkerHealth(
        "v",
        1.0,
        1.0,
        0.1,
        core_wait_ratio=0.001,
        core_wait_longest_ms=0.2,
        priority="real-time",
    )
    check = found(well, starved)
    assert not check.ok
    assert (
        check.text
        == "the client waited for a core 30.0% of the time, for up to 166.0 ms (priority: normal)"
    )
    assert "ulimit -r 1" in (check.remedy or "")
    full = found(
        replace(starved, priority="real-time, normal while it used over half a core")
    )
    assert (full.remedy or "").startswith("leave it a core")
    assert found(well).ok
    assert (found(WELL).value, found(WELL).ok) == (None, True)


def test_a_starved_client_is_named_before_a_proxy() -> None:
    """Streams came in bursts and time is unexplained, while others used 91 % of the machine: their
    fault, and no proxy's."""
    starved = WorkerHealth("box_1", 60.0, 90.0, 0.3, machine_busy=0.99, own_share=0.08)
    lumpy = [record(number, gaps_ms=(0,) * 15, merged_events=15) for number in range(3)]
    found = verdict(*lumpy, health=starved, unexplained=(500.0, 1000.0))
    assert found.word == "CLIENT-BOUND"
    assert found.headline.startswith(
        "CLIENT-BOUND: client event loop lag: p99 60.00 ms, max 90.0 ms; its machine: 99% busy"
    )
    assert (
        "other programs took 91% of the client's machine: stop them" in found.headline
    )
    unknown = {
        check.name
        for check in found.checks
        if check.limit is not None and check.value is None
    }
    assert {"buffered_ratio", "unexplained_ratio"} <= unknown
    quiet = verdict(*lumpy, unexplained=(500.0, 1000.0))
    assert {"buffered_ratio", "unexplained_ratio"} <= set(bad(quiet))
    # A thread apart reads: however late the event loop is, it merges nothing.
    read_apart = verdict(*lumpy, health=replace(starved, receiver="compiled"))
    assert "buffered_ratio" in bad(read_apart)


def test_servers_on_the_clients_machine_are_named() -> None:
    taken = WorkerHealth(
        "box_1", 60.0, 90.0, 0.3, machine_busy=0.99, own_share=0.1, server_share=0.8
    )
    assert (
        "the servers under test took 80% of the client's machine"
        in verdict(record(), health=taken).headline
    )
    own = WorkerHealth("box_1", 60.0, 90.0, 0.9, machine_busy=0.99, own_share=0.9)
    assert "use more workers" in verdict(record(), health=own).headline


def speculative(merged: int, **changed: Any) -> RequestRecord:
    """90 tokens, accepted 9 at a time."""
    gaps = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 90.0) * 9 + (0.0,) * 8
    return record(
        gaps_ms=gaps,
        merged_events=merged,
        draft_tokens=100,
        draft_accepted=80,
        server_predict_ms=1.0,
        **changed,
    )


def test_bursts_of_speculative_decoding_are_no_proxy() -> None:
    """Acceptance length 9: 1 - 1/9 = 0.89 of the events are expected with another. All of them are
    not."""
    found = verdict(speculative(80))
    assert "buffered_ratio" not in bad(found)
    (check,) = [check for check in found.checks if check.name == "merged_ratio"]
    assert "speculative decoding makes that 88.9%" in check.text
    assert "buffered_ratio" in bad(verdict(speculative(89)))
    plain = {"draft_tokens": None, "draft_accepted": None}
    unreported = verdict(replace(speculative(80), **plain))
    assert (
        bad(unreported) == ["merged_ratio"]
        and "first tokens came alone" in unreported.headline
    )
    assert "buffered_ratio" in bad(
        verdict(replace(speculative(80), **plain, first_merged=True))
    )
    counted = ServerCounters(Speculation(100, 80, 10))
    assert "buffered_ratio" not in bad(
        verdict(replace(speculative(80), **plain), counters=counted)
    )


def test_accepted_tokens_within_one_event_merge_no_events() -> None:
    """As vLLM sends them: 90 tokens in 30 events, by the server's counters 60 accepted of 66 in 22
    drafts. (1 - 1 / acceptance length would be 0.73.)"""
    row = replace(
        speculative(0, token_events=30), draft_tokens=None, draft_accepted=None
    )
    found = verdict(row, counters=ServerCounters(Speculation(66, 60, 22)))
    (check,) = [check for check in found.checks if check.name == "merged_ratio"]
    assert "speculative" not in check.text


def late_firsts(count: int, late: int, **changed: Any) -> Verdict:
    """`late` of `count` answers whose first token came with the second: TTFT 120 ms instead of 100,
    TPOT 20 ms, 150 tokens."""
    gaps = {"gaps_ms": (20.0,) * 149}
    merged = {
        "first_ms": 120,
        "gaps_ms": (0.0,) + (20.0,) * 148,
        "merged_events": 1,
        "first_merged": True,
    } | changed
    return verdict(
        *(
            record(number, **(merged if number < late else gaps))
            for number in range(count)
        )
    )


def test_first_tokens_that_came_with_the_second_make_ttft_too_large() -> None:
    """Two of 100 move P99 from 100 ms to 120; one of 100 does not, and of 50 there is no P99, but
    half of them move the mean."""
    found = late_firsts(100, 2)
    assert bad(found) == ["first_merged_shift"]
    assert found.headline.startswith(
        "CLIENT-BOUND: 2 of 100 first tokens arrived together with a later one: their TTFT is an upper bound, "
        "P99 TTFT could be 100.00 ms instead of 120.00"
    )
    assert bad(late_firsts(100, 1)) == []
    assert bad(late_firsts(50, 1)) == []
    assert bad(late_firsts(50, 25)) == ["first_merged_shift"]


def test_accepted_draft_tokens_that_come_with_the_first_are_no_late_reads() -> None:
    drafting = {"draft_tokens": 100, "draft_accepted": 80, "server_predict_ms": 2980.0}
    assert bad(late_firsts(100, 50, **drafting)) == []


def test_first_tokens_are_late_by_the_usual_tpot_without_an_own_one() -> None:
    """Answers of two tokens in one read: 20 ms a token in the others."""
    short = {"gaps_ms": (0.0,), "first_ms": 120}
    (check,) = [
        check
        for check in late_firsts(1000, 20, **short).checks
        if check.name == "first_merged_shift"
    ]
    assert "P99 TTFT could be 100.00 ms instead of 120.00" in check.text


def test_a_stage_whose_tokens_arrived_together_is_named() -> None:
    """In the whole run they are less than 1 %."""
    rows = table(record(merged_events=1))
    found = stage_checks(
        Evidence(records=rows, figures=summarize(rows), stage="8", health=[WELL])
    )
    assert [(check.name, check.stage) for check in found] == [("merged_ratio", "8")]


def test_a_draft_model_that_never_drafts_is_noted() -> None:
    """llama-server loads one with -md alone, and needs --spec-type to use it."""
    checks = {
        check.name: check
        for check in verdict(record(), draft_models=["http://h"]).checks
    }
    assert (
        "never drafted a token; add --spec-type draft-simple"
        in checks["unused_draft_model"].text
    )
    drafting = verdict(
        record(),
        draft_models=["http://h"],
        counters=ServerCounters(Speculation(100, 80, 10)),
    )
    assert "unused_draft_model" not in {check.name for check in drafting.checks}


def test_a_suspended_machine_is_named() -> None:
    found = verdict(
        record(),
        health=WorkerHealth(
            "w", 1.0, 2.0, 0.1, suspended_ms=5000.0, longest_pause_ms=12.0
        ),
    )
    assert (
        "the client was paused for 5.0 s: the machine was suspended" in found.headline
    )


def test_requests_of_a_warm_up_that_a_lost_worker_may_have_sent_are_named() -> None:
    lost = LostWorker("w_1", [], 3, [0, 1])
    (check,) = [
        check
        for check in verdict(record(), lost=[lost]).checks
        if check.name == "lost_requests"
    ]
    assert (
        check.text
        == "worker w_1 was lost with 2 requests of a warm-up; 3 not sent yet went to other workers"
    )
    assert check.ok


def test_a_ramp_within_the_measurement_is_reported() -> None:
    """2 s of ramp in 100 s are little, in 10 s they are not."""
    long = [record(start_ms=0), record(1, start_ms=100_000)]
    short = [record(start_ms=0), record(1, start_ms=10_000)]
    assert verdict(*long, ramp_s=2.0).word == "VALID"
    assert bad(verdict(*short, ramp_s=2.0)) == ["ramp_ratio"]


def test_users_that_were_changed_during_the_run_are_several_loads() -> None:
    assert bad(verdict(record(), users_asked=[6, 12])) == ["users_changed"]
    assert bad(verdict(record(), users_asked=[6])) == []


def test_one_hiccup_among_few_requests_moves_no_figure() -> None:
    """One of 50 left 30 ms late: of so few values p99 is that one. Two of 50 are too many, and so
    is one of five."""
    slow = [record(0, own_delay_ms=30.0), *(record(i) for i in range(1, 50))]
    assert verdict(*slow).word == "VALID"
    assert bad(verdict(*slow, record(50, own_delay_ms=30.0))) == ["own_delay_p99_ms"]
    assert bad(verdict(*slow[:5])) == ["own_delay_p99_ms"]


def test_lags_of_the_event_loop_belong_to_the_stage_in_which_they_came() -> None:
    """Ten samples of 20 ms in a stage of 10 s, of whose 500 samples 2 % are late by 40 ms; another
    stage has none of them."""
    late = [(1_000_000_000 + number * 20 * MS, 40.0) for number in range(10)]
    health = WorkerHealth("w", 1.0, 40.0, late_wakeups=late)
    first, second = (
        within(health, 0, 10_000 * MS),
        within(health, 10_000 * MS, 20_000 * MS),
    )
    assert (first.loop_lag_p99_ms, first.loop_lag_max_ms) == (40.0, 40.0)
    assert (second.loop_lag_p99_ms, second.loop_lag_max_ms) == (0.0, 0.0)
    # five of 500 lie above p99
    assert (
        within(replace(health, late_wakeups=late[:5]), 0, 10_000 * MS).loop_lag_p99_ms
        == 0.0
    )
    # one of ten
    assert (
        within(
            replace(health, late_wakeups=late[:1]), 900 * MS, 1100 * MS
        ).loop_lag_p99_ms
        == 0.0
    )
    rows = table(record())
    found = stage_checks(
        Evidence(records=rows, figures=summarize(rows), stage="8", health=[first])
    )
    assert [(check.name, check.stage) for check in found] == [("loop_lag_p99_ms", "8")]
    assert (
        stage_checks(
            Evidence(records=rows, figures=summarize(rows), stage="16", health=[second])
        )
        == []
    )


def test_answers_that_arrived_whole_have_no_ttft_and_no_pace() -> None:
    """Of 20 answers of four events two came at one instant, or all but one event of each did."""
    for merged, spoils in ((3, ("ITL", "TTFT", "TPOT")), (2, ("ITL",))):
        whole = [record(n, merged_events=merged, gaps_ms=(1.0,) * 3) for n in range(2)]
        others = [record(n, gaps_ms=(1.0,) * 3) for n in range(2, 20)]
        found = verdict(*whole, *others)
        (check,) = [each for each in found.checks if each.name == "merged_ratio"]
        assert check.spoils == spoils
        assert ("arrived whole" in check.text) is (merged == 3)
