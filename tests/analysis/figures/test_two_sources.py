"""Counts that do not fit each other, lengths that were not configured, answers that nobody
generated: each flaw in records whose truth is known is named, and the clean run beside it is
not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_load.analysis.results.results import Results, analyze
from llama_load.run_folder import Run
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes
from tests.make_records import MS, manifest, record, table

REQUESTS, TOKENS, GAP_MS = 20, 80, 25.0


def answers(
    count: int = REQUESTS, *, tokens: int = TOKENS, **changed: Any
) -> list[RequestRecord]:
    """Answers of 80 tokens, one every 25 ms, 4 characters each; different prompts of 50 tokens and
    different answers."""
    fields = {
        "max_tokens": tokens,
        "output_chars": 4 * tokens,
        "output_bytes": 4 * tokens,
        "prompt_chars": 200,
        "prompt_tokens": 50,
        "prompt_token_source": "usage",
        "planned_prompt_tokens": 50,
    }
    return [
        replace(
            record(number, start_ms=2500.0 * number, gaps_ms=(GAP_MS,) * (tokens - 1)),
            **fields
            | {"prompt_sha256": f"p{number}", "output_sha256": f"o{number}"}
            | changed,
        )
        for number in range(count)
    ]


def of(records: list[RequestRecord], **about: Any) -> Results:
    return analyze(
        Run(
            Path("run"),
            manifest(num_prompts=len(records), **about),
            table(*records),
            recovered=False,
        )
    )


def bad(found: Results) -> dict[str, str]:
    return {check.name: check.text for check in found.verdict.checks if not check.ok}


def reporting(
    share: float, *, events: float = 1.0, **changed: Any
) -> list[RequestRecord]:
    """Answers whose usage is `share` of the tokens that the server generated, and whose events are
    `events` of them."""
    reported = round(TOKENS * share)
    seen = round(TOKENS * events)
    fields = {
        "output_tokens": reported,
        "token_events": seen,
        "max_tokens": 2 * TOKENS,
        "finish_reason": "stop",
    }
    fields["tpot_ms"] = GAP_MS * (TOKENS - 1) / (reported - 1)
    return answers(**fields | changed)


def test_a_clean_run_has_nothing_to_say() -> None:
    found = of(answers())
    assert bad(found) == {}
    assert {check.name: check.value for check in found.verdict.checks}[
        "count_gap_ratio"
    ] == 0.0


@pytest.mark.parametrize("share", [0.5, 0.9, 1.05, 1.09, 2.0])
def test_usage_that_does_not_fit_the_events_is_named(share: float) -> None:
    """20 x 80 tokens one by one, 25 ms apart: TPOT 25 ms, whatever usage says."""
    found = of(reporting(share))
    assert "the figures count the events" in bad(found)["count_gap_ratio"]
    assert found.total.total_output_tokens == REQUESTS * TOKENS
    assert found.total.distributions["tpot"].mean == pytest.approx(GAP_MS)


def test_events_that_were_lost_are_named() -> None:
    """8 % of the events are missing. The server's counters confirm its usage, so that the figures
    keep it."""
    lost = reporting(1.0, events=0.92)
    assert "count_gap_ratio" in bad(of(lost))
    found = of(lost, counters=ServerCounters(output_tokens=REQUESTS * TOKENS))
    assert "events were lost or merged on the way" in bad(found)["count_gap_ratio"]
    assert found.total.total_output_tokens == REQUESTS * TOKENS


@pytest.mark.parametrize(
    "explained",
    [
        reporting(1.0, events=79 / 80),  # the end of the answer has no text
        reporting(1.0, events=0.75, blank_events=20),  # blanks before the first token
        # characters of several tokens
        reporting(1.0, events=0.75, output_chars=240, output_bytes=320),
        # accepted drafts
        reporting(
            1.0, events=0.2, draft_tokens=80, draft_accepted=64, server_predict_ms=1.0
        ),
        reporting(
            1.0, events=0.25, event_tokens=(4,) * 20
        ),  # events report their tokens
        reporting(
            1.0, events=0.2
        ),  # five tokens an event, by their text: 20 characters
        reporting(1.0, events=0.2, max_tokens=2 * TOKENS, choices=2),  # several answers
        reporting(
            1.0, events=1.5, merged_events=40
        ),  # a gateway that cuts tokens into pieces
        reporting(1.0, events=0.85, reasoning_tokens=30),  # the markup of reasoning
    ],
)
def test_tokens_without_an_event_of_their_own_are_explained(
    explained: list[RequestRecord],
) -> None:
    found = of(explained)
    assert "count_gap_ratio" not in bad(found)
    assert found.total.total_output_tokens == REQUESTS * TOKENS


def without_usage(**changed: Any) -> list[RequestRecord]:
    """Answers whose tokens are counted as events, 20 of the 80 that were generated: four tokens an
    event."""
    return answers(
        **{
            "token_source": "events",
            "token_events": 20,
            "output_tokens": 20,
            "finish_reason": "length",
        }
        | changed
    )


# 1.5 characters of three bytes a token, in prompts of 50 tokens and answers of 80.
CHINESE = {"output_chars": 120, "output_bytes": 360, "prompt_chars": 75}


@pytest.mark.parametrize(
    "rows",
    [without_usage(), without_usage(finish_reason="stop"), without_usage(**CHINESE)],
)
def test_events_of_several_tokens_without_usage_are_named(
    rows: list[RequestRecord],
) -> None:
    """By max_tokens, or by their text: 16 characters an event, where the prompts have 4 a token."""
    assert "events hold several" in bad(of(rows))["uncounted_ratio"]


@pytest.mark.parametrize(
    "changed",
    [
        {"token_events": 79, "output_tokens": 79},  # the last token has no text
        # words of 6 characters
        {"finish_reason": "stop", "output_chars": 20 * 6, "output_bytes": 20 * 6},
        {"token_events": 40, "output_tokens": 40, "finish_reason": "tool_calls"},
        {"choices": 2},
    ],
)
def test_events_of_single_tokens_without_usage_count_as_tokens(
    changed: dict[str, Any],
) -> None:
    assert "uncounted_ratio" not in bad(of(without_usage(**changed)))


def prompts(planned: Sequence[int], got: Sequence[int]) -> list[RequestRecord]:
    rows = answers(len(planned))
    return [
        replace(row, prompt_tokens=tokens, planned_prompt_tokens=plan)
        for row, tokens, plan in zip(rows, got, planned, strict=True)
    ]


PLANNED = tuple(range(20, 220, 10))


@pytest.mark.parametrize("template", [0, 300])
def test_prompts_that_the_server_counts_twice_are_named(template: int) -> None:
    """An unknown template adds the same to all prompts; a factor does not."""
    rows = prompts(PLANNED, [2 * (tokens + template) for tokens in PLANNED])
    assert "a wrong count" in bad(of(rows, tokenizer="server"))["excess_prompt_ratio"]
    assert "excess_prompt_ratio" not in bad(
        of(
            prompts(PLANNED, [tokens + template for tokens in PLANNED]),
            tokenizer="server",
        )
    )


def test_prompts_of_one_length_need_a_known_template() -> None:
    """Twice 500: a template of 500 tokens, if it is not known."""
    rows = prompts((500,) * 20, (1000,) * 20)
    (check,) = (
        check
        for check in of(rows, tokenizer="server").verdict.checks
        if check.name == "excess_prompt_ratio"
    )
    assert (check.ok, check.value) == (True, None)
    known = of(
        rows, tokenizer="server", targets=[{"url": "http://h", "template_tokens": 10}]
    )
    assert "excess_prompt_ratio" in bad(known)


def test_counts_of_blocks_are_no_counts_of_tokens() -> None:
    """A gateway reports whole blocks of its cache. Prompts that are made of blocks are right."""
    blocks = [64 * -(-tokens // 64) for tokens in PLANNED]
    found = bad(of(prompts(PLANNED, blocks), tokenizer="server"))
    assert "a multiple of 64 tokens" in found["excess_prompt_ratio"]
    assert "excess_prompt_ratio" not in bad(
        of(prompts(blocks, blocks), tokenizer="server")
    )


def test_a_text_that_makes_prompts_new_is_no_wrong_count() -> None:
    """30 tokens of --bust-prefix-cache and 10 of the template are not in the counts before the
    run."""
    rows = prompts(PLANNED, [tokens + 40 for tokens in PLANNED])
    about = {
        "tokenizer": "server",
        "targets": [{"url": "http://h", "template_tokens": 10}],
    }
    assert "excess_prompt_ratio" not in bad(
        of(rows, options={"bust_prefix_cache": True}, **about)
    )
    tools = {
        "extra_body": '{"tools": [{"type": "function", "function": {"name": "f"}}]}'
    }
    assert "excess_prompt_ratio" not in bad(of(rows, options=tools, **about)), (
        "a template renders tools"
    )
    assert "excess_prompt_ratio" in bad(
        of(rows, options={"extra_body": '{"top_k": 4}'}, **about)
    )
    assert "excess_prompt_ratio" in bad(of(rows, **about))


def test_an_estimate_shows_a_factor_of_three() -> None:
    few, many = (
        prompts(PLANNED, [factor * tokens for tokens in PLANNED]) for factor in (2, 5)
    )
    assert "excess_prompt_ratio" not in bad(of(few, tokenizer="estimate"))
    assert "excess_prompt_ratio" in bad(of(many, tokenizer="estimate"))


def test_one_server_of_two_that_miscounts_is_named_alone() -> None:
    wrong = [replace(each, host="http://b") for each in reporting(2.0)[:10]]
    found = of([*reporting(1.0)[10:], *wrong])
    assert "http://b" in bad(found)["count_gap_ratio"]
    assert found.total.total_output_tokens == REQUESTS * TOKENS


def test_answers_longer_than_requested_are_named() -> None:
    """80 tokens for 40, with fixed lengths as well; with n = 2 that is what was requested."""
    for fixed in (False, True):
        assert (
            "the server ignores max_tokens"
            in bad(of(answers(max_tokens=40), fixed_lengths=fixed))["long_answer_ratio"]
        )
    assert "long_answer_ratio" not in bad(
        of(answers(max_tokens=40, choices=2), fixed_lengths=True)
    )
    assert "short_answer_ratio" in bad(
        of(answers(max_tokens=80, choices=2), fixed_lengths=True)
    )


@pytest.mark.parametrize(
    ("changed", "estimated"),
    [
        ({"prompt_tokens": 6, "planned_prompt_tokens": 400}, False),
        ({"prompt_tokens": 6, "planned_prompt_tokens": 400}, True),
        (
            {"prompt_tokens": 360, "planned_prompt_tokens": 400},
            False,
        ),  # 10 % are missing
    ],
)
def test_prompts_that_the_server_cut_are_named(
    changed: dict[str, int], estimated: bool
) -> None:
    about = {"tokenizer": "estimate"} if estimated else {}
    assert bad(of(answers(**changed), **about))["shortened_prompt_ratio"].startswith(
        "20 of 20 prompts have fewer tokens"
    )


def test_prompts_that_were_all_cut_at_one_length_are_named() -> None:
    rows = [
        replace(
            each,
            planned_prompt_tokens=300 + 40 * n,
            prompt_tokens=min(512, 300 + 40 * n),
        )
        for n, each in enumerate(answers())
    ]
    assert "shortened_prompt_ratio" in bad(of(rows, tokenizer="estimate"))
    whole = [replace(each, prompt_tokens=each.planned_prompt_tokens) for each in rows]
    assert "shortened_prompt_ratio" not in bad(of(whole, tokenizer="estimate"))


@pytest.mark.parametrize(
    ("estimated", "factor"), [(False, 1.0), (True, 0.6), (True, 2.0)]
)
def test_prompts_of_their_planned_length_are_fine(
    estimated: bool, factor: float
) -> None:
    """With a chat template on top; an estimate is wrong by a factor."""
    rows = answers(prompt_tokens=round(400 * factor) + 30, planned_prompt_tokens=400)
    assert bad(of(rows, **({"tokenizer": "estimate"} if estimated else {}))) == {}


@pytest.mark.parametrize("different", [1, 4])
def test_one_answer_for_everybody_is_named(different: int) -> None:
    """A cache or a stub in front: one answer for all prompts, or one for each of four users."""
    rows = [
        replace(each, output_sha256=f"o{number % different}")
        for number, each in enumerate(answers())
    ]
    assert bad(of(rows))["equal_answer_ratio"].startswith(
        f"{REQUESTS - different} of 20 answers are equal"
    )
    same = [
        replace(each, prompt_sha256="p", planned_prompt_tokens=None, cached_tokens=0)
        for each in rows
    ]
    assert "equal_answer_ratio" not in bad(
        of(same)
    )  # the same prompt may have the same answer


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": 2, "finish_reason": "length"},
        {"tokens": 3, "answer_form": "json_schema"},
    ],
)
def test_answers_of_few_tokens_or_in_a_form_may_be_equal_and_short(
    changed: dict[str, Any],
) -> None:
    """Yes or no, of 64 tokens at most: 20 prompts have two answers. A form may allow as few,
    however long they are."""
    rows = [
        replace(each, output_sha256=f"o{number % 2}", max_tokens=64)
        for number, each in enumerate(answers(**changed))
    ]
    assert not {"equal_answer_ratio", "abrupt_answer_ratio"} & set(bad(of(rows)))
    form = changed.get("answer_form")
    long = [
        replace(each, output_sha256=f"o{number % 2}", answer_form=form)
        for number, each in enumerate(answers())
    ]
    assert ("equal_answer_ratio" in bad(of(long))) == (form is None)


def test_refusals_are_named() -> None:
    """30 % content_filter; 10 % of four tokens; all of three tokens. Short answers to a request for
    eight are fine."""
    filtered = [
        replace(each, finish_reason="content_filter" if n < 6 else "length")
        for n, each in enumerate(answers())
    ]
    assert (
        "6 of 20 answers were refused or filtered" in bad(of(filtered))["refused_ratio"]
    )
    short = answers(
        2, tokens=4, finish_reason="stop", max_tokens=TOKENS, output_sha256="no"
    )
    assert (
        "2 of 20 answers ended after 4 tokens or less"
        in bad(of([*short, *answers()[2:]]))["abrupt_answer_ratio"]
    )
    three = answers(tokens=3, finish_reason="stop", max_tokens=TOKENS)
    assert "abrupt_answer_ratio" in bad(of(three))
    assert bad(of(answers(tokens=3, finish_reason="stop", max_tokens=8))) == {}


def test_both_instants_are_reported_where_an_answer_begins_with_blanks() -> None:
    rows = [
        replace(each, first_blank_mono_ns=each.started_mono_ns + 4 * MS, blank_events=1)
        for each in answers()
    ]
    (note,) = [
        check.text
        for check in of(rows).verdict.checks
        if check.name == "blank_first_events"
    ]
    assert note == (
        "20 answers began with blanks, 4.0 ms after the start in the median; their TTFT is that of the first visible text, 100.0 ms"
    )


def test_a_first_token_that_was_not_generated_is_named() -> None:
    """4 ms, then 300 ms, then one every 25 ms; or before half of the server's own time for the
    prompt; in one of three, too, and at two fifths of the way. One such gap of 20 is chance."""
    early = {"ttft_ms": 4.0, "itl_ms": [300.0, *[GAP_MS] * (TOKENS - 2)]}
    assert (
        "20 of 20 answers got their first token long before the others"
        in bad(of(answers(**early)))["early_first_ratio"]
    )
    assert "early_first_ratio" in bad(
        of(answers(ttft_ms=40.0, server_prompt_ms=95.0, server_predict_ms=2000.0))
    )
    speculative = {
        "ttft_ms": 40.0,
        "itl_ms": [90.0, *[0.0, 0.0, 0.0, 90.0] * 19, 0.0, 0.0],
    }
    assert "early_first_ratio" not in bad(of(answers(**speculative)))
    some = [
        replace(each, **early) if number % 3 == 0 else each
        for number, each in enumerate(answers())
    ]
    assert "early_first_ratio" in bad(of(some))
    late = {"ttft_ms": 120.0, "itl_ms": [180.0, *[GAP_MS] * (TOKENS - 2)]}
    assert "early_first_ratio" in bad(of(answers(**late)))
    one = [
        replace(each, **early) if number == 7 else each
        for number, each in enumerate(answers())
    ]
    assert "early_first_ratio" not in bad(of(one))


@pytest.mark.parametrize(("own_ms", "is_named"), [(150.0, True), (104.0, False)])
def test_first_tokens_before_the_servers_own_are_named(
    own_ms: float, is_named: bool
) -> None:
    """After 100 ms, where vLLM's histogram has its own after 150: at least a third of the answers
    began with something else. 4 ms are the clocks'."""
    vllm = {"url": "http://h", "backend": "vllm"}
    times = ServerTimes(REQUESTS, REQUESTS * own_ms, *[0.0] * 4)
    counted = ServerCounters(
        requests=REQUESTS, output_tokens=REQUESTS * TOKENS, times=times
    )
    found = bad(of(answers(), targets=[vllm], counters=counted))
    assert ("early_first_ratio" in found) is is_named
    if is_named:
        assert "33% of the answers or more" in found["early_first_ratio"]


