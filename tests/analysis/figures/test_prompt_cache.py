"""Prompts that a cache answered although nobody asked for that: each kind of evidence, and the
clean runs that must stay silent."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llama_load.analysis.checks.one_cause import causes_first
from llama_load.analysis.comparison.run_folder import folder_run
from llama_load.analysis.figures.check import Check, limited
from llama_load.analysis.figures.prompt_cache import (
    CacheEvidence,
    PromptTable,
    cache_checks,
)
from llama_load.analysis.results.earlier_runs import sent_before
from llama_load.analysis.results.gather_evidence import cache_evidence
from llama_load.run_folder import RunWriter, load_run
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.sent_before import SentBefore
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.servers.counters import parse_counters
from llama_load.servers.serving.launch import Server
from tests.conftest import Finished, Simulated
from tests.make_records import manifest, record, table
from tests.transcripts import FOLDER

Run = Callable[..., Finished]
BASE = CacheEvidence()


def prompt(number: int, digest: str | None = None, **more: Any) -> RequestRecord:
    """Request `number`, sent after the others; its prompt of 100 tokens is its own unless named."""
    fields: dict[str, Any] = {
        "start_ms": 10.0 * number,
        "prompt_tokens": 100,
        "prompt_sha256": digest or f"own {number}",
    }
    return record(number, **fields | more)


def silent(number: int, digest: str | None = None, **more: Any) -> RequestRecord:
    return prompt(number, digest, cached_tokens=None, **more)


def checked(
    records: Sequence[RequestRecord],
    evidence: CacheEvidence = BASE,
    counters: ServerCounters | None = None,
    stage: int | None = None,
) -> dict[str, Check]:
    return {
        check.name: check
        for check in cache_checks(
            PromptTable(table(*records), evidence), counters, stage
        )
    }


def bad(found: dict[str, Check]) -> list[str]:
    return [name for name, check in found.items() if not check.ok]


# ------------------------------------------------------------------ what the server reports


def test_fresh_prompts_are_clean() -> None:
    assert bad(checked([prompt(number) for number in range(50)])) == []


def test_the_tokens_that_may_be_cached_are_named_beside_the_others() -> None:
    """5 of each of 20 prompts, of the chat template: the block's sum is 100, the share that counts
    0."""
    rows = [prompt(number, cached_tokens=5) for number in range(20)]
    text = checked(rows, CacheEvidence(head_tokens={"http://h": 25}))[
        "cached_prompt_ratio"
    ].text
    assert text.startswith("0 of ") and text.endswith(
        "prompt tokens, besides 100 of chat templates and shared prefixes, which may"
    )


def test_a_prompt_that_was_cached_for_the_most_part_is_named() -> None:
    """3 of 100 are over the limit of 2 %; the sentence says which, and what helps."""
    found = checked(
        [
            prompt(number, cached_tokens=99 * (number in (3, 17, 40)))
            for number in range(100)
        ]
    )
    check = found["cached_prompt_ratio"]
    assert (check.ok, check.value) == (False, 0.03)
    assert "(prompts 3, 17, 40)" in check.text
    assert all(
        flag in check.sentence for flag in ("--bust-prefix-cache", "--cache-prompt on")
    )


def test_every_prompt_cached_to_49_percent_is_caught_by_its_tokens() -> None:
    found = checked([prompt(number, cached_tokens=49) for number in range(50)])
    assert bad(found) == ["cached_prompt_ratio"]
    check = found["cached_prompt_ratio"]
    assert check.value == pytest.approx(0.49)
    # A sentence about tokens begins with them, not with 0 of 50 prompts.
    assert re.match(r"\d+ of \d+ prompt tokens came from the cache", check.text)


def test_a_cached_first_turn_was_not_meant_a_later_one_was() -> None:
    turns = [
        prompt(
            number,
            conversation=str(number // 2),
            turn=1 + number % 2,
            cached_tokens=90 * (number % 2),
        )
        for number in range(20)
    ]
    assert bad(checked(turns)) == []
    cached = [replace(each, cached_tokens=90) for each in turns]
    assert bad(checked(cached)) == ["cached_prompt_ratio"]


def test_the_templates_head_and_a_shared_prefix_do_not_count() -> None:
    """25 of template and 50 of --system-prompt, in 100 tokens: 80 cached may be, 95 may not."""
    evidence = CacheEvidence(
        head_tokens={"http://h": 25}, shared_tokens={"sharegpt": 50}
    )
    rows = [prompt(number, prompt_tokens=200, cached_tokens=80) for number in range(20)]
    assert bad(checked(rows, evidence)) == []
    assert bad(checked(rows)) == ["cached_prompt_ratio"]
    assert bad(
        checked([replace(row, cached_tokens=199) for row in rows], evidence)
    ) == ["cached_prompt_ratio"]


def test_a_shared_prefix_that_was_estimated_may_be_longer() -> None:
    rows = [
        prompt(number, prompt_tokens=1400, cached_tokens=1200) for number in range(20)
    ]
    evidence = CacheEvidence(shared_tokens={"sharegpt": 1000})
    assert bad(checked(rows, evidence)) == ["cached_prompt_ratio"]
    assert bad(checked(rows, replace(evidence, estimated=True))) == []


def test_what_was_declared_is_no_fault() -> None:
    rows = [prompt(number, cached_tokens=99) for number in range(20)]
    assert bad(checked(rows, CacheEvidence(intended=True))) == []
    # a trace that repeats its prompts
    assert bad(checked(rows, CacheEvidence(shared_tokens={"sharegpt": None}))) == []


def test_a_server_that_leaves_out_zeros_counts_as_reporting() -> None:
    """vLLM with --enable-prompt-tokens-details: 1 of 200 cached is below the limit, and not 1 of
    1."""
    rows = [
        prompt(number, cached_tokens=96 if number == 7 else None)
        for number in range(200)
    ]
    found = checked(rows)
    assert (found["cached_prompt_ratio"].value, bad(found)) == (1 / 200, [])


# ------------------------------------------------------------------ what was sent before


def test_700_requests_from_220_prompts_where_the_server_is_silent() -> None:
    rows = [silent(number, f"prompt {number % 220}") for number in range(700)]
    found = checked(rows)
    assert found["repeated_prompt_ratio"].value == 480 / 700
    assert bad(found) == ["repeated_prompt_ratio"]
    assert (
        "480 of 700 prompts were sent before in this run (prompts 220, 221, "
        in found["repeated_prompt_ratio"].text
    )


def test_one_prompt_sent_500_times() -> None:
    assert (
        checked([silent(number, "the one") for number in range(500)])[
            "repeated_prompt_ratio"
        ].value
        == 499 / 500
    )


def test_a_silent_server_with_fresh_prompts_is_clean() -> None:
    found = checked([silent(number) for number in range(50)])
    assert bad(found) == []
    assert (
        found["cached_prompt_ratio"].value,
        "does not report" in found["cached_prompt_ratio"].text,
    ) == (None, True)


def test_a_warm_up_may_have_sent_it_too_and_another_replica_may_not() -> None:
    warmup = silent(0, "a", warmup=True)
    assert bad(checked([warmup, silent(1, "a")])) == ["repeated_prompt_ratio"]
    assert bad(checked([warmup, silent(1, "a", host="http://other")])) == []


@pytest.mark.parametrize("other", [{"endpoint": "completions"}, {"model": "b"}])
def test_the_same_text_for_another_model_or_endpoint_is_another_prompt(
    other: dict[str, str], tmp_path: Path
) -> None:
    assert bad(checked([silent(0, "a", warmup=True, **other), silent(1, "a")])) == []
    written(tmp_path / "a", at(100, "x", **other))
    assert sent_before(tmp_path / "b", table(at(200, "x"))) == SentBefore(0, 1)


def test_repeated_turns_and_caches_that_are_off_are_no_fault() -> None:
    turns = [silent(0, "a", turn=1), silent(1, "b", turn=2), silent(2, "b", turn=2)]
    assert bad(checked(turns)) == []
    assert (
        bad(checked([silent(0, "a"), silent(1, "a")], CacheEvidence(is_off=True))) == []
    )


@pytest.mark.parametrize("endpoint", ["embeddings", "rerank"])
def test_embeddings_and_rankings_of_one_text_are_no_fault(
    tmp_path: Path, endpoint: str
) -> None:
    rows = [silent(number, "one", endpoint=endpoint) for number in range(3)]
    assert bad(checked(rows)) == []
    written(tmp_path / "a", at(100, "x", endpoint=endpoint))
    assert (
        sent_before(tmp_path / "b", table(at(200, "x", endpoint=endpoint)))
        == SentBefore()
    )


def test_prompts_of_an_earlier_stage_count_in_the_later_one_alone() -> None:
    rows = [
        silent(number, f"p{number % 10}", stage=number // 10) for number in range(20)
    ]
    assert bad(checked(rows, stage=0)) == []
    assert checked(rows, stage=1)["repeated_prompt_ratio"].value == 1.0


def test_prompts_of_earlier_runs_are_named_with_the_run() -> None:
    before = SentBefore(
        count=60, of=64, runs=["20261121-101500-sharegpt"], prompts=[0, 1, 2]
    )
    found = checked(
        [silent(number) for number in range(64)], CacheEvidence(sent_before=before)
    )
    assert bad(found) == ["repeated_prompt_ratio"]
    assert (
        "60 of 64 prompts were sent to this server in earlier runs (20261121-101500-sharegpt; prompts 0, 1, 2)"
        in (found["repeated_prompt_ratio"].text)
    )
    records = [prompt(number) for number in range(64)]
    # the server says that none was cached
    assert bad(checked(records, CacheEvidence(sent_before=before))) == []


# ------------------------------------------------------------------ what the server counts


def test_vllms_counters_tell_what_its_answers_do_not() -> None:
    """The second run with one seed: 4,480 of 5,000 tokens out of the prefix cache (in blocks of
    16). The real page's names."""
    page = (FOLDER / "vllm_metrics.txt").read_text()
    first = parse_counters(page)
    hits = page.replace(
        'vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 0.0',
        'vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 4480.0',
    )
    hits = hits.replace(
        'prefix_cache_queries_total{engine="0",model_name="tiny"} 234.0',
        'prefix_cache_queries_total{engine="0",model_name="tiny"} 5234.0',
    )
    second = parse_counters(hits)
    assert first is not None
    assert second is not None
    rows = [silent(number) for number in range(50)]
    found = checked(rows, counters=second.since(first))
    assert bad(found) == ["server_cache_hit_ratio"]
    assert found["server_cache_hit_ratio"].value == pytest.approx(0.896)
    assert "--bust-prefix-cache" in found["server_cache_hit_ratio"].sentence


