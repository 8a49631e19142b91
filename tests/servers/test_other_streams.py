"""Anthropic's messages, OpenAI's responses, llama-server's completion: scripted events, and the
real llama-server."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from llama_load.servers.answer import AnswerReader
from llama_load.servers.apis.completion_api import NativeReader
from llama_load.servers.apis.messages_api import MessagesReader
from llama_load.servers.apis.responses_api import ResponsesReader
from llama_load.servers.counts import checked_counts
from llama_load.servers.serving.launch import Server
from tests.conftest import Finished


def read(reader: AnswerReader, *events: object) -> list[bool]:
    return [
        reader.event(json.dumps(each).encode(), at) for at, each in enumerate(events)
    ]


def test_messages_count_cached_and_new_prompt_tokens() -> None:
    """Reasoning, text, stop reason and usage of the two events that bring it: 1 + 13 cached, 3
    out."""
    reader = MessagesReader()
    began = {
        "type": "message_start",
        "message": {
            "usage": {
                "input_tokens": 1,
                "cache_read_input_tokens": 13,
                "output_tokens": 0,
            }
        },
    }
    parts = [
        {"type": "content_block_delta", "delta": delta}
        for delta in ({"thinking": "hm"}, {"text": "a"}, {"text": "b"})
    ]
    ended = {
        "type": "message_delta",
        "delta": {"stop_reason": "max_tokens"},
        "usage": {"output_tokens": 3},
    }
    tokens = read(
        reader, began, {"type": "ping"}, *parts, ended, {"type": "message_stop"}
    )
    assert tokens == [False, False, True, True, True, False, False]
    assert (reader.reasoning, reader.text, reader.finish_reason, reader.token_ns) == (
        "hm",
        "ab",
        "length",
        [2, 3, 4],
    )
    assert reader.first_answer_ns == 3
    counts = checked_counts(reader)
    assert (
        counts.prompt_tokens,
        counts.cached_tokens,
        counts.output_tokens,
        counts.token_source,
    ) == (14, 13, 3, "usage")
    read(
        reader,
        {
            "type": "error",
            "error": {"type": "overloaded_error", "message": "Overloaded"},
        },
    )
    assert reader.error == "Overloaded"


def test_responses_end_with_their_usage() -> None:
    """As OpenAI's reference and vLLM have it: reasoning, text, incomplete for its length."""
    reader = ResponsesReader()
    usage = {
        "input_tokens": 9,
        "output_tokens": 4,
        "input_tokens_details": {"cached_tokens": 5},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    last = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "usage": usage,
        "error": None,
    }
    tokens = read(
        reader,
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.reasoning_text.delta", "delta": "hm"},
        {"type": "response.output_text.delta", "delta": "a"},
        {"type": "response.output_text.done", "text": "a"},
        {"type": "response.incomplete", "response": last},
    )
    assert tokens == [False, True, True, False, False]
    assert (reader.reasoning, reader.text, reader.finish_reason) == (
        "hm",
        "a",
        "length",
    )
    counts = checked_counts(reader)
    assert (
        counts.prompt_tokens,
        counts.cached_tokens,
        counts.output_tokens,
        counts.reasoning_tokens,
    ) == (9, 5, 4, 1)
    read(
        reader,
        {
            "type": "response.failed",
            "response": {
                "status": "failed",
                "error": {"code": "x", "message": "out of memory"},
            },
        },
    )
    assert reader.error == "out of memory"


def test_a_native_completion_ends_with_stop() -> None:
    """Its last event has no content, and what it counted."""
    reader = NativeReader()
    last = {
        "content": "",
        "stop": True,
        "stop_type": "limit",
        "tokens_predicted": 2,
        "tokens_evaluated": 5,
    }
    assert read(
        reader, {"content": "a", "stop": False}, {"content": "b", "stop": False}, last
    ) == [True, True, False]
    assert (reader.text, reader.finish_reason) == ("ab", "length")
    counts = checked_counts(reader)
    assert (counts.prompt_tokens, counts.output_tokens) == (5, 2)


@pytest.mark.parametrize("reader", [MessagesReader, ResponsesReader, NativeReader])
def test_what_is_no_event_is_kept_as_the_fault(reader: type[AnswerReader]) -> None:
    """The stream goes on, and the answer is a bad one."""
    bad = reader()
    assert not bad.event(b"{nonsense", 1)
    assert bad.bad_event is not None


@pytest.mark.parametrize("endpoint", ["messages", "responses", "completion", "infill"])
def test_the_real_server_answers_with_counts_and_stamps(
    llama_server: Server, run_locust: Callable[..., Finished], endpoint: str
) -> None:
    """Every answer complete, with the tokens asked for, each in an event."""
    done = run_locust(
        llama_server.url,
        "-u",
        "2",
        "--num-prompts",
        "6",
        "--max-tokens",
        "12",
        "--endpoint",
        endpoint,
        "--ignore-eos",
    )
    assert done.code == 0, done.out + done.err
    ok = done.records.measured().ok()
    assert len(ok) == 6
    assert set(ok.strings("endpoint")) == {endpoint}
    assert set(ok.strings("token_source")) == {"usage"}
    assert ok.numbers("output_tokens").tolist() == [12.0] * 6
    assert (ok.numbers("prompt_tokens") > 0).all()
    assert (ok.numbers("ttft_ms") > 0).all()
