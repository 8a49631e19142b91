"""Why prompts of a recording were processed again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llama_load.record.earlier_prompts import EarlierPrompts, PlacedPrompt
from llama_load.record.joined_conversations import Conversations
from llama_load.record.read_exchange import SeenRequest
from llama_load.record.recorded_turns import read_turns
from llama_load.record.recording import Recording
from llama_load.servers.serving.launch import Server
from llama_load.servers.serving.projector_maker import cached_projector
from tests.conftest import TINY, embedded_server, environment
from tests.foreign_readers import PASSED
from tests.record.test_differing_token import data_url
from tests.record.test_record_command import asked, recorder, told, user


def prompts(file: Path, *flags: str) -> str:
    """What `llama-load prompts` prints of it."""
    words = [sys.executable, "-m", "llama_load.cli.main", "prompts", str(file), *flags]
    done = subprocess.run(
        words, capture_output=True, check=False, text=True, env=environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def dated(turn: int) -> dict[str, Any]:
    return {"role": "system", "content": f"It is 1{turn}:0{turn}. Be brief."}


@pytest.mark.heavy
@pytest.mark.parametrize("flags", [(), ("--digest",)], ids=["texts", "digest"])
def test_a_date_in_the_system_prompt_is_named_with_its_place(
    llama_server: Server, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Though for the file each turn is a conversation of its own; another conversation beside it is
    whole, and has no cause. A digest has no text. Catches a cause that is not found with the
    server's own template and tokenizer."""
    history = [user(f"{flags} Please look at this item with care. " * 8)]
    other = [user(f"{flags} Something else is asked, again and again. " * 8)]
    with recorder(llama_server.url, tmp_path / "talk.jsonl", *flags) as running:
        for turn in range(3):
            answer = told(asked(running.url, [dated(turn), *history], temperature=0))
            history += [answer, user(f"And item {turn}?")]
            answer = told(asked(running.url, other, temperature=0))
            other += [answer, user(f"What of {turn}?")]
    assert running.code == 0, running.said
    file = tmp_path / "talk.turns.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["turn"] for line in lines] == [2, 2, 3, 3]
    edited = [line for line in lines if line["conversation"] == "c1"]
    clean = [line for line in lines if line["conversation"] != "c1"]
    assert [line["cause"] for line in edited] == ["the text changed"] * 2
    assert [line["cause"] for line in clean] == [None, None]
    assert all(line["changed_in"] == "message 0 (system)" for line in edited)
    assert all(line["again_ms"] > 0 for line in edited)
    # No slot had more of a prompt than is the same.
    tokens = [line["token"] for line in edited]
    if flags:
        # The date is in the first block.
        assert tokens == [0, 0]
        assert [line["last_token"] for line in edited] == [15, 15]
        assert "changed in message 0 (system), in tokens 0 to 15" in running.said
    else:
        assert tokens[0] == tokens[1] < 12
        assert all(line["cached_tokens"] <= line["token"] for line in edited)
    assert "processed again: changed in message 0 (system)" in running.said
    assert "of prefill was avoidable" in running.said
    assert file.stat().st_mode & 0o777 == 0o600

    said = prompts(running.out)
    assert said.startswith("Conversation c1: 2 turns after the first")
    if flags:
        assert "It is" not in file.read_text()
        assert "of its text and 0 to 15 tokens, up to message 0 (system)" in said
        assert "record without --digest to see where they differ" in said
    else:
        assert f"of its text and {tokens[0]} tokens, up to message 0 (system)" in said
        assert "It is 10:00. Be brief" in said
        assert "It is 11:01. Be brief" in said


ANSWER = {"role": "assistant", "content": "I see."}
KEY = "sk-a-key-of-a-client-0123456789"


