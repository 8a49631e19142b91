"""The files of a recording."""

from __future__ import annotations

import json
import os
import signal
import time
import tracemalloc
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from llama_load.ground.errors import UsageError
from llama_load.outside.plain_http import Session
from llama_load.record import named_lines
from llama_load.record import recording as recording_module
from llama_load.record.passed_exchange import PassedExchange, encoded
from llama_load.record.read_exchange import read_exchange
from llama_load.record.recording import Recording
from llama_load.record.recording_process import Interrupts, record_all
from llama_load.servers.token_blocks import ServerTokens
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


@pytest.mark.parametrize(
    ("end", "last", "status", "failure"),
    [
        ("client", b"data: [DONE]\n\n", 200, ""),
        ("client", b"", 200, "the client went away"),
        ("client", b"data: [DONE]\n\n", 500, "HTTP 500"),
        ("server", b"data: [DONE]\n\n", 200, "the server ended it"),
    ],
)
def test_a_client_that_hangs_up_at_the_end_of_a_stream_has_its_answer(
    end: str, last: bytes, status: int, failure: str
) -> None:
    """As the OpenAI package does: the end of the body may come after it."""
    exchange = passed(1, "/v1/chat/completions", CHAT | {"stream": True})
    exchange.content_type = "text/event-stream"
    exchange.end = end
    exchange.status = status
    event = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    exchange.pieces = [(1, event), (2, last)]
    seen = read_exchange(exchange)
    assert seen is not None
    assert seen.failure == failure
    assert seen.reply_text == "Hi"


@pytest.mark.parametrize(
    ("end", "status", "failure"),
    [
        ("relay", 502, "the server could not be reached"),
        ("relay", 400, "refused by the recorder"),
        ("client", 0, "the client went away"),
    ],
)
def test_a_request_that_came_in_part_is_a_failure_by_its_cause(
    end: str, status: int, failure: str, tmp_path: Path
) -> None:
    """It was "not recorded: its body is not understood"."""
    exchange = passed(1, "/v1/chat/completions", CHAT)
    exchange = replace(
        exchange, request=exchange.request[:9], end=end, status=status, pieces=[]
    )
    said: list[str] = []
    recording = Recording(tmp_path / "talk.jsonl", said.append, None)
    recording.take(exchange)
    (line,) = said
    assert line.endswith(failure), line
    assert recording.summary(None)[0].startswith("1 request, 1 without a complete")


def test_a_line_names_the_conversation_as_the_file_does(tmp_path: Path) -> None:
    said: list[str] = []
    recording = Recording(tmp_path / "talk.jsonl", said.append, None)
    recording.take(passed(1, "/v1/chat/completions", CHAT))
    recording.write_conversations()
    recording.write()
    recording.close()
    (line,) = (tmp_path / "talk.jsonl").read_text().splitlines()
    assert f"  {json.loads(line)['id']} turn 1  " in said[0]


def kept_bytes(recording: Recording, bodies: Iterable[dict[str, object]]) -> int:
    """What the recording keeps in memory of these requests."""
    tracemalloc.start()
    for number, body in enumerate(bodies, start=1):
        recording.take(passed(number, "/v1/chat/completions", body))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept


LARGE = "x" * (1 << 16)


