"""Whole runs, headless, as a user starts them, against the real llama-server (the simulated one for
faults)."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import requests

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.loadgen.users.user import pause_s
from llama_load.run_folder import load_run
from llama_load.run_folder.telemetry_file import TELEMETRY
from llama_load.servers import probe
from llama_load.servers.counting import LocalCounter
from llama_load.servers.serving.launch import Server
from tests.conftest import (
    PORTABLE,
    Finished,
    Simulated,
    embedded_server,
    environment,
    locust_command,
    run_program,
    start_program,
)
from tests.scripted_server import GOOD_STREAM, ScriptedServer
from tests.swarms import wait_until
from tests.waiting import until

Run = Callable[..., Finished]


@pytest.mark.portable
def test_a_full_run_is_consistent_in_block_json_and_parquet(
    llama_server: Server, run_locust: Run
) -> None:
    """Block, summary.json and requests.parquet tell the same story, and the server's own counts
    agree."""
    done = run_locust(
        *(
            llama_server.url,
            "-u",
            "8",
            "--num-prompts",
            "24",
            "--warmup",
            "3",
            "--label",
            "测试",
            "--max-tokens",
            "12",
        ),
        *("--metric-percentiles", "90,99"),
    )
    assert done.code == 0, done.err
    rows, summary = done.records, done.summary
    measured = rows.measured()
    assert (len(rows), len(measured), len(measured.ok())) == (27, 24, 24)
    assert sorted(measured.numbers("prompt_index")) == list(range(24))
    assert len(set(measured.strings("request_id"))) == 24
    assert (
        summary["completed"],
        summary["failed"],
        summary["num_prompts"],
        summary["max_concurrency"],
    ) == (24, 0, 24, 8)
    assert summary["label"] == "测试"
    assert (
        summary["total_output_tokens"]
        == 24 * 12
        == int(measured.numbers("output_tokens").sum())
    )
    # vLLM's TTFT has the client's own delay
    delay_ms = np.nan_to_num(measured.numbers("own_delay_ms"))
    assert summary["mean_ttft_ms"] == pytest.approx(
        np.mean(measured.numbers("ttft_ms") + delay_ms)
    )
    assert summary["p90_tpot_ms"] == pytest.approx(
        np.percentile(measured.numbers("tpot_ms"), 90)
    )
    assert summary["p99_tpot_ms"] == pytest.approx(
        np.percentile(measured.numbers("tpot_ms"), 99)
    )
    assert (
        summary["count_tpot"] == 24
        and "p99_tpot_ms" in summary["llama_load"]["uncertain"]
    )
    assert summary["p99_itl_ms"] == pytest.approx(
        np.percentile(measured.lists("itl_ms")[1], 99)
    )
    assert (
        done.out.count(f"{np.percentile(measured.numbers('tpot_ms'), 99):<10.2f} *")
        == 1
    )
    assert "* p99 needs 100 values; with fewer it is close to their maximum" in done.out
    assert summary["median_itl_ms"] == pytest.approx(
        np.median(measured.lists("itl_ms")[1])
    )
    assert summary["llama_load"]["peak_in_flight"] == 8
    mean_ttft_ms = np.mean(measured.numbers("ttft_ms"))
    assert f"{'Mean TTFT (ms):':<40} {mean_ttft_ms:<10.2f}" in done.out
    assert (done.folder / "summary.txt").read_text(encoding="utf-8") in done.out
    assert measured.values_of("clock_source") == ["user" if PORTABLE else "kernel"]
    assert measured.values_of("token_source") == ["usage"]
    assert measured.values_of("http_status") == [200]
    # What the server says of itself cannot take longer than what the client saw of the whole
    # request.
    assert (
        measured.numbers("server_prompt_ms") + measured.numbers("server_predict_ms")
        <= measured.numbers("e2el_ms") + 5
    ).all()
    assert {prompt["name"] for prompt in done.manifest["preflight"]} >= {
        "server",
        "model",
        "slots",
        "context",
        "prompts",
        "too long",
    }
    assert done.manifest["targets"][0]["slots"] == 4
    assert done.manifest["backend"] == "llama-server"
    # without telemetry there is no file and no section
    assert not (done.folder / TELEMETRY).exists()
    assert "Telemetry" not in done.out
    assert summary["llama_load"]["telemetry"]["host_cpu_cores"] is None
    # the warm-up is over before the measurement, and has its own prompts
    warmup = rows.where(rows.equals("warmup", True))
    assert (
        warmup.instants("ended_mono_ns").max()
        <= measured.instants("started_mono_ns").min()
    )
    assert not set(warmup.strings("prompt_sha256")) & set(
        measured.strings("prompt_sha256")
    )


def test_no_text_and_no_key_goes_to_disk(
    tiny_model: Path, tmp_path: Path, run_locust: Run
) -> None:
    """A server that requires a key; the key comes from the environment, a header from the command
    line."""
    with embedded_server(tiny_model, tmp_path, api_key="s3cret-key") as server:
        arguments = (
            "--num-prompts",
            "2",
            "--max-tokens",
            "2",
            "--header",
            "X-Token: t0ken-value",
        )
        done = run_locust(server.url, *arguments, LLAMA_LOAD_API_KEY="s3cret-key")
        assert done.code == 0, done.err
        assert done.records.values_of("prompt_text") == []
        assert all(
            len(digest) == 64 for digest in done.records.strings("prompt_sha256")
        )
        words = bundled("datasets/sharegpt_sample.json").read_text(encoding="utf-8")
        everything = (
            b"".join(
                path.read_bytes() for path in done.folder.rglob("*") if path.is_file()
            )
            + str(done.records.table.to_pylist()).encode()
        )
        asked = json.loads(words)[1:]
        assert not any(
            entry["conversations"][0]["value"][:40].encode() in everything
            for entry in asked
        )
        assert b"s3cret-key" not in everything
        assert b"t0ken-value" not in everything
        refused = run_locust(server.url, *arguments, folder=tmp_path / "refused")
        assert refused.code == 2
        assert "wants a key, and none was given" in refused.err
        wrong = run_locust(
            server.url, *arguments, "--api-key", "wrong", folder=tmp_path / "wrong"
        )
        assert (wrong.code, "refuses the key" in wrong.err) == (2, True)
        texts = run_locust(
            server.url,
            *arguments,
            "--save-texts",
            folder=tmp_path / "texts",
            LLAMA_LOAD_API_KEY="s3cret-key",
        )
        assert all(texts.records.measured().strings("prompt_text"))


def test_chinese_text_and_emoji_go_there_and_back(
    llama_server: Server, run_locust: Run, tmp_path: Path
) -> None:
    """The server saw the prompt unharmed: its token count is that of its own /tokenize."""
    prompt = "请用三句话介绍你自己，并加一个表情 😀。" * 3
    entry = {
        "id": "中",
        "conversations": [
            {"from": "human", "value": prompt},
            {"from": "gpt", "value": "好的，没有问题。" * 4},
        ],
    }
    data = tmp_path / "数据.json"
    data.write_text(json.dumps([entry], ensure_ascii=False), encoding="utf-8")
    done = run_locust(
        llama_server.url,
        "--num-prompts",
        "1",
        "--dataset-path",
        str(data),
        "--max-tokens",
        "16",
        "--save-texts",
        "--seed",
        "1",
    )
    assert done.code == 0, done.err
    row = done.records.measured()
    assert row.strings("prompt_text") == [prompt]
    assert row.strings("output_chars")[0] == len(row.strings("output_text")[0]) > 0
    template = requests.post(
        f"{llama_server.url}/apply-template",
        json={"messages": [{"role": "user", "content": prompt}]},
        timeout=30,
    )
    tokens = requests.post(
        f"{llama_server.url}/tokenize",
        json={"content": template.json()["prompt"], "add_special": True},
        timeout=30,
    )
    assert abs(row.numbers("prompt_tokens")[0] - len(tokens.json()["tokens"])) <= 1


def test_the_completions_endpoint_of_the_real_server(
    llama_server: Server, run_locust: Run
) -> None:
    flags = ("--endpoint", "completions", "--cache-prompt", "off")
    done = run_locust(
        llama_server.url, "-u", "2", "--num-prompts", "6", "--max-tokens", "12", *flags
    )
    assert done.code == 0, done.err
    assert done.summary["endpoint_type"] == "openai"
    assert done.summary["llama_load"]["total_cached_tokens"] == 0
    assert done.records.measured().numbers("output_tokens").tolist() == [12] * 6


def test_prompts_are_sent_as_token_ids(run_locust: Run, tiny_model: Path) -> None:
    """Those of the given tokenizer, as a scripted server got them."""
    flags = ["--backend", "llama-server", "--endpoint", "completions", "--save-texts"]
    flags += ["--prompt-token-ids", "--tokenizer", str(tiny_model.parent)]
    with ScriptedServer(GOOD_STREAM) as server:
        done = run_locust(
            server.url, "--num-prompts", "1", "--warmup", "0", "--seed", "44", *flags
        )
    asked = next(
        request
        for request in server.requests
        if request.startswith(b"POST /v1/completions")
    )
    sent = json.loads(asked.partition(b"\r\n\r\n")[2])["prompt"]
    (text,) = done.records.strings("prompt_text")
    assert sent == LocalCounter(tiny_model.parent).ids(text)


def test_every_flag_about_the_request_is_in_the_request(
    run_locust: Run, tiny_model: Path
) -> None:
    """As a scripted server got it. (It answers everything with the same stream, so --backend and
    --tokenizer are given.)"""
    flags = [
        "--temperature",
        "0.5",
        "--ignore-eos",
        "--cache-prompt",
        "off",
        "--extra-body",
        '{"top_k": 1, "seed": 7}',
    ]
    flags += [
        "--max-tokens",
        "9",
        "--model",
        "m",
        "--api-key",
        "k",
        "--header",
        "X-A: b",
        "--bust-prefix-cache",
    ]
    with ScriptedServer(GOOD_STREAM) as server:
        known = ("--backend", "llama-server", "--tokenizer", str(tiny_model.parent))
        done = run_locust(
            server.url, "--num-prompts", "1", "--warmup", "0", *known, *flags
        )
    assert done.code == 0, done.err
    # the preflight asks which APIs there are, without a prompt
    asked = next(request for request in server.requests if b'"messages"' in request)
    head, _, body = asked.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/chat/completions HTTP/1.1"
    assert {
        "Authorization: Bearer k",
        "X-A: b",
        "Content-Type: application/json",
    } <= set(lines)
    sent = json.loads(body)
    prompt = sent.pop("messages")[0]["content"]
    assert len(prompt.split(" ")[0]) == 24
    assert sent == {
        "model": "m", "max_tokens": 9, "temperature": 0.5, "ignore_eos": True, "cache_prompt": False, "top_k": 1, "seed": 7,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_a_repeated_prompt_is_reported_and_a_random_prefix_helps(
    llama_server: Server, run_locust: Run, tmp_path: Path
) -> None:
    """One prompt, 4 times: the cache answers, so the run is NOT COMPARABLE; --bust-prefix-cache
    makes it comparable."""
    value = "Tell me about the history of the bicycle and of those who rode it. " * 6
    entry = {
        "conversations": [
            {"from": "human", "value": value},
            {"from": "gpt", "value": "Once upon a time."},
        ]
    }
    (tmp_path / "one.json").write_text(json.dumps([entry]))
    flags = (
        "-u",
        "2",
        "--num-prompts",
        "4",
        "--max-tokens",
        "2",
        "--dataset-path",
        str(tmp_path / "one.json"),
    )
    cached = run_locust(llama_server.url, *flags, folder=tmp_path / "a").summary[
        "llama_load"
    ]["verdict"]
    assert cached["word"] != "VALID"
    assert not next(
        check["ok"]
        for check in cached["checks"]
        if check["name"] == "cached_prompt_ratio"
    )
    busted = run_locust(
        llama_server.url, *flags, "--bust-prefix-cache", folder=tmp_path / "b"
    ).summary["llama_load"]["verdict"]
    assert next(
        check["ok"]
        for check in busted["checks"]
        if check["name"] == "cached_prompt_ratio"
    )
    meant = run_locust(
        llama_server.url, *flags, "--cache-prompt", "on", folder=tmp_path / "c"
    ).summary["llama_load"]["verdict"]
    assert next(
        check["ok"]
        for check in meant["checks"]
        if check["name"] == "cached_prompt_ratio"
    )


def test_prompts_longer_than_a_slot_are_replaced_or_kept_and_fail(
    tiny_model: Path, tmp_path: Path, run_locust: Run
) -> None:
    """4 slots of 512 tokens: what failed in the reference tables. Kept, they fail as
    context_exceeded, and the exit code is 1."""
    with embedded_server(tiny_model, tmp_path, "-c", "2048") as server:
        flags = ("-u", "4", "--num-prompts", "16", "--sharegpt-output-len", "2")
        replaced = run_locust(server.url, *flags, folder=tmp_path / "replaced")
        assert replaced.code == 0, replaced.err
        assert replaced.summary["llama_load"]["prompts"]["replaced"] > 0
        assert "replaced by others" in replaced.err
        kept = run_locust(
            server.url, *flags, "--keep-long-prompts", folder=tmp_path / "kept"
        )
        assert kept.code == 1
        assert kept.summary["completed"] + kept.summary["failed"] == 16
        assert kept.summary["llama_load"]["failures"][0]["kind"] == "context_exceeded"
        checks = {
            check["name"]: check["ok"]
            for check in kept.summary["llama_load"]["verdict"]["checks"]
        }
        assert not checks["failure_ratio"]
        assert "Error 0:" in kept.out
        none = run_locust(server.url, *flags[:-1], "600", folder=tmp_path / "none")
        assert none.code == 2
        assert "longer than a slot" in none.err


def test_a_server_that_is_killed_mid_stream_leaves_a_complete_report(
    tiny_model: Path, tmp_path: Path
) -> None:
    """kill -9 with 4 streams open: those are cut off or reset, the run ends soon and names the
    reason, exit code 3."""
    with embedded_server(tiny_model, tmp_path) as server:
        folder = tmp_path / "run"
        command = locust_command(
            server.url,
            folder,
            "-u",
            "4",
            "--num-prompts",
            "16",
            "--max-tokens",
            "3000",
            "--warmup",
            "0",
        )
        process = start_program(command[2:], tmp_path, environment())
        slots = f"{server.url}/slots"
        wait_until(
            lambda: (
                sum(
                    slot["is_processing"]
                    for slot in requests.get(slots, timeout=30).json()
                )
                == 4
            )
        )
        time.sleep(0.3)  # in the middle of the answers
        os.kill(server.pid, signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    done = Finished(process.wait(), out, err, folder)
    assert done.code == 3, done.err
    assert 4 <= len(done.records.measured()) <= 16
    kinds = {failure["kind"] for failure in done.summary["llama_load"]["failures"]}
    assert kinds & {"cut_off", "reset"}
    assert "the server's process ended" in done.out


def interrupted(simulated: Simulated, folder: Path, how: signal.Signals) -> Finished:
    """A run of four users whose requests take 2.1 s; the signal comes when the warm-up and the
    first four are on record and the next four are under way."""
    command = locust_command(
        simulated.url, folder, "-u", "4", "--num-prompts", "400", "--max-tokens", "100"
    )
    process = start_program(command[2:], folder.parent, environment())
    until(simulated.has_answered(5))  # asked first: to read a folder takes longer
    until(lambda: len(load_run(folder).records) >= 5)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    return Finished(process.wait(), out, err, folder)


@pytest.mark.heavy
def test_ctrl_c_before_anything_was_sent_is_no_success(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Catches exit code 0 of a run that was interrupted before it began."""
    command = locust_command(
        simulate().url, tmp_path / "run", "-u", "4", "--num-prompts", "4000"
    )
    process = start_program(command[2:], tmp_path, environment())
    wait_until((tmp_path / "run" / "run.json").exists)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.wait() == 3, err


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.heavy)]
)
def test_ctrl_c_ends_in_a_report_of_what_was_measured(
    simulate: Callable[..., Simulated], tmp_path: Path, how: signal.Signals
) -> None:
    """What was in flight is cancelled, the word is INCOMPLETE, the exit code 3."""
    done = interrupted(simulate(), tmp_path / "run", how)
    assert done.code == 3, done.err
    assert 4 <= done.summary["completed"] < 400
    assert done.summary["failed"] == 0
    assert done.summary["llama_load"]["cancelled"] == 4
    assert done.summary["llama_load"]["verdict"]["word"] == "INCOMPLETE"
    assert done.manifest["end"] == "interrupted"


