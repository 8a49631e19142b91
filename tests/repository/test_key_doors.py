"""Keys go to the server that a person named, through one door: `llama_load.outside.bound_headers`."""

from __future__ import annotations

import ast
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from llama_load.cli import found_server, otlp_push
from llama_load.cli.main import main
from llama_load.ground import processes
from llama_load.ground.errors import UsageError
from llama_load.ground.processes import listens_as_we_do
from llama_load.loadgen.options.server_keys import (
    KEYS_FOR,
    environment_key_for,
    headers_for,
)
from llama_load.loadgen.wire.request import Request
from llama_load.outside import plain_http
from llama_load.outside.bound_headers import (
    NO_HEADERS,
    OtherServerError,
    UnsendableError,
    bearer,
    bound,
    field_lines,
    is_bearer,
    origin_of,
)
from llama_load.outside.plain_http import NoAnswerError
from llama_load.outside.terminal import STARTED_AS
from llama_load.servers.address import parse_url
from tests.conftest import environment, run_program
from tests.json_server import json_server
from tests.repository.source import name_in_package, nodes_of, package_files

KEY = "sk-door-0123456789"
# Who has named the URL that keys are bound to.
BINDS = {
    "loadgen/options/server_keys.py": "the command line, the environment or a plan",
    "loadgen/run/telemetry_process.py": "--scrape",
    "cli/otlp_push.py": "--push",
    "servers/serving/cold_start.py": "a server that we have started, with its own key",
}
# What sends requests without `plain_http` and `wire`, with keys of its own.
OTHER_CLIENTS = {
    "run_folder/upload.py",
    "loadgen/workloads/huggingface.py",
    "lab/dataset_tools/catalogue.py",
    "loadgen/wire/request_heads.py",  # raises one of http.client's errors, sends nothing
}
CLIENTS = {
    "requests",
    "urllib.request",
    "http.client",
    "urllib3",
    "httpx",
    "aiohttp",
    "fsspec",
    "geventhttpclient",
}


WORDS = re.compile(
    r"(?i)authorization|bearer|BoundHeaders\(|\bbound\(|\b(?:"
    + "|".join(map(re.escape, CLIENTS))
    + r")\b"
)


def modules() -> Iterator[Path]:
    """Those with one of the words."""
    return (path for path in package_files() if WORDS.search(path.read_text()))