@pytest.mark.parametrize(
    "field",
    [
        {"model": LARGE},
        {"lora": [LARGE]},
        {"chat_template_kwargs": {"a": LARGE}},
        {"tool_choice": LARGE},
        {"tools": [LARGE]},
        {"stop": [LARGE]},
        {"messages": [{"role": "user", "content": [LARGE]}]},
        {"messages": [{"role": LARGE, "content": "a"}]},
        {"messages": [{"role": "user", "content": ["a"] * 500}]},
    ],
    ids=lambda field: next(iter(field)),
)
def test_no_field_of_a_request_is_kept_uncounted(
    field: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name of a model, an adapter and parts of a message had no limit in all: who could connect
    could fill the memory."""
    monkeypatch.setattr("llama_load.record.joined_conversations.MOST_BYTES", 1 << 18)
    monkeypatch.setattr("llama_load.record.earlier_prompts.MOST_BYTES", 1 << 18)
    session = Session()
    server = ServerTokens(session, "http://127.0.0.1:9")
    recording = Recording(tmp_path / "t.jsonl", lambda _: None, None, counter=server)
    bodies = ({"seed": number, **CHAT, **field} for number in range(30))
    assert kept_bytes(recording, bodies) < 5 << 18
    recording.close()


@pytest.mark.parametrize(
    "field",
    [
        {"messages": [{}] * 200_000},
        {"messages": [{"role": "user", "content": [1] * 200_000}]},
        {"tools": [1] * 200_000},
        {"user": 1_010_000},  # made in the test: it takes a second
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_request_of_very_many_parts_does_not_hold_up_the_others(
    field: dict[str, object], tmp_path: Path
) -> None:
    """One of 64 MiB took minutes, in which nothing else was recorded."""
    if isinstance(parts := field.get("user"), int):
        field = {"user": dict.fromkeys(map(str, range(parts)), 1)}
    recording = Recording(tmp_path / "t.jsonl", lambda _: None, None)
    request = passed(1, "/v1/chat/completions", CHAT | field)
    started_s = time.process_time()
    recording.take(request)
    assert time.process_time() - started_s < 3
    assert "more than" in str(recording.summary(None))
    recording.close()


def test_clients_that_make_up_reasons_fill_no_memory(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "t.jsonl", lambda _: None, None)
    for number in range(1500):
        request = passed(number, "/v1/chat/completions", CHAT)
        recording.take(replace(request, request_encoding=f"coding-{number}"))
    assert len(recording._reasons) == 1001
    assert recording._reasons["other reasons"] == 500
    recording.close()


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


# ---------------------------------------------------------------------- while it goes on


def next_turn(number: int, first: str, turns: int) -> PassedExchange:
    """The last request of a conversation that begins so, with as many turns."""
    messages: list[dict[str, str]] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{first} {turn}"})
        messages.append({"role": "assistant", "content": "a"})
    return passed(number, "/v1/chat/completions", CHAT | {"messages": messages[:-1]})


def talks_in(out: Path) -> list[str]:
    """The first text of each conversation in a file, and how many messages it has."""
    found = []
    for line in out.read_text().splitlines():
        if line.strip():
            messages = json.loads(line)["messages"]
            found.append(f"{messages[0]['content']}: {len(messages)}")
    return found


def test_conversations_go_to_the_file_as_they_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends the recording costs what was under way. One that goes on has one line."""
    out = tmp_path / "talk.jsonl"
    recording = Recording(out, lambda _: None, None)
    recording.take(next_turn(1, "a", 1))
    recording.save_rested()
    assert talks_in(out) == []
    monkeypatch.setattr(recording_module, "REST_S", 0.0)
    recording.take(next_turn(2, "b", 1))
    recording.save_rested()
    assert talks_in(out) == ["a 0: 2", "b 0: 2"]
    recording.take(next_turn(3, "a", 2))
    recording.save_rested()
    assert talks_in(out) == ["b 0: 2", "a 0: 4"]
    recording.take(next_turn(4, "c", 1))
    recording.write_conversations()
    recording.close()
    assert talks_in(out) == ["a 0: 4", "b 0: 2", "c 0: 2"]
    assert len(out.read_bytes().splitlines()) == 3
    assert out.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["talk.jsonl"]
    assert "3 lines in" in recording.summary(None)[-1]


def test_one_that_never_rests_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_module, "MOST_UNSAVED_S", 0.0)
    recording = Recording(tmp_path / "talk.jsonl", lambda _: None, None)
    recording.take(next_turn(1, "a", 1))
    recording.save_rested()
    assert talks_in(tmp_path / "talk.jsonl") == ["a 0: 2"]
    recording.close()


def test_who_asks_for_the_end_has_at_once_what_was_recorded(tmp_path: Path) -> None:
    """Exchanges that still wait are read after that, and given up when asked again."""
    out = tmp_path / "talk.jsonl"
    recording = Recording(out, lambda _: None, None)
    reads, writes = os.pipe()
    interrupts = Interrupts()
    written_at_the_signal: list[str] = []

    def ask_for_the_end() -> None:
        interrupts.came(signal.SIGINT, None)
        os.write(writes, encoded(next_turn(2, "b", 1)))

    def look(_: str) -> None:
        if not interrupts.is_new and recording._counts["requests"] == 1:
            ask_for_the_end()
        else:
            written_at_the_signal.extend(talks_in(out))
            interrupts.gives_up = True
            os.write(writes, encoded(next_turn(3, "c", 1)))
            os.close(writes)

    recording._say = look
    os.write(writes, encoded(next_turn(1, "a", 1)))
    with FileIO(reads) as source:
        record_all(source, recording, interrupts)
    recording.write_conversations()
    recording.close()
    assert written_at_the_signal == ["a 0: 2"]
    assert talks_in(out) == ["a 0: 2", "b 0: 2"]
    assert any("ended before it was read" in line for line in recording.summary(None))


def test_the_place_of_replaced_lines_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_lines, "LEAST_WASTE_BYTES", 1000)
    lines = named_lines.NamedLines(tmp_path / "a")
    for turn in range(100):
        lines.put(turn % 3, "x" * turn)
        assert lines.path.stat().st_size < 1500
    lines.drop(1)
    lines.put_in_order()
    lines.close()
    found = [len(json.loads(line)) for line in lines.path.read_text().splitlines()]
    assert found == [99, 98]
    assert lines.lines == 2