def _with_first_gaps(share: float, hand_over_ms: float) -> list[RequestRecord]:
    """Prompts of 100 to 480 tokens that take 1 ms a token, by 10 % more or less. The first token
    comes after this share of the time, the second one after the rest and the hand-over, which
    takes half to one and a half times this long."""
    draw = np.random.default_rng(3)
    made = []
    for number, each in enumerate(answers()):
        tokens = 100 + 20 * number
        prompt_ms = tokens * float(draw.lognormal(0, 0.1))
        taken_ms = hand_over_ms * float(draw.uniform(0.5, 1.5))
        first_gap_ms = GAP_MS + (1 - share) * prompt_ms + taken_ms
        changed = replace(
            each,
            prompt_tokens=tokens,
            planned_prompt_tokens=tokens,
            prompt_chars=4 * tokens,
            ttft_ms=share * prompt_ms,
            itl_ms=[first_gap_ms, *[GAP_MS] * (TOKENS - 2)],
        )
        made.append(changed)
    return made


def test_answers_that_another_machine_decodes_are_not_early() -> None:
    """The key-value cache is handed over in 400 ms, after any prompt. What follows an invented
    first token is longer for longer prompts."""
    handed_over = of(_with_first_gaps(1.0, hand_over_ms=400.0))
    assert "early_first_ratio" not in bad(handed_over)
    (check,) = [
        check
        for check in handed_over.verdict.checks
        if check.name == "early_first_ratio"
    ]
    assert "as where another machine decodes" in check.text
    invented = of(_with_first_gaps(0.25, hand_over_ms=0.0))
    assert "20 of 20" in bad(invented)["early_first_ratio"]


