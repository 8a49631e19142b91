"""The server's counters guard the verdict: each flaw is planted and named, and clean runs stay
silent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import requests

from llama_load.analysis.checks import server_side
from llama_load.analysis.checks.verdict import stage_checks
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.client_server import side_by_side
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.results.gather_evidence import evidence_of_stage
from llama_load.run_folder import StageRecord
from llama_load.run_folder.observed.other_requests import OtherRequests, OtherTraffic
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes
from llama_load.servers.serving.launch import Server
from tests.conftest import Finished
from tests.make_records import failed, record, table

OURS = [
    record(number) for number in range(10)
]  # 3 output tokens and 10 prompt tokens each


def others(*records: RequestRecord, **counted: Any) -> Check:
    more = {"others": counted.pop("others")} if "others" in counted else {}
    rows = table(*(records or OURS))
    counters = ServerCounters(**counted) if counted else None
    (found,) = server_side.other_clients(
        Evidence(records=rows, figures=summarize(rows), counters=counters, **more)
    )
    return found


def test_requests_that_were_all_ours_are_fine() -> None:
    assert (others(requests=10).ok, others(requests=10).value) == (True, 0)
    assert others(output_tokens=30, prompt_tokens=100).value == 0


def test_other_requests_may_explain_the_counters_of_a_stage() -> None:
    """Their number by stage is not known, so that the counters of a stage show no other client, as
    those of the run do not."""
    rows, stage = (
        table(*OURS),
        StageRecord("16", 16, counters=ServerCounters(requests=99)),
    )
    for known, names in (
        (OtherTraffic(), ["other_client_ratio"]),
        (OtherTraffic([OtherRequests("GET", "/", 1)]), []),
    ):
        whole = Evidence(records=rows, figures=summarize(rows), others=known)
        judged = evidence_of_stage(
            whole, rows, whole.figures, number=0, record=stage, parts=None
        )
        assert [check.name for check in stage_checks(judged)] == names


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (
            {"requests": 13},
            "the server counted 13 requests during the measurement, ours were 10: another client used it",
        ),
        (
            {"output_tokens": 33},
            "33 output tokens during the measurement, ours were 30: another client",
        ),
        ({"output_tokens": 30, "prompt_tokens": 5100}, "5100 prompt tokens"),
        ({"requests": 7}, "another server answered some"),
    ],
)
def test_what_was_not_ours_is_named(counted: dict[str, int], words: str) -> None:
    found = others(**counted)
    assert not found.ok
    assert words in found.text


def test_requests_beside_the_measured_ones_count_unless_they_ended_later() -> None:
    """--hand-over: two warm-ups, ten measured requests, one that ended after them and may or may
    not be counted; 3 tokens each."""
    beside = [record(20 + number, warmup=True) for number in range(2)] + [
        record(30, start_ms=50, warmup=True, max_tokens=3)
    ]
    rows = table(*OURS)

    def check(counted: int) -> Check:
        counters = ServerCounters(output_tokens=counted)
        evidence = Evidence(
            records=rows,
            figures=summarize(rows),
            beside=table(*OURS, *beside),
            counters=counters,
        )
        (found,) = server_side.other_clients(evidence)
        return found

    assert check(36).ok
    # 13 prompts of 10 tokens; the last one's template has 8 more
    templated = ServerCounters(prompt_tokens=130 + 8)
    (found,) = server_side.other_clients(
        Evidence(
            records=rows,
            figures=summarize(rows),
            beside=table(*OURS, *beside),
            counters=templated,
        )
    )
    assert found.ok
    assert check(39).ok
    assert "ours were 36 to 39: another client" in check(45).text
    assert "another server answered some" in check(30).text


def test_rounded_counters_are_compared_within_their_error() -> None:
    """30 tokens are ours; a counter of 1.2 million is rounded to 10, so that 40 may be 30, and 60
    may not."""
    assert others(output_tokens=37, errors={"output_tokens": 7}).ok
    beyond = others(output_tokens=45, errors={"output_tokens": 7})
    assert not beyond.ok
    assert (
        "the server counted 45 ± 7 output tokens during the measurement, ours were 30"
        in beyond.text
    )
    unknown = others(output_tokens=1030, errors={"output_tokens": 1000})
    assert (unknown.value, unknown.ok) == (None, True)
    assert "rounded to ± 1000 output tokens" in unknown.text


def test_requests_that_failed_or_were_cut_may_or_may_not_count() -> None:
    """8 succeeded, one was cut after 3 of at most 64 tokens, one was refused twice before it
    failed: 8 to 12 requests."""
    cut = record(8, status="cancelled", max_tokens=64)
    refused = replace(failed(9, kind="overloaded"), tries=3, max_tokens=None)
    rows = [*OURS[:8], cut, refused]
    assert others(*rows, requests=8).ok
    assert others(*rows, requests=12).ok
    assert not others(*rows, requests=13).ok
    assert others(*rows, output_tokens=24 + 64).ok
    assert not others(*rows, output_tokens=24 + 64 + 9).ok


def test_what_cannot_be_compared_is_said_to_be_unknown() -> None:
    traffic = OtherTraffic()
    traffic.row("GET", "/").add(1.0, None)
    for found in (
        others(),
        others(preemptions=0),
        others(requests=13, others=traffic),
        others(replace(record(), choices=2), requests=2),
        others(record(endpoint="embeddings"), requests=64),
        others(
            record(output_tokens=None, prompt_tokens=None),
            output_tokens=50,
            prompt_tokens=500,
        ),
    ):
        assert (found.value, found.ok) == (None, True)
        assert "not" in found.text or "include" in found.text


def test_preemptions_and_a_server_that_was_just_started_are_named() -> None:
    rows = table(*OURS)
    evidence = Evidence(
        records=rows,
        figures=summarize(rows),
        counters=ServerCounters(preemptions=3),
        uptime_s=12.0,
    )
    assert "preempted requests 3 times" in next(server_side.preemptions(evidence)).text
    assert "started 12 s before" in next(server_side.just_started(evidence)).text
    calm = Evidence(
        records=rows,
        figures=summarize(rows),
        counters=ServerCounters(preemptions=0),
        uptime_s=3600.0,
    )
    assert [check.ok for check in server_side.preemptions(calm)] == [True]
    assert list(server_side.just_started(calm)) == []


@pytest.mark.parametrize(
    ("unexplained_ms", "mean_ms", "ok"),
    # below 50 ms it is never flagged
    [(20, 1000, True), (400, 1000, False), (30, 60, True), (0, 0, True)],
)
def test_time_that_nothing_explains_is_flagged(
    unexplained_ms: float, mean_ms: float, ok: bool
) -> None:
    rows = table(*OURS)
    evidence = Evidence(
        records=rows, figures=summarize(rows), unexplained=(unexplained_ms, mean_ms)
    )
    (found,) = server_side.unexplained(evidence)
    assert found.ok is ok
    assert ("another client" in found.text) is not ok


def test_vllms_means_stand_beside_the_clients() -> None:
    """E2EL 140 ms of the client, 1 ms of it connecting; the server's mean is 100 ms: 39 ms are
    between them."""
    times = ServerTimes(
        requests=10,
        ttft_ms=700,
        e2el_ms=1000,
        queue_ms=100,
        prefill_ms=500,
        decode_ms=300,
    )
    pairs = {
        pair.name: pair
        for pair in side_by_side(table(*OURS), ServerCounters(times=times, requests=10))
    }
    assert pairs["E2EL (ms)"].difference == pytest.approx(39)
    assert (
        pairs["wait in the queue (ms)"].client,
        pairs["wait in the queue (ms)"].server,
    ) == (None, 10)
    assert (pairs["requests"].client, pairs["requests"].server) == (10, 10)
    assert side_by_side(table(*OURS), None) == []


# ------------------------------------------------------------------ a real server


def check_of(done: Finished, name: str) -> dict[str, Any]:
    return next(
        check
        for check in done.summary["llama_load"]["verdict"]["checks"]
        if check["name"] == name
    )


def test_warm_ups_and_preflight_are_not_taken_for_another_client(
    llama_server: Server, run_locust: Callable[..., Finished]
) -> None:
    done = run_locust(
        llama_server.url,
        "-u",
        "4",
        "--num-prompts",
        "4",
        "--warmup",
        "6",
        "--max-tokens",
        "3",
    )
    found = check_of(done, "other_client_ratio")
    assert (found["ok"], found["value"]) == (True, 0)
    pairs = {pair["name"]: pair for pair in done.summary["llama_load"]["client_server"]}
    assert (
        pairs["output tokens"]["difference"]
        == pairs["prompt tokens"]["difference"]
        == 0
    )


def test_another_client_of_a_real_server_is_named(
    llama_server: Server, run_locust: Callable[..., Finished]
) -> None:
    """It sends requests of its own for as long as the run lasts."""
    over = threading.Event()

    def bother() -> None:
        while not over.is_set():
            requests.post(
                f"{llama_server.url}/v1/completions",
                json={"prompt": "hello", "max_tokens": 8},
                timeout=20,
            )

    other = threading.Thread(target=bother)
    other.start()
    try:
        done = run_locust(
            llama_server.url, "-u", "2", "--num-prompts", "3", "--max-tokens", "20"
        )
    finally:
        over.set()
        other.join()
    found = check_of(done, "other_client_ratio")
    assert not found["ok"]
    assert "another client used it" in found["text"]
    assert "NOT COMPARABLE" in done.summary["llama_load"]["verdict"]["words"]


def test_a_server_that_copied_prompts_to_its_cache_is_named() -> None:
    """80 of 100 ms are in no account of 64 requests; its log says how long it copied. A tenth of
    that explains nothing, and is told where it is over 2 % of the time."""
    rows = table(*OURS)
    figures = summarize(rows)
    in_all_ms = 80.0 * figures.completed / figures.peak_in_flight
    evidence = Evidence(
        records=rows,
        figures=figures,
        unexplained=(80.0, 100.0),
        prompt_saves_ms=in_all_ms,
    )
    (found,) = server_side.unexplained(evidence)
    assert not found.ok and "another client" not in found.text
    assert "copied prompts from slots to its prompt cache" in found.text
    assert found.sentence.endswith("start it with --cache-ram 0")
    (told,) = server_side.prompt_saves(evidence)
    assert (told.name, told.limit, told.value) == ("prompt_saves_ms", None, in_all_ms)
    little = replace(evidence, prompt_saves_ms=in_all_ms / 10)
    (found,) = server_side.unexplained(little)
    assert "another client" in found.text
    assert not list(server_side.prompt_saves(replace(evidence, prompt_saves_ms=0.0)))


def test_a_server_that_slept_is_named_and_no_other_client() -> None:
    """80 of 100 ms are in no account; its log says that it woke."""
    rows = table(*OURS)
    evidence = Evidence(
        records=rows, figures=summarize(rows), unexplained=(80.0, 100.0), wakes=2
    )
    (found,) = server_side.unexplained(evidence)
    assert not found.ok
    assert "the server slept and woke 2 times (--sleep-idle-seconds)" in found.text
    assert "another client" not in found.text
    (noted,) = server_side.sleeps(evidence)
    assert (noted.name, noted.limit) == ("server_wakes", None)