def test_kill_9_leaves_what_the_report_command_can_finish(
    simulate: Callable[..., Simulated], run_report: Run, tmp_path: Path
) -> None:
    """Every request whose end was a moment ago is on record, once; those under way are not."""
    interrupted(simulate(), tmp_path / "run", signal.SIGKILL)
    done = run_report(tmp_path / "run")
    assert done.code == 3, done.err
    assert "INCOMPLETE" in done.out
    assert sorted(done.records.measured().strings("prompt_index")) == list(
        range(done.summary["completed"])
    )
    assert done.summary["completed"] >= 4


def test_a_time_limit_ends_the_run_well(
    simulate: Callable[..., Simulated], run_locust: Run
) -> None:
    """-t without a number of prompts: as many as fit, exit code 0, what is in flight at the end is
    cancelled."""
    done = run_locust(
        simulate("--tokens", "5").url,
        "-u",
        "4",
        "-t",
        "1s",
        "--max-tokens",
        "5",
        "--loglevel",
        "INFO",
    )
    assert done.code == 0, done.err
    assert "Run time limit set to 1 seconds" in done.err
    assert "No run time limit set" not in done.err
    assert done.summary["completed"] > 4
    assert done.summary["llama_load"]["cancelled"] <= 4
    assert done.manifest["end"] == "time"


