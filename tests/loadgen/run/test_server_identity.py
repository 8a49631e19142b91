"""The server is asked again at the end of a run: what changed is named."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llama_load.loadgen.preflight.target_rows import target_rows
from llama_load.loadgen.run.server_facts import NO_ANSWER, changes_since
from llama_load.servers.probe import Probe, ProbeSettings
from llama_load.servers.serving.launch import Server
from tests.conftest import Finished, Simulated
from tests.json_server import json_server

MODELS = {"data": [{"id": "m", "owned_by": "llamacpp", "object": "model"}]}
START = 1_795_000_000.0


def props(build: str, slots: int = 4) -> dict[str, Any]:
    return {
        "total_slots": slots,
        "build_info": build,
        "model_path": "/models/m-q4.gguf",
        "default_generation_settings": {"n_ctx": 64},
    }


def metrics(started_s: float) -> str:
    return f"process_start_time_seconds {started_s}\nvllm:prompt_tokens_total 10\n"


def test_a_server_that_was_replaced_is_named_with_what_changed() -> None:
    replies: dict[str, Any] = {
        "/health": {},
        "/v1/models": MODELS,
        "/props": props("b7522"),
    }
    with json_server(replies) as server:
        probe = Probe(ProbeSettings(server.url))
        before = probe.ask()
        assert changes_since(probe, before) == []
        replies["/props"] = props("b7600", slots=8) | {
            "model_path": "/models/m-q8.gguf"
        }
        changes = changes_since(probe, before)
    assert changes == [
        "build b7522 -> b7600",
        "model file /models/m-q4.gguf -> /models/m-q8.gguf",
        "slots 4 -> 8",
    ]


def test_a_restart_is_seen_by_the_start_time(monkeypatch) -> None:
    """Asked 30 s after its start, it says 102 s later that it was started 72 s after the first
    question. A few ms are no restart."""
    replies: dict[str, Any] = {
        "/health": {},
        "/v1/models": MODELS,
        "/metrics": metrics(START),
    }
    with json_server(replies) as server:
        server.date_s = START + 30
        probe = Probe(ProbeSettings(server.url))
        before = probe.ask()
        assert (before.has_counters, before.facts.uptime_s) == (True, 30.0)
        replies["/metrics"] = metrics(START + 0.01)
        assert changes_since(probe, before) == []
        replies["/metrics"] = metrics(START + 102)
        assert changes_since(probe, before) == [
            "restarted during the run, 72 s after its preparation"
        ]


def test_a_server_that_was_just_started_is_named_before_the_run() -> None:
    for uptime_s, rows in ((12, ["12 s at "]), (3600, [])):
        with json_server(
            {"/health": {}, "/v1/models": MODELS, "/metrics": metrics(START)}
        ) as server:
            server.date_s = START + uptime_s
            found = [
                row
                for row in target_rows([Probe(ProbeSettings(server.url)).ask()], 1)
                if row.name == "uptime"
            ]
        assert len(found) == len(rows)
        assert all(text in row.value for text, row in zip(rows, found, strict=True))


def test_a_server_that_is_gone_did_not_answer() -> None:
    with json_server({"/health": {}, "/v1/models": MODELS}) as server:
        probe = Probe(ProbeSettings(server.url))
        before = probe.ask()
    (change,) = changes_since(probe, before)
    assert change.startswith(NO_ANSWER)
    assert "connection refused" in change


def test_a_clean_run_names_no_change_and_has_the_servers_counters(
    llama_server: Server, run_locust: Callable[..., Finished]
) -> None:
    """Prompt tokens and cached ones as llama-server counts them are those that it reports in its
    answers, without the warm-up's."""
    done = run_locust(
        llama_server.url, "--num-prompts", "6", "-u", "2", "--max-tokens", "4"
    )
    assert done.code == 0, done.err
    assert done.manifest["server_changes"] == []
    counters, measured = done.manifest["counters"], done.records.measured()
    assert counters["prompt_tokens"] == measured.numbers("prompt_tokens").sum()
    assert counters["cache_hits"] == measured.numbers("cached_tokens").sum()


def test_a_server_that_went_away_or_hangs_holds_up_no_run(
    simulate: Callable[..., Simulated],
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """The last task of the locustfile makes the server deaf: the run ends, and its manifest names
    that."""
    deaf = socket.create_server(("127.0.0.1", 0))
    (tmp_path / "last.py").write_text(
        "from locust import events, task\nfrom llama_load import LlamaUser\n"
        "@events.test_stopping.add_listener\ndef stopping(environment, **_):\n"
        "    from llama_load.loadgen.run import server_facts\n"
        "    from llama_load.servers import probe\n"
        "    server_facts.IDENTITY_WITHIN_S = 0.5\n"
        f"    probe.Probe.get = lambda self, path, **kw: self.session.get('http://127.0.0.1:{deaf.getsockname()[1]}', timeout=60)\n"
        "class Asks(LlamaUser):\n    @task\n    def ask(self):\n        self.chat('x', max_tokens=2)\n"
    )
    done = run_locust(
        simulate("--first-token-ms", "5").url,
        "--num-prompts",
        "2",
        locustfile=tmp_path / "last.py",
    )
    deaf.close()
    assert done.code == 0, done.err
    assert done.manifest["server_changes"] == [NO_ANSWER]
