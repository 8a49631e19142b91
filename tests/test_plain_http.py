"""Requests besides the load: whole answers only, within their bounds, to nobody but the server
asked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from llama_load.outside.bound_headers import bound
from llama_load.outside.plain_http import (
    Answer,
    LateError,
    NoAnswerError,
    Session,
    request,
)
from tests.json_server import json_server
from tests.scripted_server import ScriptedServer

OK = b"HTTP/1.1 200 OK\r\n"


def answer_of(*steps: Any, **bounds: Any) -> Answer:
    with ScriptedServer(list(steps)) as server:
        return request("GET", f"{server.url}/x", **bounds)


@pytest.mark.parametrize(
    ("steps", "content"),
    [
        ((OK + b"Content-Length: 2\r\n\r\nok", "hold"), b"ok"),
        (
            (
                OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\no\r\n",
                b"1\r\nk\r\n0\r\n\r\n",
                "hold",
            ),
            b"ok",
        ),
        ((OK + b"\r\nok",), b"ok"),  # its end is that of the connection
        (
            (
                b"HTTP/1.1 103 Early Hints\r\nX: 1\r\n\r\n",
                0.2,
                OK + b"Content-Length: 2\r\n\r\nok",
                "hold",
            ),
            b"ok",
        ),
        ((b"HTTP/1.1 204 No Content\r\n\r\n", "hold"), b""),
    ],
    ids=["length", "chunks", "until the end", "early hints", "no content"],
)
def test_a_whole_answer_is_read_to_its_end(
    steps: tuple[Any, ...], content: bytes
) -> None:
    """Those that hold the connection open afterwards do not wait for it."""
    answer = answer_of(*steps, within_s=5.0)
    assert (answer.content, answer.ok, "x" in answer.headers) == (content, True, False)


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ((OK + b"Content-Length: 3\r\n\r\nok",), "in the middle of its answer"),
        (
            (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nok",),
            "in the middle of its answer",
        ),
        (
            (OK + b"Content-Length: 99\r\n\r\n", "reset"),
            "in the middle of its answer|does not answer",
        ),
        ((b"",), "closed the connection without an answer"),
        ((OK,), "sends no HTTP answer"),
        ((b"+PONG\r\n\r\n",), "sends no HTTP answer"),
        ((OK + b"X: " + b"y" * (70 << 10),), "sends no HTTP answer"),
        (
            (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",),
            "an answer that is no HTTP",
        ),
        ((OK + b"\r\n", b"x" * (2 << 20)), "sends more than 1 MiB"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(
    steps: tuple[Any, ...], sentence: str
) -> None:
    with pytest.raises(NoAnswerError, match=sentence):
        answer_of(*steps, within_s=5.0, most_bytes=1 << 20)


@pytest.mark.parametrize(
    "beginning", [OK + b"X: ", OK + b"Content-Length: 9999\r\n\r\n", OK + b"\r\n"]
)
def test_the_time_is_that_of_the_whole_answer(beginning: bytes) -> None:
    """A byte now and then does not begin it again."""
    begin = time.monotonic()
    with pytest.raises(LateError, match=r"within 0\.4 s"):
        answer_of(
            beginning, *[step for _ in range(40) for step in (b"x", 0.1)], within_s=0.4
        )
    assert time.monotonic() - begin < 3


def test_nobody_listens() -> None:
    with pytest.raises(NoAnswerError, match="Connection refused") as raised:
        request("GET", "http://127.0.0.1:9/")
    assert isinstance(raised.value.__cause__, OSError)


def test_a_redirect_and_a_proxy_of_the_environment_are_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key would go to another server."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with (
        json_server({"/to": {}}) as other,
        ScriptedServer(
            [f"HTTP/1.1 302 Found\r\nLocation: {other.url}/to\r\n\r\n".encode()]
        ) as server,
    ):
        answer = Session(bound(server.url, [("Authorization", "Bearer k")])).get(
            server.url
        )
    assert (answer.status, answer.headers["location"]) == (302, f"{other.url}/to")
    assert not other.headers


def test_json_is_sent_and_read_strictly() -> None:
    with ScriptedServer([OK + b"Content-Length: 3\r\n\r\nNaN"]) as server:
        answer = Session(bound(server.url, [("X-Team", "a")])).post(
            f"{server.url}/p?q=1", {"text": "ü"}
        )
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert (
        head.startswith(b"POST /p?q=1 HTTP/1.1\r\n")
        and b"X-Team: a" in head
        and b"Content-Type: application/json" in head
    )
    assert body == '{"text":"ü"}'.encode()
    with pytest.raises(ValueError, match="JSON"):
        answer.json()
    with pytest.raises(NoAnswerError, match="cannot be sent"):
        Session(bound("http://127.0.0.1:9", [("X", "→")])).get("http://127.0.0.1:9/")


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        SWITCH,
        SWITCH + OK + b"Content-Length: 0\r\n\r\n",
        SWITCH.replace(b"websocket", b"h2c"),
    ],
)
def test_switching_protocols_is_no_answer(answer: bytes) -> None:
    with (
        ScriptedServer([answer]) as server,
        pytest.raises(NoAnswerError, match="tries to switch protocols"),
    ):
        Session().get(server.url)
