"""The first token in which two prompts differ."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from llama_load.outside.plain_http import Session
from llama_load.servers.differing_token import (
    DifferingToken,
    TokenPlace,
    differing_block,
    differing_token,
)
from llama_load.servers.serving.launch import Server
from llama_load.servers.serving.projector_maker import cached_projector
from llama_load.servers.token_blocks import ServerTokens
from tests.conftest import TINY, embedded_server

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
    cached = counts[1]["prompt_tokens_details"]["cached_tokens"]
    assert found.place == TokenPlace(cached)
    assert found.count == counts[1]["prompt_tokens"]
    assert cached > 5
    assert found.before is not None
    assert found.now is not None
    assert "It is 10:11" in found.before
    assert "It is 10:47" in found.now


def test_a_prompt_that_goes_on_has_none(llama_server: Server) -> None:
    found = between(
        llama_server, body(dated(11), QUESTION), body(dated(11), QUESTION, ANSWER)
    )
    assert found.place is None


def test_tools_and_prompts_without_messages_are_tokens_too(
    llama_server: Server,
) -> None:
    tool = {"type": "function", "function": {"name": "read", "parameters": {}}}
    one = {**body(QUESTION), "tools": [tool]}
    assert between(llama_server, one, body(QUESTION)).place is not None
    found = between(llama_server, {"prompt": "1 2 3"}, {"prompt": "1 2 4"})
    assert found.place is not None
    assert found.count == found.place.token + 1
    assert found.before == "1 2 3"


def data_url(color: str) -> str:
    """Of an image of this colour."""
    file = io.BytesIO()
    Image.new("RGB", (32, 32), color).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def with_image(text: str, url: str, more: str) -> dict[str, Any]:
    parts = [
        {"type": "text", "text": text},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": more},
    ]
    return body(dated(11), {"role": "user", "content": parts})


def cached_tokens(server: Server, *prompts: dict[str, Any]) -> int:
    """Of the last of these prompts, in one slot."""
    cached = 0
    for prompt in prompts:
        asked = {**prompt, "max_tokens": 1, "id_slot": 0}
        url = server.url + "/v1/chat/completions"
        usage = Session().post(url, asked).json()["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
    return cached


@pytest.mark.heavy
def test_images_have_places(tiny_model: Path, tmp_path: Path) -> None:
    """A text before the image, the image itself, and a text after it. The projector makes 16 tokens
    of each image, which the template does not tell. Catches an image whose tokens the template does
    not tell, as in a real projector."""
    red = data_url("red")
    blue = data_url("blue")
    before = with_image("What is it?", red, "Be brief, please.")
    projector = str(cached_projector(TINY.dim, dynamic=False))
    with embedded_server(tiny_model, tmp_path, "--mmproj", projector) as server:
        earlier = with_image("Who is it?", red, "Be brief, please.")
        found = between(server, before, earlier)
        assert found.place == TokenPlace(cached_tokens(server, before, earlier))
        assert found.count is None

        other = with_image("What is it?", blue, "Be brief, please.")
        found = between(server, before, other)
        assert found.place == TokenPlace(cached_tokens(server, before, other))
        assert found.now is not None
        assert "What is it?<image " in found.now

        later = with_image("What is it?", red, "Be verbose, please.")
        found = between(server, before, later)
        assert found.place is not None
        assert found.place.images == 1
        image = cached_tokens(server, before, later) - found.place.token
        assert image == 16
        assert str(found.place) == f"after {found.place.token} tokens and 1 image"


def test_a_block_that_differs_has_the_tokens_from_it_to_its_end() -> None:
    assert differing_block([1, 2, 3], [1, 2, 4]) == TokenPlace(32, 47)
    assert differing_block([1, 2], [1]) == TokenPlace(16, 31)
    assert differing_block([1, 2], [1, 2, 3]) is None
    assert str(TokenPlace(32, 47)) == "in tokens 32 to 47"


@pytest.mark.parametrize("content", ["Hello", [{"type": "image_url"}]])
def test_a_server_that_cannot_tell(llama_server: Server, content: object) -> None:
    server = ServerTokens(Session(), llama_server.url + "/nowhere")
    message = {"role": "user", "content": content}
    assert differing_token(server, body(message), body(message)) is None
