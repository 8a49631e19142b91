"""What servers are asked to do around a measurement."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llama_load.loadgen.run.server_controls_watcher import ServerControlsWatcher
from llama_load.outside.plain_http import Session
from llama_load.servers.address import parse_url
from llama_load.servers.kinds import kind_named, server_controls
from llama_load.servers.target import Target
from llama_load.servers.tls import TlsOptions
from tests.json_server import JsonServer, json_server

VLLM_PATHS = ("/reset_prefix_cache", "/start_profile", "/stop_profile")


def answering(paths: tuple[str, ...]) -> dict[str, str]:
    """A server that has these paths alone."""
    return dict.fromkeys(paths, "")


def watched(server: JsonServer, said: list[str]) -> ServerControlsWatcher:
    """Of a run before a vLLM at this URL."""
    target = Target(parse_url(server.url).resolved(), "vllm", "m")
    run = SimpleNamespace(abort=said.append)
    return ServerControlsWatcher(
        run,  # type: ignore[arg-type]
        [target],
        TlsOptions(),
        resets_cache=True,
        profiles=True,
    )


def test_the_profiler_runs_while_measured_with_an_empty_cache() -> None:
    """Twice for two measurements; a run that ends in one leaves no profiler."""
    said: list[str] = []
    reset, start, stop = VLLM_PATHS
    with json_server(answering(VLLM_PATHS)) as server:
        watcher = watched(server, said)
        watcher.before_measuring()
        assert [path for path, _ in server.bodies] == [reset, start]
        watcher.after_measuring([])
        watcher.before_measuring()
        watcher.stop()
        watcher.stop()
        paths = [path for path, _ in server.bodies]
    assert paths == [reset, start, stop] * 2
    assert said == []


def test_a_cache_that_requests_still_use_is_emptied_once_they_end() -> None:
    """vLLM answers 200 and {"success": false} while a request has blocks."""
    answers = iter(['{"success": false}', '{"success": false}', '{"success": true}'])
    kind = kind_named("vllm")
    with json_server({VLLM_PATHS[0]: lambda _: next(answers)}) as server:
        assert kind.reset_cache(Session(), server.url) == ""
        assert len(server.bodies) == 3
    with json_server({VLLM_PATHS[0]: ""}) as older:
        assert kind.reset_cache(Session(), older.url) == ""


def test_a_cache_that_is_never_free_is_not_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_controls, "TIMEOUT_S", 0.5)
    with json_server({VLLM_PATHS[0]: '{"success": false}'}) as server:
        why = kind_named("vllm").reset_cache(Session(), server.url)
    assert why == "requests held parts of it for 0.5 s"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ((), "the prompt cache was not emptied"),
        (VLLM_PATHS[:1], "the server's profiler did not start"),
    ],
)
def test_a_server_that_refuses_ends_the_run(
    paths: tuple[str, ...], expected: str
) -> None:
    said: list[str] = []
    with json_server(answering(paths)) as server:
        watcher = watched(server, said)
        watcher.before_measuring()
        watcher.after_measuring([])
        assert "/stop_profile" not in [path for path, _ in server.bodies]
    (sentence,) = said
    assert sentence.startswith(f"{expected}: {server.url}: vLLM needs")
