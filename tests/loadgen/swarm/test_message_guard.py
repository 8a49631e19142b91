"""A malformed message costs itself and nothing else: the master hears every worker afterwards, and
names the peer once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from locust.stats import RequestStats

from llama_load.loadgen.swarm import messages
from llama_load.loadgen.swarm.message_guard import BODIES, check_body
from llama_load.loadgen.swarm.swarm_key import curve_keys
from tests.conftest import Simulated, environment
from tests.swarms import Stranger, swarm, wait_until

KEY = "swarm-key-0123456789"
RUN = {"run": "0" * 16}


def stats() -> dict[str, Any]:
    entries = RequestStats()
    entries.log_request("POST", "chat", 12.5, 100)
    entries.log_request("POST", "chat", None, 100)
    entries.log_error("POST", "chat", ValueError("x"))
    body = {
        "stats": entries.serialize_stats(),
        "errors": entries.serialize_errors(),
        "stats_total": entries.total.serialize(),
    }
    return body | {
        "user_classes_count": {"Chat": 3},
        "user_count": 3,
        "a_listeners": {"own": [1]},
    }


GOOD: dict[str, Any] = {
    "client_ready": "2.47.0",
    "locustfile": {"version": "2.47.0"},
    "client_stopped": None,
    "heartbeat": {
        "state": "running",
        "current_cpu_usage": 12.5,
        "current_memory_usage": 1000,
    },
    "stats": stats(),
    "spawning": None,
    "spawning_complete": {"user_classes_count": {"Chat": 3}, "user_count": 3},
    "logs": {"worker_id": "w", "logs": ["a line"]},
    "quit": None,
    "exception": {"msg": "x", "traceback": "y"},
    messages.HELLO: {"pid": 1, "machine": None},
    messages.REFUSE: {"sentence": "no"},
    messages.ABORT: RUN | {"sentence": "no"},
    messages.REPORT: RUN
    | {"started": [[False, 1, 1]], "ended": [[False, 0, False]], "wants": {"Chat": 3}},
    messages.BACK: RUN | {"keys": [[True, 1]]},
    messages.RECORDS: RUN | {"number": 1, "batch": b"x"},
    messages.TOKENS: RUN | {"answers": [[0, 0, 5, bytes(8)]]},
    messages.PONG: RUN
    | {
        "asked_ns": 1,
        "worker_ns": -5,
        "delivered": 0,
        "holds": [[False, 3]],
        "held_open": [[False, 3]],
        "wants": {"Chat": 2},
    },
    messages.FLUSHED: RUN
    | {"batches": 1, "open": [[False, 1]], "gave_up": False, "health": {"worker": "w"}},
}
WRONG = (None, 5, 5.5, "x", b"x", {}, [], [5], {"run": 5}, {5: 5})


def variants(kind: str) -> list[Any]:
    """Bodies that are wrong as a whole, or in one field."""
    body = GOOD[kind]
    found = [
        wrong
        for wrong in WRONG
        if not (wrong == body or (isinstance(wrong, str) and isinstance(body, str)))
    ]
    if isinstance(body, dict):
        found += [
            {**body, name: wrong}
            for name in body
            for wrong in (None, 5.5, "x", [5], {"x": "x"})
            if name != "a_listeners"
        ]
        found += [{**body, "wants": {"Chat": -1}}] if "wants" in body else []
    return [each for each in found if not is_good(kind, each)]


def is_good(kind: str, body: Any) -> bool:
    try:
        check_body(kind, body)
    except ValueError:
        return False
    return True


def test_every_message_has_a_body_that_is_checked() -> None:
    assert GOOD.keys() == BODIES.keys()
    for kind, body in GOOD.items():
        assert is_good(kind, body), kind
        for wrong in (5, [], [5], {5: 5}):
            assert not is_good(kind, wrong), (kind, wrong)
    for wrong_kind, field in (
        ("heartbeat", "current_cpu_usage"),
        ("stats", "stats_total"),
        (messages.PONG, "worker_ns"),
    ):
        for wrong in ("x", None, [5], 2**70):
            if not (field == "current_cpu_usage" and wrong == 2**70):
                assert not is_good(wrong_kind, GOOD[wrong_kind] | {field: wrong}), (
                    field,
                    wrong,
                )


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 2**63])
def test_locust_gets_no_number_that_it_cannot_count_with(wrong: float) -> None:
    """int(inf) ended the greenlets that keep its history and print its table. What a locustfile's
    listeners add is their own."""
    entry = stats()["stats_total"]
    for changed in ({"last_request_timestamp": wrong}, {"response_times": {wrong: 1}}):
        assert not is_good("stats", stats() | {"stats_total": entry | changed})
    assert not is_good("heartbeat", GOOD["heartbeat"] | {"current_cpu_usage": wrong})
    assert is_good("stats", stats() | {"a_listeners": wrong})


def test_a_fingerprint_tells_other_messages_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two copies of one version, of which one was changed."""
    messages.fingerprint.cache_clear()
    mine = messages.fingerprint()
    monkeypatch.setitem(messages.TO_MASTER, messages.REPORT, messages.Back)
    messages.fingerprint.cache_clear()
    assert messages.fingerprint() != mine
    messages.fingerprint.cache_clear()


