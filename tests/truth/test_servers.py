"""Both servers: what they send, and what they log of it."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import requests

from truth.cases import Answers
from truth.log import SCHEMA, entry_of, object_of, read_log
from truth.matching import true_values
from truth.problem import Problem
from truth.prompts import digest
from truth.server import plain
from truth.server.serving import compiled, serving
from truth.server.shapes import SHAPES

# In quotes: asked by the first test, not by each process that imports this.
needs_compiler = pytest.mark.skipif(
    "compiled() is None", reason="no C compiler, or not Linux"
)
HTTP = requests.Session()


def ask(
    url: str,
    tokens: int = 5,
    request_id: str = "x",
    path: str = "chat/completions",
    **further: object,
) -> list[str]:
    """The events of one answer."""
    body = {
        "messages": [{"role": "user", "content": 'say "max_tokens": 9'}],
        "max_tokens": tokens,
        "stream": True,
    } | further
    answer = HTTP.post(
        f"{url}/v1/{path}", json=body, headers={"X-Request-Id": request_id}, timeout=20
    )
    assert answer.status_code == 200, answer.text
    return [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]


@needs_compiler
def test_the_server_sends_its_schedule_and_logs_it(tmp_path: Path) -> None:
    """Tokens are never early; the log names the request, and the kernel's timestamp of the first
    token is not before the log's."""
    with serving(Answers(first_token_ms=20, interval_ms=4), tmp_path / "log") as url:
        events = ask(url, 5, "one", stream_options={"include_usage": True})
        ask(url, 3, "two")
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert (
        "".join(each["choices"][0]["delta"].get("content", "") for each in chunks[:-1])
        == " 1 tok tok tok tok"
    )
    assert (
        chunks[-1]["usage"]["completion_tokens"] == 5
        and chunks[-2]["choices"][0]["finish_reason"] == "length"
    )
    log = read_log(tmp_path / "log")
    assert [
        (each.request_id, each.outcome, each.output_tokens) for each in log.entries
    ] == [("one", "ok", 5), ("two", "ok", 3)]
    for entry in log.entries:
        (ttft,) = true_values(entry, "ttft")
        (e2el,) = true_values(entry, "e2el")
        assert ttft >= 20 and e2el >= 20 + 4 * (entry.output_tokens - 1)
        assert entry.kernel_ns[0] >= entry.sent_ns[0]
    assert log.server["tokens"] == 8 and log.server["cpu_s"] > 0
    assert log.bound_ms is not None and log.bound_ms < 5


@needs_compiler
def test_synchronous_streams_share_their_instants(tmp_path: Path) -> None:
    """Two requests, the second some milliseconds later: the instants of their tokens differ by
    multiples of the interval, up to the lateness that the server logs of itself."""
    with serving(
        Answers(first_token_ms=20, interval_ms=10, synchronous=True), tmp_path / "log"
    ) as url:
        ask(url, 5)
        ask(url, 5)
    log = read_log(tmp_path / "log")
    first, second = (np.array(entry.sent_ns) / 1e6 for entry in log.entries)
    apart = (second - first) / 10
    assert np.abs(apart - np.round(apart)).max() * 10 <= 2 * log.late_p99_ms + 0.1


@needs_compiler
def test_the_server_refuses_what_it_cannot_answer(tmp_path: Path) -> None:
    with serving(Answers(), tmp_path / "log") as url:
        assert HTTP.get(f"{url}/health", timeout=30).status_code == 200
        assert (
            HTTP.get(f"{url}/v1/models", timeout=30).json()["data"][0]["id"]
            == "simulated"
        )
        assert HTTP.get(f"{url}/metrics", timeout=30).status_code == 404
        whole = {"messages": [], "max_tokens": 5}
        assert (
            HTTP.post(f"{url}/v1/chat/completions", json=whole, timeout=30).status_code
            == 400
        )
        assert (
            HTTP.post(
                f"{url}/v1/chat/completions", json={"stream": True}, timeout=30
            ).status_code
            == 400
        )
        texts = [
            json.loads(event)["choices"][0]["text"]
            for event in ask(url, 2, path="completions", prompt="a b")[:-1]
        ]
        assert texts == [" 1", " tok"]
    assert len(read_log(tmp_path / "log").entries) == 1


