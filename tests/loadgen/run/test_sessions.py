"""Servers that hand out sessions: their token goes back with later turns, and into no file; hits
and misses are counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from llama_load.ground.errors import UsageError
from llama_load.loadgen.users.session_tokens import SessionHeaders, without_token
from llama_load.run_folder.observed.record import (
    KEPT_SESSION,
    NEW_SESSION,
    NO_SESSION,
    OTHER_SESSION,
)
from tests.conftest import REPOSITORY, Finished
from tests.json_server import JsonServer, json_server, streamed
from tests.loadgen.options.test_options import options

TALKS = 6


def talk(number: int) -> dict[str, Any]:
    """Three turns."""
    roles = ("user", "assistant") * 3
    return {
        "id": f"talk {number}",
        "messages": [{"role": role, "content": f"{role} {number}"} for role in roles],
    }


def chats(sessions: count[int], replica: str) -> Callable[[object], object]:
    """Answers, each with a new session; but the fifth is an error that quotes the session of the
    fourth."""

    def answer(_: object) -> object:
        number = next(sessions)
        if number == 4:
            return (
                400,
                {"error": {"message": "no such session: secret-3-token"}},
                {"X-Served-By": replica},
            )
        choice = {
            "index": 0,
            "delta": {"content": f"answer {number}"},
            "finish_reason": "stop",
        }
        status, body, headers = streamed({"choices": [choice], "model": "m"})
        return (
            status,
            body,
            headers | {"X-Session": f"secret-{number}-token", "X-Served-By": replica},
        )

    return answer


def sent(server: JsonServer) -> list[tuple[str | None, int]]:
    """The session of each chat request, and its number of messages."""
    headers = [
        headers.get("X-Session")
        for headers in server.headers
        if "X-Request-Id" in headers
    ]
    return list(
        zip(
            headers,
            [
                len(body["messages"])
                for path, body in server.bodies
                if "messages" in body
            ],
            strict=True,
        )
    )


def run(
    run_locust: Callable[..., Finished], tmp_path: Path, *flags: str
) -> tuple[Finished, list[list[tuple[str | None, int]]]]:
    """A run of some conversations over two replicas."""
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(json.dumps(talk(number)) + "\n" for number in range(TALKS)))
    sessions = count()
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                json_server(
                    {
                        "/health": {},
                        "/v1/models": {"data": [{"id": "m"}]},
                        "/v1/chat/completions": chats(sessions, name),
                    }
                )
            )
            for name in ("x", "y")
        ]
        hosts = ",".join(server.url for server in servers)
        arguments = (
            "-u",
            "1",
            "--warmup",
            "0",
            "--num-prompts",
            str(3 * TALKS),
            "--dataset-path",
            str(path),
            *flags,
        )
        done = run_locust(
            hosts,
            *arguments,
            locustfile=REPOSITORY / "locustfiles" / "conversations.py",
        )
        return done, [sent(server) for server in servers]


def test_later_turns_carry_the_session_and_stay_with_their_replica(
    run_locust: Any, tmp_path: Path
) -> None:
    done, (x, y) = run(
        run_locust,
        tmp_path,
        "--session-header",
        "X-Session",
        "--replica-header",
        "X-Served-By",
    )
    assert len(x) == len(y) == 3 * TALKS // 2
    rows = done.records
    # Every first turn has no token, later ones that of the first answer: the sessions are numbered
    # as they are made.
    for requests, first in ((x, 0), (y, 3)):
        assert [token for token, _ in requests] == [
            token
            for number in range(first, 3 * TALKS, 6)
            for token in (None, *[f"secret-{number}-token"] * 2)
        ]
    # This server never keeps one.
    assert rows.strings("session") == [
        *(
            NEW_SESSION,
            OTHER_SESSION,
            OTHER_SESSION,
            NEW_SESSION,
            KEPT_SESSION,
            OTHER_SESSION,
        ),
        *[NEW_SESSION, OTHER_SESSION, OTHER_SESSION] * 4,
    ]
    assert rows.failed().strings("error") == ["HTTP 400: no such session: ***"]
    assert set(rows.strings("replica")) == {"x", "y"}
    ours = done.summary["llama_load"]
    assert (
        ours["affinity"]["ratio"],
        ours["affinity"]["hit"]["turns"],
        ours["affinity"]["miss"]["turns"],
    ) == (1.0, 2 * TALKS - 1, 0)
    assert [replica["hits"] for replica in ours["affinity"]["replicas"]] == [6, 6]
    checks = {check["name"]: check for check in ours["verdict"]["checks"]}
    assert checks["missing_sessions"]["value"] == 0
    assert (
        f"began another session in {2 * TALKS - 1} of {2 * TALKS} later turns"
        in checks["other_sessions"]["text"]
    )
    assert "Session Affinity" in done.out
    for file in filter(Path.is_file, done.folder.rglob("*")):
        assert b"secret-" not in file.read_bytes(), file


def test_every_turn_at_another_replica_is_a_miss(
    run_locust: Any, tmp_path: Path
) -> None:
    done, (x, y) = run(
        run_locust, tmp_path, "--balance", "every-turn", "--session-header", "X-Other"
    )
    assert [messages for _, messages in x] == [1, 5, 3] * 3
    assert [messages for _, messages in y] == [3, 1, 5] * 3
    ours = done.summary["llama_load"]
    assert ours["affinity"]["ratio"] == 0.0
    assert set(done.records.strings("session")) == {NO_SESSION}
    checks = {check["name"]: check for check in ours["verdict"]["checks"]}
    assert (checks["missing_sessions"]["value"], checks["missing_sessions"]["ok"]) == (
        1.0,
        False,
    )


@pytest.mark.parametrize("value", ["", "a\ufffdb", "x" * 1001, "ü", "a\tb", "…"])
def test_a_token_that_cannot_be_sent_back_is_none(value: str) -> None:
    headers = SessionHeaders("X-Session")
    assert headers.token_in({"x-session": value}) is None
    assert headers.state(None, {"x-session": value}) == NO_SESSION


def test_states_cookies_and_replicas() -> None:
    headers = SessionHeaders("X-Session", "X-Session")
    assert headers.to_send(None) == ()
    assert headers.to_send("t") == (("X-Session", "t"),)
    assert (
        headers.state("t", {"x-session": "t"})
        == headers.state("t", {"date": "now"})
        == KEPT_SESSION
    )
    assert headers.state("t", {}) is None  # no answer
    # The token itself is not stored, but two tokens have two names.
    names = {
        headers.replica_in({"x-session": token})
        for token in ("secret-a", "secret-b", "secret-a")
    }
    assert len(names) == 2
    assert all(name is not None and "secret" not in name for name in names)
    cookies = SessionHeaders("Set-Cookie")
    assert cookies.token_in({"set-cookie": "id=7; Path=/; HttpOnly"}) == "id=7"
    assert cookies.to_send("id=7") == (("Cookie", "id=7"),)
    assert SessionHeaders().state("t", {"x-session": "t"}) is None
    assert without_token("no session abcdefg here", "abcdefg") == "no session *** here"
    assert without_token("no a", "a") == "no a"  # shorter ones may be words


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"session_header": "X Session"},
            "--session-header must be the name of one header",
        ),
        (
            {"session_header": "X-A,X-B"},
            "--session-header must be the name of one header",
        ),
        (
            {"replica_header": "X-Session: 3"},
            "--replica-header must be the name of one header",
        ),
        (
            {"session_header": "Content-Length"},
            "--session-header cannot be Content-Length",
        ),
        (
            {"session_header": "x-route", "header": ["X-Route: a"]},
            "--session-header cannot be x-route",
        ),
        (
            {"model": "a,b", "extra_body": '{"model": "c"}'},
            "--model conflicts with 'model' in --extra-body",
        ),
        (
            {"adapter": "0", "extra_body": '{"lora": []}'},
            "--adapter conflicts with 'lora' in --extra-body",
        ),
        ({"adapter": "0,b"}, "--adapter must be one or more names"),
        ({"model": "a=0"}, "--model must be one or more names"),
    ],
)
def test_conflicts_and_nonsense_are_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match="--") as refused:
        options(**given)
    assert why in str(refused.value)