def test_preempted_requests_are_named() -> None:
    counted = ServerCounters(requests=REQUESTS, preemptions=5)
    assert (
        "preempted requests 5 times"
        in bad(of(answers(), counters=counted))["preemption_ratio"]
    )
    assert bad(of(answers(), counters=replace(counted, preemptions=0))) == {}


def test_a_model_that_changes_during_the_run_is_named() -> None:
    """Two models that were requested are no change."""
    rows = [
        replace(each, answered_model="a (f1)" if n < 15 else "a (f2)")
        for n, each in enumerate(answers())
    ]
    assert (
        bad(of(rows))["answer_models"]
        == "the answers of one server name 2 models: 15 × a (f1), 5 × a (f2)"
    )
    requested = [
        replace(each, model=f"m{n % 2}", answered_model=f"m{n % 2}")
        for n, each in enumerate(answers())
    ]
    assert bad(of(requested)) == {}


def test_calls_that_come_whole_are_counted_by_their_text() -> None:
    """6 of 20 answers are calls of 80 tokens, sent at once when they are complete."""
    whole = {
        "finish_reason": "tool_calls",
        "tool_calls": 1,
        "token_events": 1,
        "itl_ms": [],
        "tpot_ms": None,
        "output_chars": 0,
        "output_bytes": 0,
        "call_chars": 4 * TOKENS,
    }
    found = of([*answers(6, **whole), *answers()[6:]])
    assert "count_gap_ratio" not in bad(found)
    assert found.total.total_output_tokens == REQUESTS * TOKENS