@pytest.mark.parametrize(
    "shape", [pytest.param("plain", marks=needs_compiler), "merged"]
)
def test_a_length_that_is_none_is_refused_and_ends_no_server(
    shape: str, tmp_path: Path
) -> None:
    """Any user of the machine can send it. With the length of the head it was a small number, and
    the server read beyond its memory. Signs, underscores and other digits are no length."""
    body = b'{"stream": true, "max_tokens": 2, "prompt": "a"}'
    huge = (str(2**64 - 1), str(2**64 - 90), "9" * 40)
    with serving(Answers(shape=shape), tmp_path / "log") as url:
        for length in (*huge, "-1", "+48", "4_8", "0x30", "48,48", "٤٨"):
            head = f"POST /v1/completions HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"
            assert said(url, head.encode() + body) == b"", length
        long_head = b"GET /health HTTP/1.1\r\nX: " + b"a" * (64 << 10)
        assert said(url, long_head + b"\r\n\r\n") == b""
        assert ask(url, 2)[-1] == "[DONE]"


def said(url: str, data: bytes) -> bytes:
    """What the server answers to these bytes."""
    _, port = url.removeprefix("http://").split(":")
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", int(port)), timeout=5) as client,
        suppress(ConnectionError),
    ):
        client.sendall(data)
        with suppress(OSError):  # the server may have reset the connection already
            client.shutdown(socket.SHUT_WR)
        while piece := client.recv(4096):
            answer += piece
    return answer


@needs_compiler
def test_a_client_that_hangs_up_is_in_the_log_as_that(tmp_path: Path) -> None:
    with serving(Answers(first_token_ms=10, interval_ms=10), tmp_path / "log") as url:
        body = {"messages": [], "max_tokens": 1000, "stream": True}
        with requests.post(
            f"{url}/v1/chat/completions", json=body, stream=True, timeout=30
        ) as answer:
            next(answer.iter_lines())
        ask(url, 5)
    outcomes = [entry.outcome for entry in read_log(tmp_path / "log").entries]
    assert outcomes == ["client closed", "ok"]


PYTHON = Answers(first_token_ms=20, interval_ms=4, fault="none", fault_every=1000)
SCHEMA_FILE = Path(__file__).resolve().parents[2] / "truth" / "log.schema.json"


@pytest.fixture(params=["server.c", "plain.py"])
def answers(request: pytest.FixtureRequest) -> Iterator[Answers]:
    """A schedule that only the named server takes."""
    if request.param == "server.c" and compiled() is None:
        pytest.skip("no C compiler, or not Linux")
    yield replace(PYTHON, fault="") if request.param == "server.c" else PYTHON


def test_the_log_of_each_server_is_of_the_schema(
    answers: Answers, tmp_path: Path
) -> None:
    """With the digest of the body, the prompt's tokens and the id that the client sent."""
    body = json.dumps(
        {
            "messages": [{"content": "one two three"}],
            "max_tokens": 3,
            "stream": True,
            "n": 2,
        }
    )
    with serving(answers, tmp_path / "log", case="T1") as url:
        HTTP.post(
            f"{url}/v1/chat/completions",
            data=body,
            headers={"X-Request-Id": "a-1"},
            timeout=9,
        )
    schema = json.loads(SCHEMA_FILE.read_text())
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    for line in lines:
        jsonschema.validate(line, schema)
    assert len(lines) == 2 and lines[1]["server"]["schema"] == SCHEMA
    assert lines[1]["server"]["case"] == "T1"
    entry = read_log(tmp_path / "log").entries[0]
    assert entry.body_sha256 == hashlib.sha256(body.encode()).hexdigest()
    assert (entry.prompt_tokens, entry.tokens, entry.choices) == (19, 3, 2)
    assert (entry.request_id, entry.path) == ("a-1", "/v1/chat/completions")
    assert object_of(entry_of(object_of(entry))) == object_of(entry)