def counters(queries: int, hits: int) -> ServerCounters:
    return ServerCounters(prompt_tokens=5000, cache_queries=queries, cache_hits=hits)


def test_hits_that_may_be_are_left_out() -> None:
    """Heads of 16 tokens in 50 prompts of 100; then 25 later turns, all of whose tokens may be
    cached."""
    rows = [silent(number) for number in range(50)]
    assert (
        bad(
            checked(
                rows, CacheEvidence(head_tokens={"http://h": 16}), counters(5000, 800)
            )
        )
        == []
    )
    assert bad(checked(rows, counters=counters(5000, 800))) == [
        "server_cache_hit_ratio"
    ]
    turns = [silent(number, turn=1 + number % 2) for number in range(50)]
    assert bad(checked(turns, counters=counters(5000, 2400))) == []
    assert (
        checked(turns, counters=counters(5000, 3500))["server_cache_hit_ratio"].value
        == 0.4
    )


def test_repeated_prompts_are_no_fault_where_the_server_counts_no_hits() -> None:
    """Prefix caching is off (nothing is looked up), or the cache had lost them."""
    rows = [silent(number, "the one") for number in range(50)]
    for queries in (0, 5000):
        found = checked(
            rows,
            CacheEvidence(sent_before=SentBefore(50, 50, ["a"], [0])),
            counters(queries, 0),
        )
        assert bad(found) == []
        assert found["server_cache_hit_ratio"].value == 0
    assert "49 of 50 prompts were sent before" in found["cached_prompt_ratio"].text


