"""The files of a recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from llama_load.errors import UsageError
from llama_load.record.passed_exchange import PassedExchange
from llama_load.record.recording import Recording
from tests.foreign_readers import ANSWERED_CHAT

CHAT = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
PROMPT = {"prompt": "a"}


def passed(number: int, path: str, body: dict[str, object]) -> PassedExchange:
    return PassedExchange(
        number=number,
        method="POST",
        path=path,
        started_ns=number * 10**9,
        started_wall_ns=number * 10**9,
        ended_ns=number * 10**9 + 10**8,
        request=msgspec.json.encode(body),
        status=200,
        content_type="application/json",
        pieces=[(number * 10**9 + 10**7, ANSWERED_CHAT)],
    )


def test_a_file_beside_the_recording_is_never_in_its_way(tmp_path: Path) -> None:
    """One that is there before refuses the start. One that comes later costs its own lines, and no
    conversation."""
    out = tmp_path / "talk.jsonl"
    beside = tmp_path / "talk.requests.jsonl"
    beside.write_text("mine")
    with pytest.raises(UsageError, match=r"talk\.requests\.jsonl exists"):
        Recording(out, lambda _: None, None)
    assert not out.exists()

    beside.unlink()
    recording = Recording(out, lambda _: None, None)
    beside.write_text("mine")
    recording.take(passed(1, "/v1/chat/completions", CHAT))
    recording.take(passed(2, "/completion", PROMPT))
    recording.write_conversations()
    recording.close()
    assert beside.read_text() == "mine"
    (line,) = out.read_bytes().splitlines()
    assert msgspec.json.decode(line)["messages"][0]["content"] == "a"
    assert any("talk.requests.jsonl exists" in line for line in recording.summary(None))


ODD = (None, 1, 10**400, 1.5, True, "a", [1], [[]], [{}], {"a": 1}, "\ud800")
TALKS = (
    ("/v1/chat/completions", ("messages", 0, "tool_calls")),
    ("/v1/chat/completions", ("messages", 0, "content")),
    ("/v1/chat/completions", ("messages", 0, "role")),
    ("/v1/chat/completions", ("tools",)),
    ("/v1/messages", ("system",)),
    ("/v1/messages", ("messages", 0, "content", 0)),
    ("/v1/responses", ("instructions",)),
    ("/v1/responses", ("input", 0, "content", 0)),
)


@pytest.mark.parametrize(("path", "place"), TALKS, ids=str)
def test_no_body_of_a_client_ends_the_recording(
    path: str, place: tuple[str | int, ...], tmp_path: Path
) -> None:
    """The recording process has the conversations of all clients in memory."""
    recording = Recording(tmp_path / "talk.jsonl", lambda _: None, None)
    recording.take(passed(1, "/v1/chat/completions", CHAT))
    for number, odd in enumerate(ODD, start=2):
        body = talk()
        at: Any = body
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = odd
        request = json.dumps(body).encode()
        recording.take(replace(passed(number, path, {}), request=request))
    recording.write_conversations()
    recording.write_turns()
    recording.close()
    assert b'"content":"a"' in (tmp_path / "talk.jsonl").read_bytes()
    assert not any("as it was read" in line for line in recording.summary(None))


def talk() -> dict[str, Any]:
    message = {"role": "user", "content": [{"type": "text", "text": "b"}]}
    return {"messages": [message], "input": [message], "tools": []}


def test_what_cannot_be_read_costs_one_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording(tmp_path / "talk.jsonl", lambda _: None, None)
    recording.take(passed(1, "/v1/chat/completions", CHAT))
    with monkeypatch.context() as patch:
        patch.setattr("llama_load.record.recording.read_exchange", lambda _: 1 / 0)
        recording.take(passed(2, "/v1/chat/completions", CHAT))
    recording.write_conversations()
    recording.close()
    assert (tmp_path / "talk.jsonl").read_bytes().count(b"\n") == 1
    assert any("ZeroDivisionError" in line for line in recording.summary(None))
