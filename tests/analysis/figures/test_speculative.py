"""Speculative decoding: the server's counters, and vLLM's section of the block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.results.results import analyze
from llama_load.run_folder import Run
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.run_folder.observed.speculation import Speculation
from llama_load.servers.counters import parse_counters
from tests.conftest import Finished, embedded_server
from tests.make_records import manifest, record, table
from tests.transcripts import FOLDER


def parse_speculation(text: str) -> Speculation | None:
    found = parse_counters(text)
    return found and found.speculation


def test_rates() -> None:
    """30 drafts of 4 tokens, 60 accepted: half of all, 3 tokens a step; the first place was
    accepted 27 times of 30."""
    found = Speculation(120, 60, 30, [27, 18, 9, 6])
    assert (found.acceptance_rate, found.acceptance_length) == (0.5, 3.0)
    assert found.per_position_rates == [0.9, 0.6, 0.3, 0.2]
    assert Speculation(0, 0, 0).acceptance_rate is None
    # 90 tokens, 60 of them drafted: 30 steps.
    assert Speculation(120, 60, tokens=90).acceptance_length == 3.0
    assert Speculation(120, 60).acceptance_length is None


def test_counters_are_subtracted_and_added() -> None:
    before, after = Speculation(10, 5, 2, [2]), Speculation(30, 20, 7, [6, 4])
    assert after.since(before) == Speculation(20, 15, 5, [4, 4])
    assert after.plus(before) == Speculation(40, 25, 9, [8, 4])
    assert after.plus(Speculation(1, 1)).drafts is None


def test_counters_are_read_from_vllms_metrics() -> None:
    text = """
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 30.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 30.0
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 45.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 28.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 17.0
"""
    assert parse_speculation(text) == Speculation(90, 45, 30, [28, 17])


def test_servers_without_speculation_and_pages_that_are_no_metrics() -> None:
    assert parse_speculation((FOLDER / "vllm_metrics.txt").read_text()) is None
    assert parse_speculation((FOLDER / "llama_metrics.txt").read_text()) == Speculation(
        0, 0, 0
    )
    for page in ("", "<html>not found</html>", "{}", "a b c d\n", "x{y"):
        assert parse_speculation(page) is None


def test_the_section_has_vllms_layout(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        manifest(counters=ServerCounters(Speculation(120, 60, 30, [27, 18, 0]))),
        table(record()),
        recovered=False,
    )
    text = block(analyze(run))
    section = (
        text.partition("Speculative Decoding")[2].partition("=====")[0].splitlines()[1:]
    )
    assert section == [
        "Acceptance rate (%):                     50.00     ",
        "Acceptance length:                       3.00      ",
        "Drafts:                                  30        ",
        "Draft tokens:                            120       ",
        "Accepted tokens:                         60        ",
        "Per-position acceptance (%):",
        "  Position 0:                            90.00     ",
        "  Position 1:                            60.00     ",
    ]


def test_without_counters_what_llama_server_says_in_its_answers_is_summed(
    tmp_path: Path,
) -> None:
    rows = table(
        record(0, draft_tokens=10, draft_accepted=4),
        record(1, draft_tokens=6, draft_accepted=4),
        record(2),
    )
    text = block(analyze(Run(tmp_path, manifest(), rows, recovered=False)))
    assert "Acceptance rate (%):                     50.00" in text
    assert "Drafts:" not in text


@pytest.mark.heavy
def test_speculation_of_a_stage_covers_only_its_requests(
    run_locust: Callable[..., Finished], tiny_model: Path, tmp_path: Path
) -> None:
    """llama-server drafts from what it has read. Counters are read around every measurement: what
    llama-server drafted in the warm-ups is in no stage, and not in the sum. Catches drafts of
    llama-server's warm-ups that are counted in a stage."""
    arguments = (
        "--stages",
        "1:2,2:3",
        "--warmup",
        "2",
        "--max-tokens",
        "300",
        "--ignore-eos",
        "--temperature",
        "0",
    )
    flags = ("--spec-type", "ngram_map_k")
    with embedded_server(tiny_model, tmp_path / "server", *flags) as drafting:
        done = run_locust(drafting.url, *arguments)
    assert done.code == 0, done.err
    assert "Speculative Decoding" in done.out
    measured, drafted = done.records.measured(), []
    for stage, name in enumerate(("1", "2")):
        found = measured.where(measured.equals("stage", stage)).numbers("draft_tokens")
        drafted.append(int(found[found == found].sum()))
        counters = done.manifest["stages"][stage]["counters"]
        assert counters["speculation"]["draft_tokens"] == drafted[-1] > 0
        assert (
            done.summary["llama_load"]["by_stage"][name]["spec_decode_draft_tokens"]
            == drafted[-1]
        )
    assert (
        done.summary["spec_decode_draft_tokens"]
        == done.manifest["counters"]["speculation"]["draft_tokens"]
        == sum(drafted)
    )
    warmup = done.records.where(done.records.equals("warmup", True)).numbers(
        "draft_tokens"
    )
    assert int(warmup[warmup == warmup].sum()) > 0


def test_counters_and_dropped_arrivals_belong_to_no_part_of_a_run(
    tmp_path: Path,
) -> None:
    """Two hosts: what the servers counted together is neither's, and an arrival that was never sent
    has no host."""
    rows = table(record(0), record(1, host="http://other"))
    counted = ServerCounters(Speculation(120, 60, 30, [27, 18, 0]))
    results = analyze(
        Run(
            tmp_path,
            manifest(counters=counted, dropped=5, fail_if=["dropped{host=http://h}>0"]),
            rows,
            recovered=False,
        )
    )
    summary = result_json(results)
    assert (summary["dropped"], summary["spec_decode_draft_tokens"]) == (5, 120)
    for host in summary["llama_load"]["by_host"].values():
        assert host["dropped"] is None
        assert "spec_decode_draft_tokens" not in host
    # the only one
    assert (
        summary["llama_load"]["by_workload"]["sharegpt"]["spec_decode_draft_tokens"]
        == 120
    )
    assert results.thresholds[0].failed


def test_a_restarted_server_has_no_speculation_figures() -> None:
    assert Speculation(5, 1, 1, [1]).since(Speculation(55, 41, 21, [20])) is None


def test_counts_that_cannot_be_are_passed_over() -> None:
    lines = [
        "spec_decode_num_draft_tokens_total 4",
        "spec_decode_num_accepted_tokens_total +Inf",
        "spec_decode_num_drafts_total 1e400",
    ]
    page = "".join(f"vllm:{line}\n" for line in lines)
    page += (
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1000000000"} 1\n'
    )
    found = parse_speculation(page)
    assert found is not None
    assert (
        found.draft_tokens,
        found.accepted_tokens,
        found.drafts,
        len(found.per_position),
    ) == (4, 0, None, 256)