def test_counters_that_say_nothing_of_a_cache_leave_the_hashes() -> None:
    rows = [silent(number, "the one") for number in range(50)]
    assert bad(checked(rows, counters=ServerCounters(requests=50))) == [
        "repeated_prompt_ratio"
    ]


def test_counters_of_a_stage_judge_that_stage() -> None:
    rows = [silent(number, stage=number // 25) for number in range(50)]
    assert bad(checked(rows, counters=counters(2500, 0), stage=0)) == []
    assert (
        checked(rows, counters=counters(2500, 1000), stage=1)[
            "server_cache_hit_ratio"
        ].value
        == 0.4
    )


# ------------------------------------------------------------------ first against repeated prompts


def twice(prompts: int, ratio: Callable[[], float], **more: Any) -> list[RequestRecord]:
    """Each prompt twice, the second time with TTFT of 100 ms x ratio; the server says that nothing
    was cached."""
    first = [
        prompt(number, f"p{number}", first_ms=100.0, **more)
        for number in range(prompts)
    ]
    return first + [
        prompt(prompts + number, f"p{number}", first_ms=100 * ratio(), **more)
        for number in range(prompts)
    ]


def test_a_cache_that_nobody_reports_shows_in_ttft() -> None:
    found = checked(twice(20, lambda: 0.4))
    assert bad(found) == ["repeated_prompt_ratio"]
    assert found["repeated_prompt_ratio"].value == 0.5
    assert (
        "20 prompts were repeated: 20 got their first token sooner, 60% in the median"
        in found["repeated_prompt_ratio"].text
    )


def test_noise_and_few_prompts_are_no_evidence() -> None:
    draw = random.Random(1)
    assert bad(checked(twice(200, lambda: draw.uniform(0.5, 1.5)))) == []
    assert "repeated_prompt_ratio" not in checked(twice(9, lambda: 0.4))
    few = iter([0.3] * 7 + [1.2] * 4)
    # 7 of 11 are sooner, which chance does in 27 of 100 cases
    found = checked(twice(11, lambda: next(few)))
    assert (
        found["repeated_prompt_ratio"].ok,
        found["repeated_prompt_ratio"].value,
    ) == (True, 0)


def test_a_prompt_sent_500_times_is_one_pair_a_stage() -> None:
    rows = [
        prompt(number, "one", first_ms=100.0 if number == 0 else 10.0)
        for number in range(500)
    ]
    assert "repeated_prompt_ratio" not in checked(rows)
    crowded = twice(20, lambda: 0.4)
    apart = [
        replace(row, stage=int(number >= 20)) for number, row in enumerate(crowded)
    ]
    assert "repeated_prompt_ratio" not in checked(apart)


# ------------------------------------------------------------------ runs on disk


def written(folder: Path, *records: RequestRecord) -> Path:
    writer = RunWriter(folder, manifest())
    writer.append(records)
    writer.finish()
    return folder


def at(wall_s: float, digest: str, number: int = 0, **more: Any) -> RequestRecord:
    return prompt(number, digest, started_wall_ns=round(wall_s * 1e9), **more)


def test_earlier_runs_in_the_folder_are_found_by_hashes_of_prompts(
    tmp_path: Path,
) -> None:
    """The same server under another name of loopback; not another server, not a run that began
    later, not a broken table."""
    here = "http://127.0.0.1:8080"
    written(
        tmp_path / "a",
        at(100, "x", host="http://localhost:8080"),
        at(101, "y", host="http://other:8080"),
    )
    written(tmp_path / "b", at(150, "y", host=here, warmup=True))
    written(tmp_path / "later", at(900, "z", host=here))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "requests.parquet").write_bytes(b"PAR1 nothing of the kind")
    (tmp_path / "note.txt").write_text("no run")
    odd = {
        "prompt_sha256": ["x"],
        "host": [7],
        "endpoint": [None],
        "model": [[1]],
        "started_wall_ns": ["now"],
    }
    for name, columns in (
        ("odd", odd),
        ("few", {"host": ["x"]}),
        (
            "url",
            {**odd, "host": ["http://h:port"], "model": ["m"], "started_wall_ns": [1]},
        ),
    ):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(columns), tmp_path / name / "requests.parquet")
    own = table(
        at(200, "x", 0, host=here),
        at(201, "y", 1, host=here),
        at(202, "z", 2, host=here),
        at(203, "y", 3, host=here, turn=2),
    )
    found = sent_before(tmp_path / "c", own)
    assert (found.count, found.of, sorted(found.runs), found.prompts) == (
        2,
        3,
        ["a", "b"],
        [0, 1],
    )
    # started after run a: its cache holds nothing of it
    assert sent_before(tmp_path / "c", own, {here: 120.0}).runs == ["b"]
    assert sent_before(tmp_path / "c", table(at(200, "new", host=here))) == SentBefore(
        0, 1
    )


