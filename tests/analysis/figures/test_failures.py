"""Failures explained: each class with its times, its messages and the numbers that say what to
change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llama_load.analysis.figures.answer_ends import AnswerEnds
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.failure_hints import (
    FailedRequests,
    FailureContext,
    hint,
    meaning,
)
from llama_load.analysis.figures.failures import FailureClass, failure_classes
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.reports.write import write_reports
from llama_load.analysis.results.results import analyze
from llama_load.run_folder import RunWriter
from llama_load.run_folder.observed.record import RequestRecord
from tests.make_records import failed, manifest, record, table


def explained(
    *records: RequestRecord,
    users: int | None = None,
    slots: int | None = None,
    **context: Any,
) -> list[FailureClass]:
    rows = table(*records)
    about = FailureContext(**context)
    return failure_classes(
        Evidence(
            records=rows,
            figures=summarize(rows),
            users=users,
            slots=slots,
            failure_context=about,
        )
    )


def test_a_class_has_its_count_times_and_messages() -> None:
    """Three failures at 50, 90 and 20 ms of their run, two with the same words; the most frequent
    class comes first."""
    slow, other = failed(1, start_ms=40, end_ms=90), failed(2, end_ms=20, kind="reset")
    found = explained(record(9), failed(0), slow, other)
    assert [
        (each.kind, each.count, each.first_s, each.last_s, each.examples)
        for each in found
    ] == [("http_500", 2, 0.05, 0.09, ["boom"]), ("reset", 1, 0.02, 0.02, ["boom"])]
    assert explained(record()) == []


def refused(
    prompt_tokens: int, max_tokens: int, kind: str = "context_exceeded"
) -> RequestRecord:
    from dataclasses import replace

    return replace(
        failed(kind=kind), prompt_tokens=prompt_tokens, max_tokens=max_tokens
    )


def test_a_context_that_is_too_small_is_named_with_the_one_that_is_enough() -> None:
    """The longest needs 5000 + 128 tokens; llama.cpp rounds a slot's context up to 256: 5376 each,
    21504 for four slots."""
    server = {"backend": "llama-server", "slots_each": 4, "ctx_per_slot": 4096}
    found = explained(
        refused(4500, 128), refused(5000, 128), **server, is_shared=False
    )[0]
    assert found.hint == (
        "the longest needs 5128 tokens with its answer, a slot has 4096: start the server with -c 21504 or more (4 slots x 5376), "
        "or shorten the prompts"
    )
    shared = explained(refused(5000, 128), **server, is_shared=True)[0].hint
    assert "start the server with -c 5376 or more (4 slots share it), or" in shared
    unknown = explained(refused(5000, 128), **server)[0].hint
    assert (
        "-c 21504 or more (4 slots x 5376); with --kv-unified 5376 is enough" in unknown
    )
    assert (
        "--max-model-len 5128"
        in explained(refused(5000, 128), backend="vllm", ctx_per_slot=4096)[0].hint
    )
    assert "a larger -c" in explained(refused(5000, 128))[0].hint


def test_a_shared_kv_cache_that_ran_out_is_named() -> None:
    found = explained(
        refused(900, 100, "kv_pool_full"),
        users=8,
        slots=4,
        slots_each=4,
        ctx_per_slot=2048,
    )[0]
    assert (
        "4 requests of up to 1000 tokens need 4000, it has 2048: start the server with -c 4000"
        in found.hint
    )


def test_a_time_out_says_which_and_what_waited_for_what() -> None:
    found = explained(
        *(failed(number, kind="first_token_timeout") for number in range(12)),
        users=20,
        slots=1,
        backend="llama-server",
        limits_s={"first_token_timeout": 3.0},
    )[0]
    assert found.meaning == "no first token within 3 s"
    assert (
        found.hint
        == "20 users on 1 slot, 12 got none; try -np 20 or a longer --first-token-timeout"
    )
    assert (
        meaning("token_timeout", FailureContext(limits_s={"token_timeout": 120.0}))
        == "no further token within 120 s"
    )
    assert (
        "lower the load"
        in explained(failed(kind="first_token_timeout"), users=1, slots=4)[0].hint
    )


def test_the_largest_input_decides_on_the_micro_batch() -> None:
    """Not the one that failed first or most often."""
    gone = [
        replace(
            record(number, start_ms=1000.0 * number),
            status="http_500",
            error=f"HTTP 500: input ({tokens} tokens) is too large to process",
        )
        for number, tokens in enumerate((157, 157, 947, 200))
    ]
    assert "-b 947 -ub 947" in explained(*gone)[0].hint


@pytest.mark.parametrize(
    ("kind", "message", "words"),
    [
        ("overloaded", "HTTP 503: Loading model", "still loading"),
        ("overloaded", "HTTP 429: queue full", "8 users on 2 slots"),
        ("http_500", "HTTP 500: failed to allocate buffer", "out of memory"),
        ("http_500", "HTTP 500: oops", "see its log"),
        (
            "http_500",
            "HTTP 500: input (947 tokens) is too large to process. increase the physical batch size",
            "-b 947 -ub 947",
        ),
        ("http_404", "HTTP 404: no such model", "--model"),
        ("reset", "reset", "server's log"),
        ("http_418", "HTTP 418", ""),
    ],
)
def test_each_cause_has_its_hint(kind: str, message: str, words: str) -> None:
    assert words in hint(
        kind, FailedRequests(1, message=message), FailureContext(users=8, slots=2)
    )


@pytest.mark.parametrize(
    ("last_words", "words"),
    [
        (
            "exit code 1; out of memory; /logs/server.log ends with:\ncudaMalloc failed: out of memory",
            "-ngl",
        ),
        (
            "signal 6; an RPC worker was lost; /logs/server.log ends with:\nRemote RPC server crashed",
            "RPC worker was lost",
        ),
        ("exit code 3\nline", "the server ended during the run: exit code 3"),
        (
            "the server ended (killed by SIGKILL)",
            "the server ended (killed by SIGKILL)",
        ),
    ],
)
def test_the_last_words_of_a_server_name_the_cause_of_broken_connections(
    last_words: str, words: str
) -> None:
    found = explained(failed(kind="cut_off"), last_words=last_words)[0].hint
    assert words in found and found.count("the server ended") <= 1
    assert (
        words
        not in explained(failed(kind="first_token_timeout"), last_words=last_words)[
            0
        ].hint
    )


def test_a_run_tells_complete_answers_from_cut_ones(tmp_path: Path) -> None:
    """Of ten: seven complete, one cut by the context, one failed in the middle of its answer, one
    before it; six meet 200 ms."""
    from dataclasses import replace

    good = [record(number) for number in range(6)]
    slow, cut = record(6, first_ms=300), record(7, max_tokens=64, first_ms=300)
    broken = replace(failed(8, kind="cut_off"), first_token_mono_ns=10_000_000)
    writer = RunWriter(tmp_path / "run", manifest(num_prompts=10, goodput=["ttft:200"]))
    writer.append([*good, slow, cut, broken, failed(9)])
    results = analyze(writer.finish())
    assert results.answers == AnswerEnds(complete=7, cut_by_context=1, broken_off=1)
    assert (results.total.success_ratio, results.total.good_requests) == (0.8, 6)
    text = write_reports(results).text
    for line in (
        "Success rate (%):                        80.00",
        "Met every objective:                     6 of 8",
    ):
        assert line in text
    assert "Failed after their first token:          1" in text


@pytest.mark.parametrize(
    ("kind", "message", "backend", "words", "absent"),
    [
        ("cut_off", "", "openai", "the server's log", "interrupt_requests"),
        ("cut_off", "", "llama-cpp-python", "--interrupt_requests false", "log"),
        ("empty_answer", "", "openai", "the server's log", "context"),
        ("empty_answer", "", "llama-cpp-python", "--n_ctx", "log"),
        ("http_400", "no such image", "openai", "the server's log", "field"),
        ("http_400", "unknown field max_tokens", "openai", "accept a field", "log"),
        ("http_400", "max_tokens is too large", "openai", "accept a field", "log"),
        ("overloaded", "slow down", "openai", "refused them", "queue"),
        ("overloaded", "the queue is full", "openai", "queue was full", "refused"),
    ],
)
def test_a_hint_names_only_what_was_seen(
    kind: str, message: str, backend: str, words: str, absent: str
) -> None:
    """The flags of llama-cpp-python on that server alone, a field where the message names one, a
    queue where it does."""
    failed = FailedRequests(1, message=message)
    text = hint(kind, failed, FailureContext(backend=backend))
    assert words in text
    assert absent not in text