@needs_compiler
def test_nothing_is_read_behind_a_body(tmp_path: Path) -> None:
    """A body that ends in the name of a field, behind a request whose words were in its place."""
    long = b'{"prompt": "%s", "max_tokens": 1, "stream": true}' % (b"one two " * 50)
    short = b'{"max_tokens": 1, "stream": true, "prompt"'
    head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    answers = Answers(first_token_ms=1, interval_ms=1)
    with (
        serving(answers, tmp_path / "log") as url,
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 9) as own,
    ):
        for body in (long, short):
            own.sendall(head % len(body) + body)
            said = b""
            while not said.endswith(b"0\r\n\r\n"):
                said += own.recv(1 << 16)
    entries = read_log(tmp_path / "log").entries
    assert [entry.prompt_tokens for entry in entries] == [100, 0]


def test_a_prompt_in_parts_has_the_words_of_its_texts(
    answers: Answers, tmp_path: Path
) -> None:
    """As vllm bench serve sends it: 3 + 2 words, and the 16 tokens of the template."""
    parts = [
        {"type": "text", "text": "one two three"},
        {"text": "four five", "type": "text"},
    ]
    with serving(answers, tmp_path / "log") as url:
        ask(url, 2, messages=[{"role": "user", "content": parts}])
    assert read_log(tmp_path / "log").entries[0].prompt_tokens == 21


def test_the_digest_of_a_prompt_where_the_case_asks_for_it(tmp_path: Path) -> None:
    """Of its texts, whether they come as a string or in parts; without it only the body's."""
    for wanted in (True, False):
        answers = Answers(first_token_ms=5, interval_ms=1, prompt_digests=wanted)
        with serving(answers, tmp_path / "log") as url:
            ask(url, 2, messages=[{"role": "user", "content": "one two"}])
            parts = [{"type": "text", "text": "one two"}]
            ask(url, 2, messages=[{"role": "user", "content": parts}])
        expected = digest(["one two"]) if wanted else ""
        found = [entry.prompt_sha256 for entry in read_log(tmp_path / "log").entries]
        assert found == [expected, expected]


def test_digests_are_those_of_sha256_at_every_length(tmp_path: Path) -> None:
    """The padding of SHA-256 differs at 55, 56 and 64 bytes of the last block."""
    body = json.dumps({"max_tokens": 1, "stream": True, "messages": [], "x": ""})
    lengths = (0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 4000)
    bodies = [body[:-2] + "y" * length + body[-2:] for length in lengths]
    with serving(Answers(first_token_ms=1, interval_ms=2), tmp_path / "log") as url:
        for each in bodies:
            HTTP.post(f"{url}/v1/chat/completions", data=each, timeout=9)
    found = [entry.body_sha256 for entry in read_log(tmp_path / "log").entries]
    assert found == [hashlib.sha256(each.encode()).hexdigest() for each in bodies]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_has_the_tokens_that_it_logs(shape: str, tmp_path: Path) -> None:
    """The words of all texts are as many as the log's tokens, and the stream ends with [DONE]; in
    the completions API, too, whose streams lack the events that it does not have: an empty chunk
    would end the stream."""
    answers = Answers(first_token_ms=10, interval_ms=1, shape=shape)
    choices = 2 if shape == "many_choices" else 1
    with serving(answers, tmp_path / "log") as url:
        events = ask(url, 7, stream_options={"include_usage": True}, n=choices)
        assert ask(url, 5, path="completions", prompt="a b")[-1] == "[DONE]"
    entry, other = read_log(tmp_path / "log").entries
    found = (other.outcome, other.output_tokens, other.prompt_tokens)
    assert found == ("ok", 5, 2)
    events = [event for event in events if not event.startswith(":")]
    assert events[-1] == "[DONE]" and entry.outcome == "ok"
    assert entry.output_tokens == 7 * choices
    words = 0
    for event in events[:-1]:
        for choice in json.loads(event)["choices"]:
            delta = choice["delta"]
            texts = [
                delta.get(key) or ""
                for key in ("content", "reasoning_content", "reasoning")
            ]
            texts += [
                call["function"]["arguments"] for call in delta.get("tool_calls", ())
            ]
            words += len("".join(texts).split())
    assert words == 7 * choices


