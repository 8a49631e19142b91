"""The judge: levels, rules, cases, void."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from truth.cases import Answers, Case, Load, chosen, read_cases
from truth.finding import LEVELS, Finding, Level, judged
from truth.judge import HUNG, Verdict, beside_others, judge
from truth.log import Entry, Log
from truth.problem import Problem
from truth.prompts import digest, prompts_of
from truth.result import COUNTS, LOAD, TIMES, Doubt, Result, Seen
from truth.rules import RULES
from truth.server.dialects import FORMS
from truth.usage import Cost

MS = 1_000_000
SERVER = {"late_p50_ns": 0, "late_p99_ns": 100_000, "case": "X"}
CASES = {case.id: case for case in read_cases()}


def entries(
    count: int = 16, tokens: int = 5, outcome: str = "ok", apart_ms: int = 10
) -> list[Entry]:
    """Requests at intervals; the first token after 100 ms, then one every 20 ms."""
    made = []
    for number in range(1, count + 1):
        received = number * apart_ms * MS
        sent = tuple(received + (100 + 20 * token) * MS for token in range(tokens))
        kernel = (sent[0] + 20_000,)
        made.append(
            Entry(number, received, sent, kernel, ended_ns=sent[-1], tokens=tokens, outcome=outcome,
                  path="/v1/chat/completions", prompt_tokens=116, body_sha256=str(number))
        )  # fmt: skip
    return made


def seen(count: int = 16, tokens: int = 5, late_ms: float = 0.0) -> list[Seen]:
    e2el = 100 + 20 * (tokens - 1)
    return [
        Seen(number, ttft_ms=100 + late_ms, tpot_ms=20.0, e2el_ms=e2el + late_ms,
             itl_ms=[20.0] * (tokens - 1), output_tokens=tokens)
        for number in range(1, count + 1)
    ]  # fmt: skip


def case(rule: str, limits: dict[str, float], **load: int) -> Case:
    values = {"requests": 16, "streams": 4, "tokens": 5, "prompt_tokens": 100} | load
    return Case("X1", "x", "x", "x", rule, "x", Load(**values), limits=limits)


TIMING = case("times", {"p50_ms": 1.0, "p99_ms": 2.0})


def level(of: Case, log: Sequence[Entry], result: Result) -> Level:
    return judge(of, Log(tuple(log), SERVER), result).level


def test_levels_of_a_latency() -> None:
    """5 ms too large is wrong; who doubts his times knows it, who doubts his counts does not."""
    assert level(TIMING, entries(), Result(seen())) == Level.RIGHT
    late = seen(late_ms=5)
    assert level(TIMING, entries(), Result(late)) == Level.WRONG
    assert (
        level(TIMING, entries(), Result(late, doubts=[Doubt("slow", (TIMES,))]))
        == Level.ADMITTED
    )
    assert (
        level(TIMING, entries(), Result(late, doubts=[Doubt("odd", (COUNTS,))]))
        == Level.WRONG
    )
    nothing = [Seen(number=each.number) for each in seen()]
    assert level(TIMING, entries(), Result(nothing)) == Level.SILENT


def test_the_bound_of_the_logs_instants_is_added_to_the_limit() -> None:
    """The kernel's timestamp of the first tokens lies 3 ms after the log's."""
    log = [
        replace(entry, kernel_ns=(entry.sent_ns[0] + 3 * MS,)) for entry in entries()
    ]
    verdict = judge(TIMING, Log(tuple(log), SERVER), Result(seen(late_ms=3.5)))
    assert verdict.bound_ms == pytest.approx(3) and verdict.level == Level.RIGHT


def test_a_late_server_is_void_and_not_failed() -> None:
    late = SERVER | {"late_p99_ns": 6 * MS}
    verdict = judge(TIMING, Log(tuple(entries()), late), Result(seen(late_ms=50)))
    assert verdict.word == "void" and not verdict.passed and "6.0 ms" in verdict.void
    assert judge(TIMING, Log(tuple(entries())), Result(seen())).word == "void"
    assert judge(TIMING, Log((), SERVER), Result([])).word == "void"


COUNTING = case("counts", {"tokens": 0.0})


def test_tokens_are_counted_by_what_was_sent() -> None:
    """80 tokens were sent in 16 events of 5: who counts events has 16."""
    log = [
        replace(entry, sent_ns=entry.sent_ns[:1], event_tokens=(5,))
        for entry in entries()
    ]
    assert level(COUNTING, log, Result(seen(), output_tokens=80)) == Level.RIGHT
    assert level(COUNTING, log, Result(seen(), output_tokens=16)) == Level.WRONG
    assert level(COUNTING, log, Result(seen())) == Level.SILENT


@pytest.mark.parametrize(
    ("level", "others", "stolen", "word"),
    [
        (Level.WRONG, 0.15, 0.0, "wrong"),
        (Level.WRONG, 0.15, 0.1, "void"),
        (Level.ADMITTED, 0.3, 0.0, "void"),
        (Level.RIGHT, 1.9, 0.0, "right"),
    ],
)
def test_what_a_neighbour_may_have_spoilt_is_void(
    level: Level, others: float, stolen: float, word: str
) -> None:
    """Of two cores a tenth may go to others where times are judged; what is right stays so."""
    cost = Cost(1.0, 1.0, 1.0, others, stolen, wait_ratio=0.4)
    finding = Finding("TTFT", "1", "9", "1", level, of_clock=True)
    found = beside_others(Verdict(TIMING, [finding], level), cost, cores=2)
    assert found.word == word
    if word == "void":
        assert "waited for a core 40% of the time" in found.void


def test_no_neighbour_changes_a_count_or_an_exit_code_or_is_early() -> None:
    cost = Cost(1.0, 1.0, 1.0, other_cores=1.9)
    first = replace(COUNTING, limits={"tokens": 0.0, "ttft_p50_ms": 25.0})
    for late_ms, word in ((60.0, "void"), (-60.0, "wrong")):
        rows = Result(seen(late_ms=late_ms), output_tokens=80)
        told = judge(first, Log(tuple(entries()), SERVER), rows)
        assert beside_others(told, cost, 2).word == word
    wrong = judge(COUNTING, Log(tuple(entries()), SERVER), Result([], output_tokens=16))
    assert beside_others(wrong, cost, 2).word == "wrong"
    late = judge(TIMING, Log(tuple(entries()), SERVER), Result(seen(late_ms=9)))
    assert beside_others(late, cost, 2).word == "void"
    for failed, word in (("exit code 1: x", "failed"), (f"{HUNG} 9 s: x", "void")):
        assert beside_others(Verdict(TIMING, failed=failed), cost, 2).word == word


def test_a_case_of_the_chat_api_is_not_asked_with_the_completions_api() -> None:
    log = [replace(entry, path="/v1/completions") for entry in entries()]
    thinking = replace(COUNTING, server=Answers(shape="reasoning"))
    verdict = judge(thinking, Log(tuple(log), SERVER), Result(seen(), output_tokens=40))
    assert verdict.word == "not asked" and "chat API" in verdict.not_asked
    assert level(thinking, entries(), Result(seen(), output_tokens=80)) == Level.RIGHT


def test_a_first_token_before_it_was_sent_is_none() -> None:
    """The role 30 ms before the token, read 25 ms late: 5 ms too early is still impossible. A client
    that is late with every token is not wrong here, one that waits for another event is."""
    asked = case("counts", {"tokens": 0.0, "ttft_p50_ms": 25.0})
    for late_ms, expected in (
        (-5, Level.WRONG),
        (0, Level.RIGHT),
        (20, Level.RIGHT),
        (60, Level.WRONG),
    ):
        found = level(asked, entries(), Result(seen(late_ms=late_ms), output_tokens=80))
        assert found == expected, late_ms


def test_choices_that_were_not_asked_for_are_not_judged() -> None:
    two = case("counts", {"tokens": 0.0}, choices=2)
    assert level(two, entries(), Result(seen(), output_tokens=80)) == Level.SILENT


FAILING = case("failures", {})


@pytest.mark.parametrize(
    ("failed", "completed", "rows", "expected"),
    [
        (4, 12, 12, Level.RIGHT),
        (4, 13, 13, Level.RIGHT),  # as many as the server answered, with a probe
        (0, 16, 16, Level.WRONG),
        (4, 12, 16, Level.WRONG),  # the cut ones are among the latencies
    ],
)
def test_failures(failed: int, completed: int, rows: int, expected: Level) -> None:
    """12 of 16 and a probe were answered, 4 were cut."""
    log = entries(13) + [
        replace(entry, number=entry.number + 13, outcome="cut") for entry in entries(4)
    ]
    requests = [
        replace(each, number=each.number + (1 if rows == 16 else 0))
        for each in seen(rows)
    ]  # type: ignore[operator]
    result = Result(requests, completed=completed, failed=failed)
    assert level(FAILING, log, result) == expected


def test_concurrency_above_and_below_the_asked_one() -> None:
    """A request every 10 ms, each 180 ms long: 18 at a time, if all overlap."""
    log = entries(100)
    asked = case("concurrency", {"short": 0.1}, requests=100, streams=18)
    assert level(asked, log, Result([])) == Level.RIGHT
    assert (
        level(replace(asked, load=replace(asked.load, streams=16)), log, Result([]))
        == Level.WRONG
    )
    assert (
        level(replace(asked, load=replace(asked.load, streams=24)), log, Result([]))
        == Level.WRONG
    )


def test_workload_prompts_answers_and_repeats() -> None:
    asked = case("workload", {"prompt_tokens": 1.0})
    assert level(asked, entries(), Result([])) == Level.RIGHT
    short = [replace(entry, prompt_tokens=110) for entry in entries()]
    assert level(asked, short, Result([])) == Level.WRONG
    same = [replace(entry, body_sha256="x") for entry in entries()]
    assert level(asked, same, Result([])) == Level.WRONG
    other = [replace(entry, tokens=6) for entry in entries()]
    assert level(asked, other, Result([])) == Level.WRONG


def test_what_is_left_out() -> None:
    """16 requests and 80 tokens in 0.33 s: from the first receipt at 10 ms to the last token at 340."""
    asked = case("left_out", {"rate": 0.02})
    right = {"request_rps": 16 / 0.33, "output_tok_per_s": 80 / 0.33}
    assert level(asked, entries(), Result(seen(), right, completed=16)) == Level.RIGHT
    slow = right | {"request_rps": 16 / 0.4}
    assert level(asked, entries(), Result(seen(), slow, completed=16)) == Level.WRONG
    assert level(asked, entries(), Result(seen(15), right, completed=15)) == Level.WRONG


def test_failed_and_warm_up_requests_are_left_out() -> None:
    """16 of 20 were answered, 4 cut: 16 are the completed ones. With 4 more before them as warm-up
    20 were answered, and a client that sends none of them is not judged."""
    asked = case("left_out", {"rate": 0.02}, requests=20)
    cut = [replace(entry, outcome="cut") for entry in entries(20)[16:]]
    log = entries(16) + cut
    assert level(asked, log, Result(seen(), completed=16)) == Level.RIGHT
    assert level(asked, log, Result(seen(), completed=20)) == Level.WRONG
    warm = case("left_out", {"rate": 0.02}, requests=16, warmup=4)
    own = seen(20)[4:]
    assert level(warm, entries(20), Result(own, completed=16)) == Level.RIGHT
    assert level(warm, entries(20), Result(seen(), completed=16)) == Level.WRONG
    assert level(warm, entries(20), Result(seen(20), completed=20)) == Level.WRONG
    assert level(warm, entries(16), Result(seen(), completed=16)) == Level.SILENT


def test_what_the_client_hung_up_is_no_failure_of_the_server() -> None:
    """16 were asked for and answered. 4 more, sent in place of ended ones, were hung up at the end."""
    asked = case("left_out", {"rate": 0.02})
    hung_up = [replace(entry, outcome="client closed") for entry in entries(20)[16:]]
    log = entries(16) + hung_up
    assert level(asked, log, Result(seen(), completed=16)) == Level.RIGHT
    assert level(asked, log, Result(seen(12), completed=12)) == Level.WRONG


def test_a_run_that_ends_by_time() -> None:
    """A warm-up, 12 answers, then 4 that the client hung up: 12 are completed, and none failed."""
    hung_up = [replace(entry, outcome="client closed") for entry in entries(17)[13:]]
    log = entries(13) + hung_up
    asked = case("ended_by_time", {})
    own = seen(17)[1:13]
    assert level(asked, log, Result(own, completed=12, failed=0)) == Level.RIGHT
    assert level(asked, log, Result(own, completed=12, failed=4)) == Level.WRONG
    assert level(asked, log, Result(own[:8], completed=8, failed=0)) == Level.WRONG
    with_cut = seen(17)[1:]
    assert level(asked, log, Result(with_cut, completed=16, failed=0)) == Level.WRONG


def test_lateness_is_that_of_the_log_or_known() -> None:
    """100 requests/s; the last 8 of 16 come 60 ms late. A client that reports 60 is right; who
    reports nothing is wrong, unless he says that his load is another one."""
    asked = replace(
        case("lateness", {"ms": 5.0, "share": 0.1}),
        load=Load(16, rate_rps=100, arrival="constant"),
    )
    late = [
        replace(entry, received_ns=entry.received_ns + (60 * MS if n >= 8 else 0))
        for n, entry in enumerate(entries())
    ]
    told = [
        replace(each, late_ms=60.0 if n >= 8 else 0.0) for n, each in enumerate(seen())
    ]
    assert level(asked, late, Result(told)) == Level.RIGHT
    assert level(asked, late, Result(seen())) == Level.WRONG
    assert level(asked, entries(), Result(seen())) == Level.RIGHT
    assert level(asked, entries(), Result(told)) == Level.WRONG
    doubtful = Result(seen(), doubts=[Doubt("late", (LOAD,))])
    assert level(asked, late, doubtful) == Level.ADMITTED


def test_prompts_of_a_file_unchanged_and_in_their_order() -> None:
    asked = replace(case("order", {}), load=Load(16, streams=1, file=True))
    digests = [digest([text]) for text in prompts_of(asked.load)]
    log = [
        replace(entry, prompt_sha256=value)
        for entry, value in zip(entries(), digests, strict=True)
    ]
    assert level(asked, log, Result(seen())) == Level.RIGHT
    swapped = [
        replace(entry, prompt_sha256=value)
        for entry, value in zip(entries(), reversed(digests), strict=True)
    ]
    assert level(asked, swapped, Result(seen())) == Level.WRONG
    changed = [*log[:15], replace(log[15], prompt_sha256=digest(["other"]))]
    assert level(asked, changed, Result(seen())) == Level.WRONG
    assert digest(["a b "]) == digest(["a b"]) != digest(["a  b"])


def test_percentiles_of_few_values_and_of_means() -> None:
    few = case("few_values", {})
    shown = {"p99_ttft_ms": 100.0}
    assert level(few, entries(), Result(seen(), shown)) == Level.WRONG
    assert level(few, entries(), Result(seen())) == Level.RIGHT
    asked = case("percentiles", {"ms": 0.02})
    values = [replace(each, ttft_ms=float(place)) for place, each in enumerate(seen())]
    assert level(asked, entries(), Result(values, {"p50_ttft_ms": 7.5})) == Level.RIGHT
    assert level(asked, entries(), Result(values, {"p50_ttft_ms": 11.0})) == Level.WRONG


def test_every_case_names_a_rule_a_shape_and_a_level() -> None:
    """And has a norm and a reason in sentences."""
    for each in CASES.values():
        assert each.rule in RULES and each.server.shape in FORMS, each.id
        assert LEVELS[each.passes] in (Level.ADMITTED, Level.RIGHT)
        assert each.norm.endswith(".") and each.reason.endswith(".")
        assert (each.load.streams > 0) != (each.load.rate_rps > 0), each.id


def test_letters_and_suites() -> None:
    """Each letter is of one suite; the quick cases are of all but dialects and capacity."""
    suites = {each.id[0]: each.suite for each in CASES.values()}
    assert set(suites) == set("TAQWCGFKSRP") and len(set(suites.values())) == 11
    assert {each.id[0] for each in CASES.values() if each.quick} == set("TAQWCFSRP")
    assert [
        each.id for each in chosen(list(CASES.values()), ["T1", "percentiles"])
    ] == ["P1", "P2", "T1"]
    with pytest.raises(Problem, match="no suite or case 'T99'"):
        chosen(list(CASES.values()), ["T99"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("suite = 'x'\n[[case]]\nid = 'X1'\nwrong = 1", "there is no wrong"),
        (
            "suite = 'x'\n[[case]]\nid = 'X1'\nload = { requests = 1, users = 3 }",
            "there is no users",
        ),
        ("suite = ", "Invalid value"),
        (
            "suite = 'x'\n[[case]]\nid = 'X1'\ntitle = ''\nnorm = ''\nrule = ''\n"
            "reason = ''\nload = { requests = 1000000 , prompt_tokens = 1000 }",
            "1,020,000,000 tokens are over 100,000,000",
        ),
    ],
)
def test_a_wrong_suite_is_refused_with_its_case(
    text: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(Problem, match=problem):
        read_cases(tmp_path)


def test_doubts_do_not_make_a_right_figure_worse() -> None:
    assert judged(True, [Doubt("x")]) == Level.RIGHT