@pytest.mark.portable
def test_faults_of_the_server_are_failures_and_no_request_is_lost(
    simulate: Callable[..., Simulated], run_locust: Run
) -> None:
    done = run_locust(
        simulate("--fault", "cut", "--fault-every", "4", "--fault-after", "2", "--interval-ms", "2").url,
        "-u", "3", "--num-prompts", "11", "--max-tokens", "3",
    )  # fmt: skip
    assert done.code == 1
    assert done.summary["completed"] + done.summary["failed"] == 11
    # requests 4, 8 and 12 of all 12 with the warm-up, which is the first
    assert done.summary["failed"] == 3
    assert done.summary["llama_load"]["failures"][0]["kind"] == "cut_off"


def test_failures_in_a_row_are_slowed_down_in_a_closed_loop(
    simulate: Callable[..., Simulated], run_locust: Run
) -> None:
    """The server answers 500 at once. A user begins requests at 0, 0.1, 0.3, 0.7, 1.5 and then
    every second: within 2 s at most five, where it would be thousands."""
    assert [pause_s(failures) for failures in (1, 2, 3, 4, 5, 6, 10**9)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.0,
        1.0,
        1.0,
    ]
    url = simulate("--fault", "status", "--first-token-ms", "0").url
    closed = run_locust(
        url, "-u", "4", "-t", "2s", "--warmup", "0", "--max-tokens", "2"
    )
    assert closed.code == 1, closed.err
    assert 4 <= closed.summary["failed"] <= 4 * 5