def replicas(slow: float, seed: int = 0) -> list[RequestRecord]:
    """Three replicas in turns, the third with `slow` times the TPOT; noise of 20 %."""
    draws = np.random.default_rng(seed)
    rows = answers(90)
    return [
        replace(
            each,
            host=f"http://{number % 3}",
            e2el_ms=100.0
            + GAP_MS
            * (TOKENS - 1)
            * draws.lognormal(sigma=0.2)
            * (slow if number % 3 == 2 else 1),
        )
        for number, each in enumerate(rows)
    ]


def test_one_slow_replica_of_three_is_named() -> None:
    about = {"targets": [{"url": f"http://{number}"} for number in range(3)]}
    assert (
        "replica http://2 is" in bad(of(replicas(2.0), **about))["replica_difference"]
    )
    assert "faster" in bad(of(replicas(0.4), **about))["replica_difference"]
    assert bad(of(replicas(1.0), **about)) == {}


def test_counters_of_the_measured_time_confirm_a_report() -> None:
    """8 % of the events are missing; the counters begin after the warm-up."""
    warmups = [
        replace(each, warmup=True, request_id=f"w{n}", prompt_index=None)
        for n, each in enumerate(answers())
    ]
    lost = reporting(1.0, events=0.92)
    about = manifest(
        num_prompts=REQUESTS, counters=ServerCounters(output_tokens=REQUESTS * TOKENS)
    )
    found = analyze(Run(Path("run"), about, table(*warmups, *lost), recovered=False))
    assert "events were lost or merged on the way" in bad(found)["count_gap_ratio"]
    assert found.total.total_output_tokens == REQUESTS * TOKENS


