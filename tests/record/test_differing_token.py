"""The first token in which two prompts differ."""

from __future__ import annotations

from typing import Any

import pytest

from llama_load.plain_http import Session
from llama_load.record.differing_token import DifferingToken, differing_token
from llama_load.record.token_blocks import ServerTokens
from llama_load.serving.launch import Server

QUESTION = {"role": "user", "content": "Please look at this item with care. " * 4}
ANSWER = {"role": "assistant", "content": "I see."}


def dated(minute: int) -> dict[str, Any]:
    text = f"You are a clerk in a warehouse. It is 10:{minute}. Be brief."
    return {"role": "system", "content": text}


def body(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"messages": list(messages)}


def between(
    server: Server, before: dict[str, Any], now: dict[str, Any]
) -> DifferingToken:
    found = differing_token(ServerTokens(Session(), server.url), before, now)
    assert found is not None
    return found


def test_the_server_reuses_the_tokens_before_it(llama_server: Server) -> None:
    """In one slot, its cached tokens are those that both prompts begin with."""
    before = body(dated(11), QUESTION)
    now = body(dated(47), QUESTION, ANSWER, QUESTION)
    found = between(llama_server, before, now)
    counts = []
    for prompt in (before, now):
        asked = {**prompt, "max_tokens": 1, "id_slot": 0}
        url = llama_server.url + "/v1/chat/completions"
        counts.append(Session().post(url, asked).json()["usage"])
    assert found.is_there
    cached = counts[1]["prompt_tokens_details"]["cached_tokens"]
    assert (found.index, found.earlier, found.count) == (
        cached,
        counts[0]["prompt_tokens"],
        counts[1]["prompt_tokens"],
    )
    assert found.index > 5
    assert found.before is not None
    assert found.now is not None
    assert "It is 10:11" in found.before
    assert "It is 10:47" in found.now


def test_a_prompt_that_goes_on_has_none(llama_server: Server) -> None:
    found = between(
        llama_server, body(dated(11), QUESTION), body(dated(11), QUESTION, ANSWER)
    )
    assert not found.is_there
    assert found.index == found.earlier


def test_tools_and_prompts_without_messages_are_tokens_too(
    llama_server: Server,
) -> None:
    tool = {"type": "function", "function": {"name": "read", "parameters": {}}}
    one = {**body(QUESTION), "tools": [tool]}
    assert between(llama_server, one, body(QUESTION)).is_there
    found = between(llama_server, {"prompt": "1 2 3"}, {"prompt": "1 2 4"})
    assert (found.earlier - found.index, found.before) == (1, "1 2 3")


@pytest.mark.parametrize("content", ["Hello", [{"type": "image_url"}]])
def test_a_server_that_cannot_tell(llama_server: Server, content: object) -> None:
    server = ServerTokens(Session(), llama_server.url + "/nowhere")
    message = {"role": "user", "content": content}
    assert differing_token(server, body(message), body(message)) is None
