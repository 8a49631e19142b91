"""`llama-load record` before the real llama-server, with real clients, and what replays of its
recordings send."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from llama_load.cli.main import main
from llama_load.cli.record_command import _report_absence
from llama_load.outside import plain_http
from llama_load.servers.address import parse_url
from llama_load.servers.serving.launch import Server
from tests.conftest import (
    REPOSITORY,
    Finished,
    embedded_server,
    environment,
    start_program,
)
from tests.fork_server import SIMULATED
from tests.json_server import json_server, streamed

CONVERSATIONS = REPOSITORY / "locustfiles" / "conversations.py"
REPLAY = REPOSITORY / "locustfiles" / "replay.py"


@dataclass
class Recorder:
    """`llama-load record`, running; after it: what it printed and its exit code."""

    url: str
    out: Path
    said: str = ""
    code: int | None = None

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]


@contextmanager
def recorder(to: str, out: Path, *flags: str, **env: str) -> Iterator[Recorder]:
    words = ["record", "--to", to, "--port", "0", "--out", str(out), *flags]
    reads, writes = os.pipe()
    with open(writes, "w") as stream:
        process = start_program(
            ["llama_load.cli.main", *words],
            out.parent,
            environment() | env,
            stream,
            SIMULATED,  # a command without gevent
        )
    try:
        with open(reads) as said:
            line = said.readline()
            assert line.startswith("recording http"), line + said.read()
            running = Recorder(line.split()[1], out)
            yield running
            process.send_signal(signal.SIGINT)
            running.code = process.wait(30)
            running.said = said.read()
    finally:
        process.kill()
        process.wait()


def asked(
    url: str, messages: list[Any], path: str = "/v1/chat/completions", **more: Any
) -> dict[str, Any]:
    body = {"model": "tiny", "messages": messages, "max_tokens": 8, **more}
    answer = plain_http.Session().post(url + path, body)
    assert answer.ok, answer.text
    return answer.json()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """The message of an answer, as clients send it back."""
    message = answer["choices"][0]["message"]
    return {"role": "assistant", "content": message["content"] or "."}


def test_a_recording_is_whole_conversations(
    llama_server: Server, tmp_path: Path
) -> None:
    """Turns are joined, an edited history is a conversation of its own, and a resumed one begins
    where it was resumed."""
    with recorder(llama_server.url, tmp_path / "talk.jsonl") as running:
        first = [{"role": "system", "content": "Be brief."}, user("One?")]
        second = [
            *first,
            told(asked(running.url, first, temperature=0.5)),
            user("Two?"),
        ]
        asked(running.url, second)
        edited = [*second[:-1], user("Three?")]
        asked(running.url, edited)
        asked(running.url, [user("Another?")])
    assert running.code == 0, running.said
    one, branch, other = running.lines
    assert [message["role"] for message in one["messages"]] == ["system", "user", "assistant", "user", "assistant"]  # fmt: skip
    assert one["messages"][3]["delay_s"] >= 0
    assert one["sampling"] == {"temperature": 0.5}
    assert "history" not in one
    assert branch["branch_of"] == "c1"
    assert branch["shared_messages"] == branch["history"] == 3
    assert other["messages"][0] == user("Another?")
    assert "4 requests, 0 without a complete answer; 3 conversations" in running.said
    assert "own delay" in running.said and "p99" in running.said
    assert os.stat(running.out).st_mode & 0o777 == 0o600


@pytest.mark.heavy
def test_a_recording_is_replayed_by_eight_users(
    llama_server: Server, tmp_path: Path, run_locust: Callable[..., Finished]
) -> None:
    """All requests of it are sent, and no other: a branch does not send its history again. Catches
    a branch that is sent twice when eight users share a recording."""
    with recorder(llama_server.url, tmp_path / "talk.jsonl") as running:
        for number in range(8):
            first = [user(f"Question number {number}, please?")]
            history = [*first, told(asked(running.url, first)), user("And then?")]
            asked(running.url, history)
        asked(running.url, [*history[:-1], user("Or else?")])
    assert len(running.lines) == 9
    run = run_locust(
        llama_server.url,
        *("-u", "8", "--num-prompts", "17", "--warmup", "0"),
        *("--dataset-path", str(running.out), "--history", "recorded"),
        folder=tmp_path / "run",
        locustfile=CONVERSATIONS,
    )
    assert run.code == 0, run.err
    assert run.summary["completed"] == 17
    assert len(set(run.records.column("conversation").to_pylist())) == 9


SYSTEM = "You are a careful assistant of a shop that sells tools. " * 40


def talked(url: str) -> tuple[int, int]:
    """Several conversations of one product: prompt tokens and cached tokens."""
    prompt = 0
    cached = 0
    for number in range(4):
        history = [
            {"role": "system", "content": SYSTEM},
            user(f"Question {number}? " * 20),
        ]
        for turn in range(4):
            answer = asked(url, history, temperature=0)
            cached += answer["timings"]["cache_n"]
            prompt += answer["timings"]["cache_n"] + answer["timings"]["prompt_n"]
            more = f"Thank you, and what about item {turn} of {number}? " * 20
            history += [told(answer), user(more)]
    return prompt, cached


@pytest.mark.heavy
def test_the_cached_share_of_a_replayed_digest_is_that_of_the_recording(
    tiny_model: Path, tmp_path: Path, run_locust: Callable[..., Finished]
) -> None:
    """Within 2 %, on the real llama-server, one request at a time. Each run has a fresh server.
    Catches a digest whose replay shares other beginnings than the prompts did, as llama-server's
    cache sees them."""
    flags = ("-c", "8192", "-np", "1")
    with (
        embedded_server(tiny_model, tmp_path / "first", *flags) as server,
        recorder(server.url, tmp_path / "trace.jsonl", "--digest") as running,
    ):
        prompt, cached = talked(running.url)
    assert running.code == 0, running.said
    recorded = cached / prompt
    assert 0.5 < recorded < 0.98
    assert "come from the server" in running.said
    text = running.out.read_text()
    assert "shop" not in text and "item" not in text
    lines = running.lines
    assert len(lines) == 16, running.said
    assert sum(line["input_length"] for line in lines) == prompt
    assert [line["turn"] for line in lines] == [1, 2, 3, 4] * 4
    with embedded_server(tiny_model, tmp_path / "second", *flags) as server:
        run = run_locust(
            server.url,
            *("-u", "1", "--num-prompts", "16", "--warmup", "0"),
            *("--trace", str(running.out), "--speed", "0.5"),
            folder=tmp_path / "run",
            locustfile=REPLAY,
        )
    records = run.records
    replayed = records.total("cached_tokens") / records.total("prompt_tokens")
    assert replayed == pytest.approx(recorded, abs=0.02)


EVENTS = (
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]},
    {"choices": [{"index": 0, "delta": {"content": "Hello"}}]},
    {"choices": [{"index": 0, "delta": {"content": " you"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
)  # fmt: skip
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}  # fmt: skip
CALLS = (
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **CALL}]}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
)
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]  # fmt: skip
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def answers(body: dict[str, Any]) -> Any:
    """As a server with tools: it calls one, and speaks once it has the result."""
    calls = body.get("tools") and body["messages"][-1]["role"] != "tool"
    if body.get("stream"):
        return streamed(*(CALLS if calls else EVENTS))
    message = {"role": "assistant", "content": "Hello you"}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    }


KEY = "sk-record/0123456789+canary"


def test_the_openai_package_streams_calls_tools_and_sends_images(
    tmp_path: Path,
) -> None:
    """And its key stands nowhere, though the server repeats it."""
    openai = pytest.importorskip("openai")
    refusal = (401, {"error": {"message": f"the key {KEY} is wrong"}}, {})
    vectors = {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 2, "total_tokens": 2}}  # fmt: skip
    paths = {
        "/v1/chat/completions": answers,
        "/v1/embeddings": vectors,
        "/v1/models": refusal,
    }
    with (
        json_server(paths) as server,
        recorder(server.url, tmp_path / "talk.jsonl") as running,
    ):
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key=KEY, max_retries=0)
        history: list[Any] = [user(f"Read a. My key is {KEY}")]
        stream = client.chat.completions.create(
            model="m", messages=history, tools=TOOLS, stream=True
        )
        calls = [chunk.choices[0].delta.tool_calls for chunk in stream]
        assert calls[0][0].function.name == "read"
        history += [
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "print(1)"},
        ]
        stream = client.chat.completions.create(
            model="m", messages=history, tools=TOOLS, stream=True
        )
        texts = [chunk.choices[0].delta.content or "" for chunk in stream]
        assert "".join(texts) == "Hello you"
        parts = [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": PIXEL}},
        ]
        seen = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": parts}]
        )
        assert seen.choices[0].message.content == "Hello you"
        client.embeddings.create(model="m", input="words", encoding_format="float")
        with pytest.raises(openai.AuthenticationError):
            client.models.list()
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert running.code == 0, running.said
    agent, image = running.lines
    assert [message["role"] for message in agent["messages"]] == ["user", "assistant", "tool", "assistant"]  # fmt: skip
    assert agent["messages"][1]["tool_calls"] == [CALL]
    assert agent["tools"] == TOOLS
    assert image["messages"][0]["content"][1]["image_url"]["url"] == PIXEL
    (embedding,) = (tmp_path / "talk.requests.jsonl").read_text().splitlines()
    assert json.loads(embedding)["body"]["input"] == "words"
    assert "TTFT" in running.said
    for file in tmp_path.iterdir():
        assert KEY not in file.read_text()
    assert KEY not in running.said


def test_curl_passes_whole_to_a_recorder_for_other_machines(tmp_path: Path) -> None:
    """With Expect: 100-continue, a chunked body, and a request to upgrade to HTTP/2, which is
    refused. The server's key is put in place of the recorder's own, without which nothing
    passes."""
    body = json.dumps({"messages": [user("x" * 5000)]})
    file = tmp_path / "body.json"
    file.write_text(body)
    key = "for-clients-0123456789"
    env = {"LLAMA_LOAD_RECORD_KEY": key, "LLAMA_LOAD_API_KEY": KEY}
    with (
        json_server({"/v1/chat/completions": answers}) as server,
        recorder(server.url, tmp_path / "talk.jsonl", **env) as running,
    ):
        url = f"{running.url}/v1/chat/completions"
        assert plain_http.Session().post(url, {"messages": []}).status == 401
        assert server.bodies == []
        header = f"Authorization: Bearer {key}"
        common = ["curl", "-sS", url, "-H", header, "-d", f"@{file}"]
        expects = subprocess.run(
            [*common, "-H", "Expect: 100-continue"],
            capture_output=True,
            check=True,
            timeout=20,
        )
        assert b"Hello you" in expects.stdout, expects.stderr
        upgrade = subprocess.run(
            [*common, "--http2"], capture_output=True, check=True, timeout=20, text=True
        )
        assert "no upgrade" in upgrade.stdout
        keys = {headers.get("Authorization") for headers in server.headers}
        assert keys == {f"Bearer {KEY}"}
    assert running.lines[0]["messages"][0]["content"] == "x" * 5000
    assert key not in running.said + running.out.read_text()


def test_a_recorder_reports_at_its_start_that_no_server_listens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        _report_absence(parse_url(url))
        assert capsys.readouterr().err == ""
    _report_absence(parse_url(url))
    assert f"nothing listens at {url} yet" in capsys.readouterr().err


def test_a_full_disk_is_one_sentence_and_the_traffic_goes_on(tmp_path: Path) -> None:
    """What the disk did not take is written once there is room (here: a larger limit for files)."""
    with (
        json_server({"/v1/chat/completions": answers}) as server,
        recorder(server.url, tmp_path / "talk.jsonl", "--digest") as running,
    ):
        writer = next(
            process
            for process in psutil.process_iter(["cmdline"])
            if str(running.out) in " ".join(process.info["cmdline"] or ())
            and "recording_process" in " ".join(process.info["cmdline"])
        )
        before = resource.prlimit(writer.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(writer.pid, resource.RLIMIT_FSIZE, (300, before[1]))
        for number in range(4):
            asked(running.url, [user(f"Question {number}")])
        time.sleep(1.5)  # longer than between two writes: nothing is to be written
        assert running.out.stat().st_size <= 300
        resource.prlimit(writer.pid, resource.RLIMIT_FSIZE, before)
    assert running.code == 0, running.said
    assert len(running.lines) == 4
    assert running.said.count("stays in memory") == 1


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--to", "nonsense://x"], "is not an http:// or https:// URL"),
        (["--to", "http://127.0.0.1:1", "--host", "0.0.0.0"], "set a key in LLAMA_LOAD_RECORD_KEY"),
        (["--to", "http://127.0.0.1:1", "--out", "/no/such/folder/x"], "No such file or directory"),
        (["--to", "http://127.0.0.1:1", "--out", "there"], "exists; choose another --out"),
    ],
)  # fmt: skip
def test_wrong_use_is_a_sentence(
    flags: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "there").touch()
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["record", *flags])
    except SystemExit as ends:
        code = ends.code
    assert code == 2
    assert sentence in capfd.readouterr().err