def test_a_fingerprint_is_of_names_and_types_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without docstrings it is the same. (Python 3.13 indents them unlike 3.11: its workers were
    refused.)"""
    messages.fingerprint.cache_clear()
    mine = messages.fingerprint()
    bodies = [*messages.TO_MASTER.values(), messages.RunConfig, messages.RequestRecord]
    assert any(body.__doc__ for body in bodies)
    for body in bodies:
        monkeypatch.setattr(body, "__doc__", None)
    messages.fingerprint.cache_clear()
    assert messages.fingerprint() == mine
    messages.fingerprint.cache_clear()


def test_nonsense_ends_nothing(
    tmp_path: Path, simulate: Callable[..., Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with the key sends every message with every wrong body, and the messages of a
    master; another leaves before the test; then a good worker finishes the run. (`heartbeat` with
    None made the master deaf for good. Locust quits in the greenlet that receives messages when
    its last worker does: the master never heard another one.)"""
    monkeypatch.setattr(
        "tests.swarms.environment",
        lambda: environment() | {"LLAMA_LOAD_SWARM_KEY": KEY},
    )
    server = simulate("--interval-ms", "1")
    load = ("-u", "2", "--num-prompts", "6", "--max-tokens", "2", "--warmup", "0")
    with swarm(tmp_path / "s", server.url, 0, *load, expect=1) as running:
        bad = Stranger(running.port, "bad_1", curve_keys(KEY))
        for kind in GOOD:
            for body in variants(kind):
                bad.say(kind, body)
        for kind in (
            *messages.TO_WORKER,
            "spawn",
            "ack",
            "stop",
            "reconnect",
            "update_user_class",
            "\x1b[31m",
            "x" * 10_000,
        ):
            bad.say(kind, {"run": "x"})
        bad.say("logs", {"worker_id": "another", "logs": []})
        bad.say(messages.HELLO, GOOD[messages.HELLO])
        leaves = Stranger(running.port, "leaves_1", curve_keys(KEY))
        leaves.say("client_ready", GOOD["client_ready"])
        leaves.say("quit", None)
        running.add_worker()
        done = running.finish()
        bad.close()
        leaves.close()
    assert done.code == 0, done.err
    assert len(done.records.measured()) == 6
    assert done.err.count("a message of worker bad_1 is ignored") == 1
    assert "Traceback" not in done.err
    assert "\x1b" not in done.err


@pytest.mark.heavy
def test_a_test_whose_workers_have_all_stopped_goes_on_with_the_next(
    tmp_path: Path, simulate: Callable[..., Simulated]
) -> None:
    """Locust regards such a test as stopped, though nobody stops it: it started no users for the
    next worker, and did not end. Catches a state of Locust's master in which it starts no users
    again."""
    server = simulate("--interval-ms", "1")
    load = ("-u", "2", "--num-prompts", "6", "--max-tokens", "2", "--warmup", "0")
    with swarm(tmp_path / "s", server.url, 0, *load, expect=1) as running:
        stranger = Stranger(running.port)
        stranger.say("client_ready", GOOD["client_ready"])
        wait_until(lambda: stranger.heard("spawn"))
        stranger.say("client_stopped", None)
        running.add_worker()
        done = running.finish()
        stranger.close()
    assert done.code == 0, done.err