FAULTS = {
    "cut": ("cut", 3),
    "reset": ("reset", 3),
    "error_event": ("error_event", 3),
    "no_finish": ("no_finish", 3),
    "refused": ("refused", 0),
    "rate_limited": ("rate_limited", 0),
    "stall": ("ok", 6),
    "slow_headers": ("ok", 6),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_hits_every_second_request_and_is_in_the_log(
    fault: str, tmp_path: Path
) -> None:
    answers = Answers(first_token_ms=60, interval_ms=2, fault=fault, fault_every=2)
    with serving(answers, tmp_path / "log") as url:
        ask(url, 6)
        body = {"messages": [], "max_tokens": 6, "stream": True}
        answer = None
        try:
            answer = requests.post(f"{url}/v1/chat/completions", json=body, timeout=9)
        except requests.RequestException:
            assert fault in ("cut", "reset")
    first, second = read_log(tmp_path / "log").entries
    assert (first.outcome, first.output_tokens) == ("ok", 6)
    assert (second.outcome, second.output_tokens) == FAULTS[fault]
    if fault == "rate_limited":
        assert answer is not None
        assert (answer.status_code, answer.headers["Retry-After"], second.status) == (
            429,
            "1",
            429,
        )
    if fault == "stall":
        assert true_values(second, "e2el")[0] >= 1000
        assert second.late_max_ns < 900e6  # the silence belongs to the schedule
    if fault in ("error_event", "no_finish"):
        assert answer is not None and "[DONE]" not in answer.text


@pytest.mark.parametrize(
    ("answers", "end"),
    [
        (
            Answers(first_token_ms=1, interval_ms=1, shape="end_unended"),
            b"[DONE]\n\n\r\n",
        ),
        (Answers(fault="page", fault_every=1), b"</html>"),
        (
            Answers(first_token_ms=1, interval_ms=1, fault="error_bare", fault_every=1),
            b"503}}\n\r\n0\r\n\r\n",
        ),
    ],
)
def test_how_a_dialect_ends_the_body(answers: Answers, end: bytes) -> None:
    """Without a last chunk, as a page, and with an error that is in no event."""
    server = plain.Server(answers, 0)
    threading.Thread(target=server.serve, daemon=True).start()
    body = json.dumps({"messages": [], "max_tokens": 6, "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nConnection: close\r\n"
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        connection.sendall(head + body)
        found = b""
        while data := connection.recv(1 << 16):
            found += data
    assert found.endswith(end)


def test_connections_beyond_the_most_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is a thread: whoever finds the port could fill the memory."""
    monkeypatch.setattr(plain, "MOST_CONNECTIONS", 3)
    server = plain.Server(Answers(), 0)
    threading.Thread(target=server.serve, daemon=True).start()
    address = ("127.0.0.1", server.port)
    idle = [socket.create_connection(address, 5) for _ in range(3)]
    with socket.create_connection(address, 5) as refused:
        assert refused.recv(1) == b""
    for connection in idle:
        connection.close()


def test_a_log_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"number": 1}\n')
    with pytest.raises(Problem, match="line 1 is not of the log's schema"):
        read_log(tmp_path / "log")