def test_answers_without_a_count_are_left_out_of_the_comparison() -> None:
    """Records of other programs may have a source and no count."""
    rows = [
        replace(each, output_tokens=None, tpot_ms=None) if n % 3 == 0 else each
        for n, each in enumerate(answers())
    ]
    assert {check.name: check.value for check in of(rows).verdict.checks}[
        "count_gap_ratio"
    ] == 0.0


def test_requests_for_no_token_have_no_share_of_the_requested_tokens() -> None:
    rows = answers(max_tokens=0, finish_reason="stop")
    names = [check.name for check in of(rows).verdict.checks]
    assert "answer_length_ratio" not in names and "short_answer_ratio" not in names


def test_short_prompts_of_nearly_one_length_were_not_cut() -> None:
    """18 to 22 tokens, by an estimate that is wrong by up to 25 %: many have the largest length,
    and as many the others."""
    draws = np.random.default_rng(3)
    lengths = draws.integers(18, 23, 200)
    planned = np.rint(lengths * draws.uniform(0.8, 1.25, 200))
    rows = [
        replace(
            each,
            prompt_tokens=int(lengths[n]),
            planned_prompt_tokens=int(planned[n]),
            prompt_chars=int(4 * lengths[n]),
        )
        for n, each in enumerate(answers(200))
    ]
    assert bad(of(rows, tokenizer="estimate")) == {}


