"""Servers that tell odd things of themselves: what is not as expected is not told, and nothing raises."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_load.errors import UsageError
from llama_load.targets import control
from llama_load.targets.documents import listed_models
from llama_load.targets.probe import Probe, Wanted
from tests.scripted import ScriptedServer


class Told(http.server.ThreadingHTTPServer):
    """Answers paths with what is told: a text, another JSON value, or (status, JSON value, headers)."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told = told
        self.headers: list[dict[str, str]] = []
        self.date_s: float | None = None  # what its clock shows; None: the time
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.headers.append(dict(self.headers))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = self.server.told.get(self.path, (404, {}, {}))
        status, value, headers = found if isinstance(found, tuple) else (200, found, {})
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(self.server.date_s if timestamp is None else timestamp)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def telling(told: Mapping[str, Any]) -> Iterator[Told]:
    server = Told(told)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


GOOD = {"/health": {}, "/v1/models": {"data": [{"id": "m", "owned_by": "llamacpp"}]}, "/props": {"total_slots": 2}}


@pytest.mark.parametrize(
    "odd",
    [
        {"/props": {"total_slots": "4", "default_generation_settings": [1]}},
        {"/props": {"total_slots": -1, "default_generation_settings": {"n_ctx": "4096", "params": [1]}}},
        {"/props": [1], "/health": 7, "/version": "x"},
        {"/v1/models": {"data": [{"id": "m", "aliases": 3, "owned_by": ["x"], "max_model_len": "8k"}]}},
        {"/v1/models": {"data": [{"id": 5}, "x", None, {"id": "m"}]}},
        {"/props": {"total_slots": 2, "chat_template": "\ud800"}},
        {"/apply-template": {"prompt": "question"}, "/tokenize": {"count": float("inf")}},
        {"/apply-template": [1]},
        {"/apply-template": {"prompt": 5}},
        {"/apply-template": {"prompt": "question"}, "/tokenize": [1, 2]},
        {"/apply-template": {"prompt": "question"}, "/tokenize": {"tokens": None}},
    ],
)
def test_odd_values_are_not_told(odd: dict[str, Any]) -> None:
    with telling(GOOD | odd) as server:
        target = Probe(Wanted(server.url)).ask()
    assert target.model == "m"
    assert target.slots in (2, None)
    assert target.ctx_per_slot is None
    assert target.template_tokens is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "id", "aliases", "owned_by", "max_model_len"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=200)
@given(json_values)
def test_any_list_of_models_is_read(value: Any) -> None:
    for model in listed_models(value):
        assert isinstance(model.name, str)
        assert all(isinstance(alias, str) for alias in model.aliases)


def test_the_context_is_that_of_the_model_asked_for() -> None:
    models = [{"id": "small", "max_model_len": 512}, {"id": "large", "max_model_len": 131072}]
    with telling({"/health": {}, "/v1/models": {"data": models}}) as server:
        assert Probe(Wanted(server.url, models=("large",))).ask().ctx_per_slot == 131072
        assert Probe(Wanted(server.url)).ask().ctx_per_slot == 512


def test_a_gateway_that_hides_everything_but_the_api_is_fine() -> None:
    hidden = {"/props": (403, {}, {}), "/health": (302, {}, {"Location": "/login"}), "/version": (302, {}, {"Location": "/login"})}
    with telling(hidden | {"/v1/models": {"data": [{"id": "m"}]}}) as server:
        assert Probe(Wanted(server.url)).ask().backend == "openai"


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"/v1/models": (401, {}, {})}, "refuses the key"),
        (GOOD | {"/props": (401, {}, {})}, "refuses the key"),
        ({"/v1/models": (302, {}, {"Location": "http://elsewhere/"})}, "redirects to http://elsewhere/"),
        ({"/health": (503, None, {})}, "is not ready;"),
        ({"/health": (503, {"error": {"message": "Loading model"}}, {})}, "is not ready (Loading model)"),
        ({}, "looks like an LLM server"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(told: dict[str, Any], sentence: str) -> None:
    with telling(told) as server, pytest.raises(UsageError, match=sentence.replace("(", r"\(").replace(")", r"\)")):
        Probe(Wanted(server.url)).ask()


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"data": [{"id": "m\\ud800"}]}'], ids=["deep", "surrogate"])
def test_a_list_of_models_that_is_no_json_names_none(body: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with ScriptedServer([answer + body]) as server:
        assert Probe(Wanted(server.url)).ask().model is None


@pytest.mark.parametrize("bound", ["MOST_BYTES", "MOST_S"])
def test_an_answer_without_end_is_not_waited_for(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither however much comes, nor however long it takes."""
    monkeypatch.setattr(control, bound, {"MOST_BYTES": 1_000_000, "MOST_S": 0.3}[bound])
    with (
        ScriptedServer([b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 100_000, 0.05] * 200]) as server,
        pytest.raises(UsageError, match="answers without end"),
    ):
        Probe(Wanted(server.url)).ask()


def test_a_name_that_does_not_resolve_is_told_in_a_sentence() -> None:
    with pytest.raises(UsageError, match="cannot be resolved"):
        Probe(Wanted("http://no-such-host.invalid:1"))


def test_keys_do_not_follow_redirects() -> None:
    """Whatever a server says, headers with secrets go to it alone."""
    with telling({}) as other:
        there = {"Location": other.url + "/metrics"}
        with telling(GOOD | {"/metrics": (302, {}, there), "/apply-template": (307, {}, there)}) as server:
            Probe(Wanted(server.url, headers=(("x-api-key", "SECRET"),))).ask()
        assert other.headers == []
        assert all(headers.get("x-api-key") == "SECRET" for headers in server.headers)


def test_connections_that_are_announced_to_be_kept_but_are_closed() -> None:
    """The server would reset the connection if a second question came on it."""
    body = json.dumps(GOOD["/v1/models"]).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with ScriptedServer([answer + body, "read", "reset"]) as server:
        Probe(Wanted(server.url)).ask()