def test_only_the_newest_runs_are_looked_at_and_no_more_than_some_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    for number in range(6):
        folder = written(tmp_path / f"run-{number:02}", at(number, f"p{number}"))
        os.utime(folder / "requests.parquet", (number, number))
    own = table(*(at(100, f"p{number}", number) for number in range(6)))
    monkeypatch.setattr("llama_load.analysis.results.earlier_runs.MOST_RUNS", 4)
    assert sent_before(tmp_path / "now", own).count == 4
    monkeypatch.setattr("llama_load.analysis.results.earlier_runs.MOST_BYTES", 100)
    assert sent_before(tmp_path / "now", own).count == 0


def of_run(done: Finished) -> dict[str, Check]:
    run = load_run(done.folder)
    table = PromptTable(run.records, cache_evidence(run.manifest))
    return {check.name: check for check in cache_checks(table, run.manifest.counters)}


def conversations(folder: Path) -> Path:
    """A data set that no other test has sent: 12 conversations of three exchanges."""
    draw = random.Random("prompt cache")

    def words() -> str:
        return " ".join(
            "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in range(12)
        )

    speakers = ("human", "gpt") * 3
    entries = [
        {"conversations": [{"from": speaker, "value": words()} for speaker in speakers]}
        for _ in range(12)
    ]
    path = folder / "data.json"
    path.write_text(json.dumps(entries))
    return path


