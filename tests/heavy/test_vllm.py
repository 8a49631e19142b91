"""Whole runs against a real vLLM, held against what vLLM and its own bench say."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from llama_load.analysis.figures.prompt_cache import PromptTable, cache_checks
from llama_load.analysis.results.gather_evidence import cache_evidence
from llama_load.ground.bundled import bundled
from llama_load.loadgen.options.vllm_options import EARLIER, OPTIONS
from llama_load.run_folder import load_run
from llama_load.run_folder.observed.window import window_of
from llama_load.servers.probe import Probe, ProbeSettings
from llama_load.servers.serving.launch import Server
from tests.conftest import REPOSITORY, Finished
from tests.heavy.test_lab import requests_in

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.mark.real
def test_a_run_is_whole_and_counted_by_vllm(
    run_locust: Callable[..., Finished], vllm: Server
) -> None:
    """Recognised, connections used again, tokens by usage, and prompt tokens just as planned with
    the chat template. Catches usage, templates and connections of vLLM as it is installed."""
    done = run_locust(
        vllm.url,
        "--num-prompts",
        "32",
        "-u",
        "8",
        "--max-tokens",
        "24",
        "--ignore-eos",
        "--fail-if",
        "failed>0",
    )
    assert done.code == 0, done.err
    (target,) = done.manifest["targets"]
    assert (target["backend"], target["model"], target["ctx_per_slot"]) == (
        "vllm",
        "tiny",
        4096,
    )
    assert target["build"].startswith("0.")
    records = done.records.measured()
    assert (records.numbers("output_tokens") == 24).all()
    assert records.values_of("token_source") == ["usage"]
    assert records.values_of("answered_by") == ["uvicorn"]
    assert records.equals("connection_reused", True).sum() >= 32 - 8
    assert done.summary["llama_load"]["reopened_connections"] == 0
    assert "requests reused an open connection" in " ".join(done.out.split())


# Prints the options of the benchmark's parser, with how many values they take.
OPTIONS_OF_BENCH = """
import json
from vllm.benchmarks.serve import add_cli_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = FlexibleArgumentParser(add_help=False)
add_cli_args(parser)
found = {}
for action in parser._actions:
    for name in action.option_strings:
        several = "*" if action.nargs in ("*", "+") else "1"
        found[name] = "" if action.nargs == 0 else several
print(json.dumps(found))
"""


@pytest.mark.real
def test_each_option_of_its_benchmark_has_a_row(
    vllm_python: Path, vllm_env: dict[str, str]
) -> None:
    """Catches options that the installed vLLM has and the table of the newest one lacks, and those
    that take another number of values."""
    done = subprocess.run(
        [str(vllm_python), "-c", OPTIONS_OF_BENCH],
        env=vllm_env,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    rows = {}
    for name in found:
        row = OPTIONS.get(EARLIER.get(name, name))
        rows[name] = row and row.takes
    assert len(found) > 80
    assert found == rows


def test_templated_lengths_are_exact(vllm: Server) -> None:
    """Catches a template that adds tokens to a planned length."""
    probe = Probe(ProbeSettings(vllm.url))
    target = probe.ask()
    counter = probe.counter()
    assert counter is not None
    for text in ("hello", "写一首关于春天的短诗 😀", "x = [1, 2, 3]\n" * 20):
        messages = [{"role": "user", "content": text}]
        body = {"model": "tiny", "messages": messages, "max_tokens": 1}
        usage = requests.post(
            f"{vllm.url}/v1/chat/completions", json=body, timeout=30
        ).json()["usage"]
        assert (
            counter.count([text])[0] + target.template_tokens == usage["prompt_tokens"]
        )


@pytest.mark.real
def test_the_block_has_the_rows_of_vllm_bench_serve_and_agrees_with_it(
    run_locust: Callable[..., Finished],
    vllm: Server,
    vllm_python: Path,
    hf_model: Path,
    tmp_path: Path,
) -> None:
    """Same server, same 24 ShareGPT prompts, same seed: the same rows in the same order, the same
    number of generated tokens. Catches a row or definition of vLLM's own bench that changed."""
    bench = [
        *(
            str(vllm_python.parent / "vllm"),
            "bench",
            "serve",
            "--base-url",
            vllm.url,
            "--model",
            "tiny",
        ),
        *(
            "--tokenizer",
            str(hf_model),
            "--backend",
            "openai-chat",
            "--endpoint",
            "/v1/chat/completions",
            "--seed",
            "7",
        ),
        *(
            "--dataset-name",
            "sharegpt",
            "--dataset-path",
            str(bundled("datasets/sharegpt_sample.json")),
        ),
        *(
            "--num-prompts",
            "24",
            "--max-concurrency",
            "4",
            "--ignore-eos",
            "--sharegpt-output-len",
            "16",
        ),
        *(
            "--save-result",
            "--result-dir",
            str(tmp_path),
            "--result-filename",
            "bench.json",
        ),
    ]
    theirs = subprocess.run(
        bench, capture_output=True, text=True, timeout=300, check=True
    ).stdout
    done = run_locust(
        *(
            vllm.url,
            "--num-prompts",
            "24",
            "-u",
            "4",
            "--ignore-eos",
            "--sharegpt-output-len",
            "16",
            "--seed",
            "7",
        ),
        *("--tokenizer", str(hf_model), "--bust-prefix-cache"),
    )
    assert done.code == 0, done.err
    rows = [re.split(r" {2,}", line)[0] for line in _block(theirs)]
    assert [re.split(r" {2,}", line)[0] for line in _block(done.out)] == rows
    result = json.loads((tmp_path / "bench.json").read_text())
    assert (
        done.summary["total_output_tokens"] == result["total_output_tokens"] == 24 * 16
    )
    assert done.summary["completed"] == result["completed"] == 24
    missing = {key for key in result if key not in done.summary}
    assert missing <= {"rtfx", "latencies", "queue_times"}, (
        missing
    )  # of audio, and lists