def answered(cached: int, processed: int) -> bytes:
    """An answer of llama-server, "I see."."""
    return json.dumps(
        {
            "choices": [{"index": 0, "message": ANSWER, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": cached + processed, "completion_tokens": 2},
            "timings": {
                "cache_n": cached,
                "prompt_n": processed,
                "prompt_ms": processed * 2.0,
                "predicted_n": 2,
                "predicted_ms": 5.0,
            },
        }
    ).encode()


def test_turns_are_in_a_file_of_their_own(tmp_path: Path) -> None:
    """Of three prompts of 100, 120 and 140 tokens the third has another system prompt: of its 120
    tokens that the second had, 20 were cached, so 100 of the 120 that it processed in 240 ms were
    processed again: 200 ms. A key in the text that differs is masked."""
    said: list[str] = []
    recording = Recording(tmp_path / "talk.jsonl", said.append, None)
    history = [{"role": "system", "content": "Be brief."}, user("One?")]
    counts = ((0, 100), (98, 22), (20, 120))
    for number, (cached, processed) in enumerate(counts, start=1):
        if number == 3:
            history[0] = {"role": "system", "content": f"Be {KEY} brief."}
        body = {"model": "m", "messages": history}
        recording.take(
            msgspec.structs.replace(
                PASSED,
                number=number,
                started_ns=number * 10**9,
                ended_ns=number * 10**9 + 10**8,
                request=json.dumps(body).encode(),
                pieces=[(number * 10**9 + 10**8, answered(cached, processed))],
                secrets=[KEY],
            )
        )
        history = [*history, ANSWER, user("And then?")]
    recording.write_conversations()
    recording.write_turns()
    assert recording.write() == ""
    summary = recording.summary(None)
    recording.close()
    second, third = read_turns(tmp_path / "talk.jsonl")
    assert (second.turn.could, second.turn.lost, second.turn.cause) == (100, 0, None)
    assert (third.turn.could, third.turn.cached, third.turn.lost) == (120, 20, 100)
    assert third.turn.ms == pytest.approx(200)
    assert third.turn.cause == "the text changed"
    assert third.texts is not None
    assert third.texts[1].endswith('"content": "Be *** brief."}')
    assert "100 processed again: changed in message 0 (system)" in said[2]
    # 200 of 2 * (100 + 22 + 120) ms
    assert any(line.startswith("41.3% of prefill was avoidable") for line in summary)
    assert any("c1 turn 3, in message 0 (system)" in line for line in summary)


IMAGE = "data:image/png;base64," + "iVBORw0KGgo" * 40


def text_of(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def shown(image: str, text: str) -> dict[str, Any]:
    """A question with an image below it."""
    part = {"type": "image_url", "image_url": {"url": image}}
    return {"role": "user", "content": [text_of(text), part]}


READ = {"type": "function", "function": {"name": "read"}}
WRITE = {"type": "function", "function": {"name": "write"}}
THOUGHT = {**ANSWER, "reasoning_content": "Hm."}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"tools": [READ, WRITE]}, {"tools": [WRITE, READ]}, "tools, the order alone"),
        ({"tools": [READ]}, {"tools": [WRITE]}, "tools"),
        ({"system": "a"}, {"system": "b"}, "system prompt"),
        (
            {"messages": [user("a"), THOUGHT, user("b")]},
            {"messages": [user("a"), ANSWER, user("b"), ANSWER, user("c")]},
            "message 1 (assistant), the reasoning alone",
        ),
        (
            {"messages": [shown(IMAGE, "a")]},
            {"messages": [shown(IMAGE + "A", "a"), ANSWER, user("c")]},
            "message 0 (user), part 1 (image)",
        ),
        (
            {"messages": [shown(IMAGE, "a\nb")]},
            {"messages": [shown(IMAGE, "a\nc"), ANSWER, user("c")]},
            "message 0 (user), part 0 (text)",
        ),
        (
            {"messages": [shown(IMAGE, "a")]},
            {"messages": [{**user(""), "content": [text_of("a")]}, ANSWER, user("c")]},
            "message 0 (user), part 1 (image), which is missing",
        ),
        (
            {"messages": [user("x"), ANSWER, user("b")]},
            {"messages": [user("b"), ANSWER, user("c")]},
            "message 0 (user)",
        ),
        (
            {"messages": [{"role": "my words", "content": "a"}, user("b")]},
            {"messages": [user("a"), user("b"), ANSWER, user("c")]},
            "message 0 (other), now message 0 (user)",
        ),
        ({}, {}, None),
    ],
)  # fmt: skip
def test_the_first_part_that_changed_is_named(
    before: dict[str, Any], now: dict[str, Any], expected: str | None
) -> None:
    first = {"messages": [user("b")], **before}
    second = {"messages": [user("b"), ANSWER, user("c")], **now}
    place = placed(first, second)
    assert (place.conversation, place.turn) == (1, 2)
    assert place.changed_in == expected
    assert place.earlier_chars is not None
    assert (place.common_chars == place.earlier_chars) is (expected is None)


