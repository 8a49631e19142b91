"""A refused `max_tokens` is asked for under the name that the refusal gives."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from llama_load.loadgen.users.length_field import is_refused, with_other_field
from llama_load.loadgen.wire.request import Request

OPENAI = (
    b'{"error":{"message":"Unsupported parameter: \'max_tokens\' is not supported with this '
    b'model. Use \'max_completion_tokens\' instead.","param":"max_tokens"}}'
)


@pytest.mark.parametrize(
    ("status", "body", "refused"),
    [
        (400, OPENAI, True),
        (422, b"max_tokens: use max_completion_tokens", True),
        (200, OPENAI, False),
        (400, b"max_tokens is too large", False),
        # the other way round: it is max_completion_tokens that this server does not know
        (400, b"unknown field max_completion_tokens", False),
    ],
)
def test_a_refusal_names_both(status: int, body: bytes, refused: bool) -> None:
    answer = SimpleNamespace(status=status, body=bytearray(body))
    assert is_refused(answer) is refused


def test_the_length_goes_under_the_other_name() -> None:
    body = {
        "messages": [{"content": '"max_tokens":1'}],
        "max_tokens": 8,
        "stream": True,
    }
    request = Request("POST", "/v1/chat/completions", body=msgspec.json.encode(body))
    other = with_other_field(request)
    assert other is not None
    assert msgspec.json.decode(other.body) == {
        "messages": [{"content": '"max_tokens":1'}],
        "stream": True,
        "max_completion_tokens": 8,
    }
    assert with_other_field(other) is None