def _block(text: str) -> list[str]:
    lines = text.splitlines()
    first = next(
        index for index, line in enumerate(lines) if "Serving Benchmark Result" in line
    )
    last = next(
        index for index, line in enumerate(lines) if index > first and line == "=" * 50
    )
    return lines[first : last + 1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--model", "gpt-4"), "does not serve a model 'gpt-4'; it has tiny"),
        (("--endpoint", "embeddings"), "--endpoint must be one of"),
    ],
)
def test_wrong_use_is_one_sentence(
    run_locust: Callable[..., Finished],
    vllm: Server,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    """Catches a refusal as vLLM words it."""
    done = run_locust(vllm.url, "--num-prompts", "2", *arguments)
    assert done.code == 2
    assert sentence in done.err


@pytest.mark.real
def test_openais_responses_and_anthropics_messages(
    run_locust: Callable[..., Finished], vllm: Server, tmp_path: Path
) -> None:
    """Both stream and have as many prompt tokens as the same prompts in chat: the template is in
    them. Catches events of two more APIs as vLLM streams them."""
    flags = (
        "--num-prompts",
        "12",
        "-u",
        "4",
        "--max-tokens",
        "16",
        "--extra-body",
        '{"ignore_eos": true}',
        "--fail-if",
        "failed>0",
        "--seed",
        "7",
    )
    prompt_tokens = {}
    for endpoint in ("chat", "responses", "messages"):
        done = run_locust(
            vllm.url, "--endpoint", endpoint, *flags, folder=tmp_path / endpoint
        )
        assert done.code == 0, done.err
        records = done.records.measured()
        assert records.values_of("endpoint") == [endpoint]
        assert (
            records.values_of("prompt_token_source"),
            records.values_of("token_source"),
        ) == (["usage"], ["usage"])
        assert records.numbers("output_tokens").tolist() == [16.0] * 12
        assert (records.numbers("token_events") > 1).all()
        assert (records.numbers("ttft_ms") > 0).all()
        prompt_tokens[endpoint] = dict(
            zip(
                records.strings("prompt_index"),
                records.numbers("prompt_tokens"),
                strict=True,
            )
        )
    assert (
        prompt_tokens["responses"] == prompt_tokens["messages"] == prompt_tokens["chat"]
    )


@pytest.mark.parametrize("file", ["embeddings.py", "rerank.py"])
def test_embeddings_and_reranking(
    run_locust: Callable[..., Finished], embedding_vllm: Server, file: str
) -> None:
    """Four texts, or a query with four documents: counted by usage, and believed. Catches answers
    of vLLM's pooling runner."""
    flags = (
        "--num-prompts",
        "8",
        "-u",
        "2",
        "--batch-size",
        "4",
        "--fail-if",
        "failed>0",
    )
    done = run_locust(
        embedding_vllm.url, *flags, locustfile=REPOSITORY / "locustfiles" / file
    )
    assert done.code == 0, done.err
    records = done.records.measured()
    assert records.numbers("inputs").tolist() == [4.0] * 8
    assert (
        records.values_of("prompt_token_source"),
        records.values_of("token_source"),
    ) == (["usage"], [])


def test_tokens_that_come_five_at_a_time(
    run_locust: Callable[..., Finished], start_vllm: Callable[..., Server]
) -> None:
    """--stream-interval 5: usage counts all, and with every event: it places the tokens, the first
    alone and then about five at a time. TPOT divides by tokens while ITL counts events. Speculation
    is reported too. Catches usage with every event, placed wrongly, as vLLM sends it."""
    speculative = json.dumps(
        {
            "method": "ngram",
            "num_speculative_tokens": 3,
            "prompt_lookup_max": 3,
            "prompt_lookup_min": 1,
        }
    )
    per_request = ("--per-request-spec-decode-metrics", "summary")
    server = start_vllm(
        "--stream-interval", "5", "--speculative-config", speculative, *per_request
    )
    done = run_locust(
        server.url,
        "--num-prompts",
        "8",
        "-u",
        "2",
        "--max-tokens",
        "61",
        "--ignore-eos",
        "--temperature",
        "0",
        "--seed",
        "7",
    )
    server.stop()
    assert done.code == 0, done.err
    records = done.records.measured()
    assert (records.numbers("output_tokens") == 61).all()
    assert (records.numbers("token_events") < 30).all()
    for placed in records.table["event_tokens"].to_pylist():
        assert sum(placed) == 61
        assert max(placed) >= 5
    assert records.table[
        "event_tokens"
    ].combine_chunks().value_lengths().to_pylist() == list(
        records.numbers("token_events")
    )
    assert (records.numbers("first_event_tokens") <= 5 + 3).all(), (
        "an interval, and the drafts that were accepted with its last"
    )
    counted = done.manifest["counters"]["speculation"]
    assert counted["drafts"] > 0
    assert records.numbers("draft_tokens").sum() == counted["draft_tokens"]
    assert records.numbers("draft_accepted").sum() == counted["accepted_tokens"]
    assert records.table["count_doubt"].null_count == len(records)
    assert f"{'Drafts:':<40} {counted['drafts']}" in done.out
    assert "Per-position acceptance (%):" in done.out


def test_a_second_run_with_the_same_seed_is_seen_in_vllms_counters(
    run_locust: Callable[..., Finished],
    start_vllm: Callable[..., Server],
    tmp_path: Path,
) -> None:
    """vLLM's answers report no cached tokens, its prefix_cache_hits do; a random prefix keeps the
    cache out of it. Catches counters of vLLM's prefix cache by another name."""
    server = start_vllm()
    flags = (
        "--num-prompts",
        "24",
        "-u",
        "4",
        "--max-tokens",
        "8",
        "--ignore-eos",
        "--seed",
        "77",
    )
    found = []
    for name, more in (
        ("first", ()),
        ("second", ()),
        ("busted", ("--bust-prefix-cache",)),
    ):
        done = run_locust(server.url, *flags, *more, folder=tmp_path / name)
        assert done.code == 0, done.err
        run = load_run(done.folder)
        assert run.records.table["cached_tokens"].null_count == len(run.records)
        counters = run.manifest.counters
        assert counters is not None
        assert counters.requests == 24
        assert (
            counters.prompt_tokens
            == run.records.measured().numbers("prompt_tokens").sum()
        )
        pairs = {
            pair["name"]: pair for pair in done.summary["llama_load"]["client_server"]
        }
        assert (
            pairs["requests"]["difference"] == pairs["output tokens"]["difference"] == 0
        )
        assert 0 < pairs["E2EL (ms)"]["server"] <= pairs["E2EL (ms)"]["client"] * 1.05
        others = [
            check
            for check in done.summary["llama_load"]["verdict"]["checks"]
            if check["name"] == "other_client_ratio"
        ]
        assert [check["value"] for check in others] == [0]
        checks = cache_checks(
            PromptTable(run.records, cache_evidence(run.manifest)), counters
        )
        found.append([check.name for check in checks if not check.ok])
    server.stop()
    assert found == [[], ["server_cache_hit_ratio"], []]


def test_a_vllm_that_is_killed_mid_stream(
    run_locust: Callable[..., Finished], start_vllm: Callable[..., Server]
) -> None:
    """The run ends, says why, and its report is whole. Catches a run that waits for a vLLM whose
    engine is gone."""
    import os
    import signal
    import threading

    server = start_vllm()
    killer = threading.Timer(8, os.kill, (server.pid, signal.SIGKILL))
    killer.start()
    done = run_locust(
        server.url,
        "--num-prompts",
        "400",
        "-u",
        "4",
        "--max-tokens",
        "400",
        "--ignore-eos",
        "-t",
        "15s",
    )
    killer.cancel()
    assert done.code == 3, done.err
    assert "the server's process ended" in done.out
    kinds = set(done.records.measured().failed().strings("status"))
    assert kinds and kinds <= {"cut_off", "reset", "connect_refused", "error_event"}


def test_telemetry_has_vllms_counters_of_the_measured_requests(
    run_locust: Callable[..., Finished], vllm: Server
) -> None:
    """16 requests of 24 tokens, without the 4 of the warm-up; its processes are found by its port.
    Catches histograms of vLLM that changed their buckets or names."""
    flags = (
        "--num-prompts",
        "16",
        "--warmup",
        "4",
        "-u",
        "4",
        "--max-tokens",
        "24",
        "--ignore-eos",
        "--telemetry-interval",
        "0.5",
    )
    done = run_locust(vllm.url, *flags)
    run = load_run(done.folder)
    telemetry, page = run.telemetry, f"{vllm.url}/metrics"
    window = window_of(run.records.measured())

    def grown(metric: str, **labels: str) -> float | None:
        found = telemetry.find(metric, page, **labels)
        return sum(each.increase(window, around=True) or 0.0 for each in found)

    assert grown("vllm:generation_tokens_total") == 16 * 24
    assert grown("vllm:e2e_request_latency_seconds_count") == 16
    assert grown("vllm:time_to_first_token_seconds_bucket", le="+Inf") == 16
    told = done.summary["llama_load"]["telemetry"]
    assert told["server_memory_peak_mib"] > 200 and told["server_cpu_cores"] > 0
    assert telemetry.find("server_processes")[0].values[-1] >= 2, (
        "the API server and its engine"
    )
    assert not any(
        "llama_load" in each.metric or "python_" in each.metric
        for each in telemetry.series
    )


def test_watching_vllm_changes_nothing(
    run_locust: Callable[..., Finished], vllm: Server, tmp_path: Path
) -> None:
    """A run with telemetry each 0.1 s and one without: the same requests in the server's log but
    for the pages that telemetry reads, and the same counts. Catches requests of telemetry that vLLM
    counts as load."""

    def seen_with(interval_s: str) -> tuple[Counter[tuple[str, str]], list[int]]:
        before = len(vllm.log.read_text())
        load = ("-u", "2", "--num-prompts", "16", "--max-tokens", "24", "--seed", "7")
        flags = (*load, "--telemetry-interval", interval_s)
        done = run_locust(vllm.url, *flags, folder=tmp_path / interval_s)
        assert done.code == 0, done.err
        counts = ("completed", "failed", "total_input_tokens", "total_output_tokens")
        return (
            requests_in(vllm.log.read_text()[before:]),
            [done.summary[key] for key in counts],
        )

    unwatched, counts = seen_with("0")
    watched, watched_counts = seen_with("0.1")
    assert watched_counts == counts
    assert watched["GET", "/metrics"] > unwatched["GET", "/metrics"]
    for logged in (unwatched, watched):
        del logged["GET", "/metrics"]
    assert watched == unwatched