def placed(*bodies: dict[str, Any]) -> PlacedPrompt:
    """The place of the last of these requests, each answered with ANSWER."""
    conversations = Conversations()
    earlier = EarlierPrompts()
    place = PlacedPrompt(0, 0)
    for number, body in enumerate(bodies, start=1):
        seen = SeenRequest(number, "chat", number, number, number, 200, body=body)
        seen.messages = [dict(message) for message in body["messages"]]
        seen.tools = body.get("tools", [])
        seen.reply = ANSWER
        parts = earlier.parts(seen)
        place = earlier.placed(seen, parts, conversations.add(seen))
    return place


def test_another_conversation_is_not_the_one_before() -> None:
    """Even if it begins with the same messages: nothing of an answer was repeated."""
    place = placed({"messages": [user("b")]}, {"messages": [user("b")]})
    assert (place.conversation, place.turn) == (2, 1)
    assert place.earlier_chars is None


REMINDER = "\n\nYou MUST use this format:\nhello.py"


def test_a_reminder_below_the_last_question_alone_is_a_changed_text() -> None:
    """As aider sends it: the next prompt has the question without it."""
    first = {"messages": [user("x"), ANSWER, user("Mend a.py" + REMINDER)]}
    history = [user("x"), ANSWER, user("Mend a.py"), ANSWER]
    second = {"messages": [*history, user("And b.py" + REMINDER)]}
    place = placed(first, second)
    assert (place.conversation, place.turn) == (1, 2)
    assert place.changed_in == "message 2 (user)"
    other = {"messages": [user("x"), ANSWER, user("Look at c.py"), ANSWER, user("d")]}
    assert placed(first, other).turn == 1


@pytest.mark.heavy
def test_an_image_in_a_digest_has_as_many_tokens_as_the_server_makes_of_it(
    tiny_model: Path, tmp_path: Path
) -> None:
    """Two turns with an image in the first: whole blocks, and the second prompt begins with those
    of the first. Then another image in its place: the part and the block are named. Catches a count
    of an image's tokens that is not the server's."""
    projector = str(cached_projector(TINY.dim, dynamic=False))
    with (
        embedded_server(tiny_model, tmp_path, "--mmproj", projector) as server,
        recorder(server.url, tmp_path / "t.jsonl", "--digest") as running,
    ):
        history = [shown(data_url("red"), "What is it? " * 20)]
        answer = told(asked(running.url, history, temperature=0))
        history += [answer, user("And then? " * 20)]
        answer = told(asked(running.url, history, temperature=0))
        history += [answer, user("And now? " * 20)]
        history[0] = shown(data_url("blue"), "What is it? " * 20)
        asked(running.url, history)
    first, second, third = running.lines
    for line in (first, second, third):
        assert len(line["hash_ids"]) == line["input_length"] // 16
    count = len(first["hash_ids"])
    assert second["hash_ids"][: count - 1] == first["hash_ids"][: count - 1]
    assert "Tokens of prompts come from the server\n" in running.said
    assert "changed in message 0 (user), part 1 (image), in tokens " in running.said
    common = 0
    for one, other in zip(second["hash_ids"], third["hash_ids"], strict=False):
        common += one == other
    lines = (tmp_path / "t.turns.jsonl").read_text().splitlines()
    turn = json.loads(lines[-1])
    assert turn["token"] == common * 16 <= turn["cached_tokens"] <= turn["last_token"]