def test_endpoints_of_one_server_may_name_the_model_differently() -> None:
    rows = [
        replace(each, endpoint=name, answered_model=model)
        for each, (name, model) in zip(
            answers(), [("chat", "m (f1)"), ("completions", "m")] * 10, strict=True
        )
    ]
    assert bad(of(rows)) == {}


def test_blanks_before_an_answer_are_events_with_a_token_each() -> None:
    """Ten tokens, the first two of them blanks: eight token events, and ITL is still that of single
    tokens."""
    found = of(answers(tokens=10, token_events=8, blank_events=2, itl_ms=[GAP_MS] * 7))
    assert bad(found) == {}
    assert found.total.tokens_per_event.mean == 1.0


def test_a_limit_of_the_way_is_no_full_context() -> None:
    """64 tokens of 256 for prompts of 20 to 210 tokens: a gateway's limit. Answers that end where
    prompt and answer fill 300: the context."""
    rows = prompts(PLANNED, PLANNED)
    asked = [replace(row, max_tokens=256, finish_reason="length") for row in rows]
    found = bad(of(asked))
    assert found["clipped_answer_ratio"].startswith(
        "20 answers of 20 ended by length at 80 tokens, up to 256 were asked for"
    )
    assert "cut_by_context_ratio" not in found
    full = [
        replace(row, output_tokens=300 - int(row.prompt_tokens or 0)) for row in asked
    ]
    assert "cut_by_context_ratio" in bad(of(full))
    assert "clipped_answer_ratio" not in bad(of(full))


@pytest.mark.parametrize(
    ("doubt", "is_named"),
    [(None, True), ("usage: 1 output tokens where 80 events carried text", False)],
)
def test_events_count_for_missing_usage_only_where_there_was_none(
    doubt: str | None, is_named: bool
) -> None:
    """Usage that came and was not believed is named as that."""
    found = of(answers(token_source="events", count_doubt=doubt))
    names = {check.name for check in found.verdict.checks}
    assert ("counted_output_requests" in names) == is_named
    assert ("unbelievable_counts" in bad(found)) != is_named


@pytest.mark.parametrize(("without", "is_named"), [(0, False), (3, True), (20, False)])
def test_answers_without_a_reason_are_doubted_where_others_have_one(
    without: int, is_named: bool
) -> None:
    """Three of 20; where none has one, the server sends none, and a note says so."""
    records = answers()
    for number in range(without):
        records[number] = replace(
            records[number], finish_reason=None, end_note="no finish_reason"
        )
    found = of(records)
    assert ("unconfirmed_end_ratio" in bad(found)) == is_named
    notes = [each for each in found.verdict.checks if each.name == "answer_end_notes"]
    assert [note.value for note in notes] == ([without] if without else [])