@pytest.mark.heavy
def test_a_real_server_that_knows_the_prompts(
    llama_server: Server, run_locust: Run, tmp_path: Path
) -> None:
    """With a seed, the second run with the same prompts is caught; without one it is new to the
    server. A run of conversations with a system prompt, which all share, is clean: their later
    turns are meant to be cached. Catches a cache check that only simulated counters satisfy."""
    flags = (
        "--dataset-path",
        str(conversations(tmp_path)),
        "--num-prompts",
        "4",
        "-u",
        "2",
        "--max-tokens",
        "2",
        "--warmup",
        "0",
    )
    seeds = {"a": ("--seed", "0"), "b": ("--seed", "0"), "new": ()}
    found = {
        name: run_locust(llama_server.url, *flags, *seed, folder=tmp_path / name)
        for name, seed in seeds.items()
    }
    cached = ["cached_prompt_ratio"]
    assert {name: bad(of_run(done)) for name, done in found.items()} == {
        "a": [],
        "b": cached,
        "new": [],
    }
    tokens = {
        name: done.records.measured().numbers("prompt_tokens").sum()
        for name, done in found.items()
    }
    assert tokens["new"] == tokens["a"] + 4 * found["new"].manifest["prefix_tokens"]
    assert (
        "prompts are new in this run" in found["new"].err
        and "prompts are new in this run" not in found["a"].err
    )
    assert folder_run(found["new"].folder).prompts is None
    talk = ("--turns", "3", "--system-prompt", "You answer in one short sentence. " * 4)
    done = run_locust(llama_server.url, *flags, *talk, folder=tmp_path / "c")
    assert done.records.measured().numbers("cached_tokens").max() > 60
    assert bad(of_run(done)) == []


def test_a_silent_server_gets_the_same_prompts_in_a_second_run(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """The evidence is kept in the manifest, so that `llama-load report` finds it later, whatever
    became of the first run."""
    server = simulate("--first-token-ms", "5", "--cached-tokens", "-1")
    flags = ("--num-prompts", "6", "-u", "4", "--max-tokens", "2", "--seed", "3")
    first = run_locust(server.url, *flags, folder=tmp_path / "first")
    assert first.manifest["prompts_sent_before"] == {
        "count": 0,
        "of": 6,
        "runs": [],
        "prompts": [],
    }
    second = run_locust(server.url, *flags, folder=tmp_path / "second")
    assert bad(of_run(first)) == []
    assert bad(of_run(second)) == ["repeated_prompt_ratio"]
    assert "(first; prompts 0, 1, 2" in of_run(second)["repeated_prompt_ratio"].text
    assert (
        bad(
            of_run(
                run_locust(
                    server.url, *flags, "--bust-prefix-cache", folder=tmp_path / "third"
                )
            )
        )
        == []
    )


def test_cached_prompts_are_the_cause_that_the_headline_names() -> None:
    """What they did to latencies stands behind them, without a remedy of its own; graver words stay
    first."""
    failed = limited("failure_ratio", 0.5, "failed")
    shorter = limited("short_answer_ratio", 0.5, "shorter")
    changed = limited("changed_ratio", 3.0, "faster", advice="raise --warmup")
    repeated = limited("repeated_prompt_ratio", 0.8, "repeated")
    found = causes_first([failed, shorter, changed, repeated])
    assert [check.text for check in found] == [
        "failed",
        "repeated",
        "shorter",
        "faster",
    ]
    assert found[-1].sentence == "faster"
    assert causes_first([failed, changed]) == [failed, changed]