@pytest.mark.heavy
def test_failures_in_a_row_hold_up_no_schedule(
    simulate: Callable[..., Simulated], run_locust: Run
) -> None:
    """Catches the pause after failures that delays an open loop."""
    flags = (
        "--request-rate",
        "40",
        "--arrival",
        "constant",
        "--num-prompts",
        "40",
        "--warmup",
        "0",
        "--max-tokens",
        "2",
    )
    done = run_locust(
        simulate("--fault", "status", "--first-token-ms", "0").url, *flags
    )
    assert done.summary["failed"] == 40
    instants = done.records.measured().instants("started_mono_ns")
    # 39 gaps of 25 ms; with pauses it would be more for the few users
    assert (instants.max() - instants.min()) / 1e9 < 3


def test_thresholds_set_the_exit_code_and_no_run_folder_is_overwritten(
    simulate: Callable[..., Simulated], run_locust: Run
) -> None:
    """Nine tokens: one of the two is met, and so is the one that is always there. A second run is
    refused the folder of the first."""
    flags = ("--fail-if", "total_output_tokens>5", "--fail-if", "total_output_tokens<5")
    url = simulate("--interval-ms", "1").url
    done = run_locust(url, "--num-prompts", "3", "--max-tokens", "3", *flags)
    assert done.code == 1
    assert [each["failed"] for each in done.summary["llama_load"]["thresholds"]] == [
        True,
        False,
        False,
    ]
    before = (done.folder / "summary.txt").read_bytes()
    second = run_locust(url, "--num-prompts", "1", "--max-tokens", "2")
    assert second.code == 2
    assert "already holds a run" in second.err
    assert (done.folder / "summary.txt").read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--num-prompts", "0"], "--num-prompts must be a whole number of at least 1"),
        (["--extra-body", "{nonsense"], "--extra-body must be a JSON object"),
        (["--model", "gpt-5"], "does not serve a model 'gpt-5'; it has tiny"),
        (
            ["--dataset-path", "/nowhere/data.json"],
            "there is no data set at /nowhere/data.json",
        ),
        (["--dataset-path", __file__], "not in ShareGPT's layout"),
        (
            ["--host", "http://127.0.0.1:9"],
            "cannot reach http://127.0.0.1:9: connection refused",
        ),
        (["--host", "http://no-such-host.invalid:8080"], "cannot be resolved"),
        (["--host", "ftp://127.0.0.1"], "is not an http:// or https:// URL"),
        (["--run-dir", "/proc/nowhere/run"], "cannot write the run folder"),
        (["--prompt-token-ids"], "--prompt-token-ids needs --tokenizer"),
        (["--prompt-token-ids", "--tokenizer", "x"], "needs --endpoint completions"),
        (["--tokenizer", "/nowhere"], "there is no tokenizer.json"),
        (["--junit", "/tmp"], "--junit /tmp is a folder; name a file"),
        (
            ["--stages", "1:4,2:4"],
            "--num-prompts has no effect, because every stage has its own amount",
        ),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(
    llama_server: Server, run_locust: Run, flags: list[str], sentence: str
) -> None:
    done = run_locust(llama_server.url, "--num-prompts", "4", *flags)
    assert done.code == 2, done.err
    assert sentence in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_https_on_an_http_port_is_one_sentence(
    llama_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real server never answers a TLS handshake. (What a UsageError does to a run: see the
    tests of wrong use above.)"""
    monkeypatch.setattr(probe, "TIMEOUT_S", 0.3)
    with pytest.raises(
        UsageError, match=f"does it speak plain HTTP. Try {llama_server.url}$"
    ):
        probe.Probe(
            probe.ProbeSettings(llama_server.url.replace("http://", "https://"))
        ).ask()


def test_no_host_is_one_sentence(tmp_path: Path) -> None:
    command = [
        part
        for part in locust_command("X", tmp_path / "run")
        if part not in ("--host", "X")
    ]
    done = run_program(command[2:], tmp_path, environment())
    assert done.returncode == 2
    assert "--host" in done.stderr


def test_the_event_loop_runs_while_the_report_is_computed(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """The report of a long run takes a minute: signals, workers and the page are answered
    meanwhile. (Here reading and analysis take 0.15 s each, and a greenlet counts how often it comes
    to run.)"""
    (tmp_path / "busy.py").write_text(
        """
import time
import gevent
from locust import events, task
from llama_load import LlamaUser, ShareGPT
from llama_load.analysis.reports import ended_run
from llama_load.run_folder import RunWriter

turns = {"finish": 0, "analyze": 0}

def slow(name, real):
    def called(*arguments):
        before, until = ticks[0], time.perf_counter() + 0.15
        while time.perf_counter() < until:
            pass
        turns[name] = ticks[0] - before
        return real(*arguments)
    return called

ticks = [0]
def tick():
    while True:
        ticks[0] += 1
        gevent.sleep(0.01)

gevent.spawn(tick)
ended_run.analyze = slow("analyze", ended_run.analyze)
RunWriter.finish = slow("finish", RunWriter.finish)

@events.quitting.add_listener
def show(**_):
    print("TURNS", turns["finish"], turns["analyze"])

class Chat(LlamaUser):
    workload = ShareGPT()
    @task
    def ask(self):
        self.chat(max_tokens=2)
"""
    )
    done = run_locust(
        simulate().url, "-u", "1", "--num-prompts", "2", locustfile=tmp_path / "busy.py"
    )
    (line,) = (line for line in done.out.splitlines() if line.startswith("TURNS"))
    assert min(map(int, line.split()[1:])) > 2, line