def called(node: ast.AST) -> str:
    return (
        node.func.id
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        else ""
    )


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_no_other_module_makes_an_authorization_header_or_binds_keys() -> None:
    headers, constructed, binds, clients = set(), set(), set(), set()
    for path in modules():
        name = name_in_package(path)
        for node in nodes_of(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value.casefold()
                if text == "authorization" or text.startswith("bearer "):
                    headers.add(name)
            if called(node) == "BoundHeaders":
                constructed.add(name)
            if called(node) == "bound":
                binds.add(name)
            if any(module in CLIENTS for module in imported(node)):
                clients.add(name)
    assert headers == {"outside/bound_headers.py"}
    # the second one reads them from its pipe
    assert constructed == {"outside/bound_headers.py", "run_folder/sampler_config.py"}
    assert binds == BINDS.keys()
    assert clients <= OTHER_CLIENTS


@pytest.mark.parametrize("value", ["a\r\nX: b", "a\nb", "a\0", "\x1b[2J", "a\x7f"])
def test_no_field_of_a_head_is_two(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is from: OpenTelemetry's variable has escapes as in URLs."""
    with pytest.raises(UnsendableError, match="X-Key"):
        field_lines([("X-Key", value)])
    address = parse_url("http://127.0.0.1:9").resolved()
    with pytest.raises(UnsendableError):
        Request("GET", "/", (("X-Key", value),)).head(address)
    with pytest.raises(NoAnswerError, match="cannot be sent"):
        plain_http.request("GET", address.url, harmless=[("X-Key", value)])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"X-Key={quote(value)}")
    with pytest.raises(UsageError, match="control character"):
        list(otlp_push._headers())
    assert field_lines([("A", "b\tc")]) == ["A: b\tc"]


@pytest.mark.parametrize(
    ("named", "asked"),
    [
        ("http://a:80", "http://A/v1"),
        ("a:8080/v1", "http://a:8080"),
        ("https://a", "https://a:443/x?y=z"),
        ("http://[::1]:1", "http://[::1]:1/x"),
        ("http://bücher.example", "http://xn--bcher-kva.example:80/"),
    ],
)
def test_keys_go_to_the_origin_that_they_are_for(named: str, asked: str) -> None:
    assert bound(named, bearer("k")).for_origin(origin_of(asked)) == bearer("k")


@pytest.mark.parametrize(
    "asked",
    ["http://a:8081", "https://a:8080", "http://a.evil:8080", "http://a@evil:8080", "http://127.0.0.1:8080", "ftp://a:8080", "//a:8080", "", "http://a:99999", "http://[a:8080"],
)  # fmt: skip
def test_keys_go_to_no_other_origin(asked: str) -> None:
    keys = bound("http://a:8080", bearer(KEY))
    with pytest.raises(OtherServerError) as told:
        keys.for_origin(origin_of(asked))
    assert KEY not in str(told.value)
    assert NO_HEADERS.for_origin(origin_of(asked)) == ()


def test_both_senders_refuse_to_carry_a_key_to_another_server() -> None:
    with json_server({"/x": {}}) as named, json_server({"/x": {}}) as other:
        session = plain_http.Session(bound(named.url, bearer(KEY)))
        assert session.get(f"{named.url}/x").ok
        with pytest.raises(OtherServerError):
            session.get(f"{other.url}/x")
        assert named.headers[0]["Authorization"] == f"Bearer {KEY}"
        assert other.headers == []
        request = Request("POST", "/x", keys=bound(named.url, bearer(KEY)))
        assert KEY.encode() in request.head(parse_url(named.url))
        with pytest.raises(OtherServerError):
            request.head(parse_url(other.url))


def test_a_redirect_carries_no_key() -> None:
    with json_server({}) as other:
        away = (307, {}, {"Location": f"{other.url}/x"})
        with json_server({"/x": away}) as named:
            assert (
                plain_http.Session(bound(named.url, bearer(KEY)))
                .get(f"{named.url}/x")
                .status
                == 307
            )
        assert other.headers == []


def test_keys_in_the_environment_are_for_the_servers_named_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLAMA_LOAD_API_KEY", KEY)
    assert environment_key_for("http://a:1").fields == bearer(KEY)
    monkeypatch.setenv(KEYS_FOR, "http://a:1, https://b")
    assert environment_key_for("http://a:1/v1").fields == bearer(KEY)
    assert environment_key_for("https://b:443").fields == bearer(KEY)
    given = (*bearer(KEY), ("X-Team", KEY), ("User-Agent", "me"))
    for url in ("http://a:2", "http://b", "https://c"):
        assert headers_for(url, given).fields == (("User-Agent", "me"),)
    monkeypatch.setenv(KEYS_FOR, "none")
    assert environment_key_for("http://a:1").fields == ()


def test_a_bearer_token_is_compared_whole() -> None:
    assert is_bearer("Bearer geheim", "geheim")
    for given in (
        "",
        "geheim",
        "Bearer gehei",
        "Bearer geheim2",
        "Basic geheim",
        "Bearer ü",
        "Bearer \udcff",
    ):
        assert not is_bearer(given, "geheim")


MODELS = {"data": [{"id": "m", "owned_by": "stranger"}]}
HEADERS = {"LLAMA_LOAD_API_KEY": KEY, "LLAMA_LOAD_HEADER": f"X-Team: {KEY}"}


@pytest.mark.parametrize("answer", ["", "no", "yes"])
def test_a_server_that_was_found_gets_a_key_only_if_the_person_agrees(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`answer`: "" where nobody can be asked. The chat endpoint refuses everything: the run is over
    at once. It is a fork of what the command starts."""
    for name, value in (HEADERS | {KEYS_FOR: "", STARTED_AS: ""}).items():
        monkeypatch.setenv(name, value)
    started: list[list[str]] = []

    def execv(_: str, command: list[str]) -> None:
        started.append(command)
        raise SystemExit

    monkeypatch.setattr("os.execv", execv)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(found_server, "is_there", lambda: bool(answer))
    monkeypatch.setattr(found_server, "agrees", lambda question: answer == "yes")
    pages = {
        path: {} for path in ("/health", "/props", "/metrics", "/slots", "/version")
    }
    models = (200, MODELS, {"Content-Type": "application/json"})
    with json_server(
        {"/v1/models": models, "/v1/chat/completions": (500, {}, {})} | pages
    ) as server:
        ports = [server.server_address[1]]
        monkeypatch.setattr(found_server, "USUAL_PORTS", ports)
        with suppress(SystemExit):
            main(["run", "-u", "1", "--num-prompts", "1", "--warmup", "0"])
        kept = {name: os.environ[name] for name in (*HEADERS, KEYS_FOR, STARTED_AS)}
        run_program(
            started[0][started[0].index("locust") :], tmp_path, environment() | kept
        )
        got = [headers for headers in server.headers if KEY in str(headers)]
        assert len(server.headers) > 3  # it was found, and asked what it is
    assert bool(got) == (answer == "yes")


def test_a_process_is_ours_only_if_all_that_listens_on_the_port_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        assert listens_as_we_do(port)
        with monkeypatch.context() as patched:  # we are everybody whom nobody knows
            patched.setattr(processes, "_overflow_user", os.getuid)
            assert not listens_as_we_do(port)
        if os.getuid() == 0:  # a stranger's socket beside ours, on another address
            code = f"import os, socket; os.setuid(65534); s = socket.create_server(('127.0.0.2', {port})); print(flush=True); input()"
            stranger = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            try:
                stranger.stdout.readline()
                assert not listens_as_we_do(port)
            finally:
                stranger.communicate(b"\n", timeout=10)
    assert not listens_as_we_do(port)
