"""Answers that come as one JSON body, and the bodies that ask for them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.loadgen.wire.transport import Transport
from llama_load.servers.address import parse_url
from llama_load.servers.answer import AnswerReader
from llama_load.servers.apis import CHAT, RERANK, Api
from llama_load.servers.body import BodyOptions, asked_choices, is_text
from llama_load.servers.counts import checked_counts
from llama_load.servers.kinds import KINDS
from llama_load.servers.serving.launch import Server
from llama_load.servers.target import Target
from tests.answer_pipeline import ADDRESS, output_of, prompt_of
from tests.server_kinds import VLLM


def whole(
    body: Any, api: Api = CHAT, results: int | None = None
) -> tuple[AnswerReader, Any]:
    """The reader of such a body, and the exchange that brought it."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    exchange = SimpleNamespace(
        failure=None,
        cancelled=False,
        status=200,
        headers={},
        body=bytearray(data),
        is_stream=False,
        error_frame=b"",
        other_lines=b"",
    )
    reader = api.reader(results, streams=False)
    reader.settle(exchange)
    return reader, exchange


def test_vllms_drafted_tokens_of_a_whole_answer() -> None:
    drafts = {
        "num_draft_tokens": 6,
        "num_accepted_draft_tokens": 3,
        "num_spec_steps": 2,
        "acceptance_histogram": [0, 1, 1, 0],
    }
    usage = {"completion_tokens": 6}
    reader, _ = whole(
        {
            "choices": [choice(0, "a")],
            "usage": usage,
            "metrics": {"speculative_decoding": drafts},
        }
    )
    assert (
        checked_counts(reader).draft_tokens,
        checked_counts(reader).draft_accepted,
    ) == (6, 3)


def choice(
    index: int, text: str, finish: str | None = "stop", **message: Any
) -> dict[str, Any]:
    return {
        "index": index,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text} | message,
    }


def test_without_usage_the_tokens_of_a_whole_answer_are_unknown() -> None:
    """Nothing was counted. That is not 0, also where the server fills in zeros."""
    for usage in (
        {},
        {"usage": None},
        {"usage": {"prompt_tokens": 0, "completion_tokens": 0}},
    ):
        reader, exchange = whole({"choices": [choice(0, "some words")]} | usage)
        assert reader.failure(exchange) is None
        assert (output_of(reader), prompt_of(reader)) == ((None, None), (None, None))


def test_reasoning_of_a_whole_answer_is_not_its_text() -> None:
    reader, exchange = whole(
        {
            "choices": [choice(0, "42", reasoning_content="hm")],
            "usage": {"completion_tokens": 3.0},
        }
    )
    assert reader.failure(exchange) is None
    assert (reader.choices[0].text, reader.choices[0].reasoning, reader.generated) == (
        "42",
        "hm",
        "hm42",
    )
    assert output_of(reader) == (3, "usage")


@pytest.mark.parametrize(
    "odd", ["NaN", "-1", '"3"', "1e400", "[1]", "{}", "2.5", "9" * 5000]
)
def test_one_odd_number_does_not_fail_a_whole_answer(odd: str) -> None:
    body = '{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":%s}}'
    reader, exchange = whole((body % odd).encode())
    assert reader.failure(exchange) is None
    assert (prompt_of(reader), output_of(reader)) == ((5, "usage"), (None, None))


def test_a_tool_call_is_an_answer() -> None:
    """Also where the server reports no usage."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    reader, exchange = whole(
        {"choices": [choice(0, "", "tool_calls", tool_calls=[call])]}
    )
    assert reader.failure(exchange) is None
    reader, exchange = whole({"choices": [choice(0, "", "stop", tool_calls=[])]})
    assert reader.failure(exchange)[0] == "empty_answer"


def test_all_choices_of_a_whole_answer_are_read() -> None:
    """The text is the first one's wherever it stands; one that was given up fails the answer."""
    reader, exchange = whole(
        {"choices": [choice(1, "b"), choice(0, "a")], "usage": {"completion_tokens": 6}}
    )
    assert reader.failure(exchange) is None
    assert (reader.choices[0].text, reader.generated, output_of(reader)) == (
        "a",
        "ab",
        (6, "usage"),
    )
    reader, exchange = whole({"choices": [choice(0, "a"), choice(1, "b", "abort")]})
    assert reader.failure(exchange)[0] == "error_event"


def test_llama_servers_usage_of_several_choices_is_of_one(llama_server: Server) -> None:
    """3 tokens each for two choices: it reports 3. Streams are counted by their events, whole
    answers are unknown; never 3."""
    counted = []
    for stream in (True, False):
        body = {
            "messages": [{"role": "user", "content": "hi there"}],
            "max_tokens": 3,
            "n": 2,
            "stream": stream,
        }
        body |= {
            "seed": 7,
            "ignore_eos": True,
            "stream_options": {"include_usage": True},
        }
        exchange, reader = ask(llama_server.url, body)
        assert reader.failure(exchange) is None
        assert len(reader.choices) == 2
        assert all(said.text for said in reader.choices)
        counted.append(output_of(reader))
    (streamed, source), unstreamed = counted
    # Partial UTF-8 is held back by the server: a few tokens may share an event.
    assert 4 <= streamed <= 6
    assert source == "events"
    assert unstreamed == (None, None)


def ask(url: str, body: dict[str, Any]) -> tuple[Exchange, Any]:
    reader = CHAT.reader(streams=body["stream"])
    request = Request(
        "POST",
        "/v1/chat/completions",
        (("Content-Type", "application/json"),),
        json.dumps(body).encode(),
    )
    exchange = Transport.of_this_process().send(
        parse_url(url).resolved(), request, reader, Timeouts(10, 20, 20)
    )
    reader.settle(exchange)
    return exchange, reader


def test_every_document_is_ranked_once() -> None:
    """In any order, by finite scores; a ranking generates nothing, whatever its usage holds."""
    ranked = [{"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": -3}]
    usage = {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9}
    results = RERANK.results(["the query", "a document", "another"])
    reader, exchange = whole({"results": ranked, "usage": usage}, RERANK, results)
    assert reader.failure(exchange) is None
    assert (prompt_of(reader), output_of(reader)) == ((9, "usage"), (None, None))
    for bad in (
        ranked[:1],
        ranked[:1] * 2,
        [],
        [{"index": 0}, {"index": 1}],
        [ranked[0], ranked[1] | {"relevance_score": None}],
    ):
        reader, exchange = whole({"results": bad, "usage": usage}, RERANK, 2)
        assert reader.failure(exchange)[0] == "bad_body"


@pytest.mark.parametrize("backend", KINDS)
def test_usage_with_every_event_is_asked_of_vllm_alone(backend: str) -> None:
    target = Target(ADDRESS, backend, "m")
    options = CHAT.build("hi", target, BodyOptions(), 8)["stream_options"]
    assert options == {"include_usage": True} | (
        {"continuous_usage_stats": True} if backend == VLLM else {}
    )
    assert "stream_options" not in CHAT.build(
        "hi", target, BodyOptions(stream=False), 8
    )


@pytest.mark.parametrize(
    ("body", "choices"),
    [
        ({}, 1),
        ({"n": 3}, 3),
        ({"n": 2, "best_of": 4}, 4),
        ({"n": "2"}, 1),
        ({"n": 0}, 1),
        ({"n": None}, 1),
    ],
)
def test_how_many_answers_a_body_asks_for(body: dict[str, Any], choices: int) -> None:
    assert asked_choices(body) == choices


def test_only_text_bounds_its_tokens_by_its_length() -> None:
    """An image by its URL costs hundreds of tokens in a few bytes."""
    url = {"type": "image_url", "image_url": {"url": "http://somewhere/a.png"}}
    text = {"type": "text", "text": '"image_url"'}
    assert is_text({"prompt": "x"})
    assert is_text(
        {
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "user", "content": [text]},
                {"role": "tool"},
            ]
        }
    )
    assert not is_text({"messages": [{"role": "user", "content": [text, url]}]})


def test_an_error_with_status_200_keeps_its_words_and_has_its_class() -> None:
    reader, exchange = whole({"error": {"message": "quota exceeded for this key"}})
    failure = reader.failure(exchange)
    assert failure == ("quota_exceeded", "quota exceeded for this key")


def test_a_stream_where_none_was_asked_for_is_named() -> None:
    reader, exchange = whole(b'data: {"choices":[]}\n\n')
    exchange.headers["content-type"] = "text/event-stream"
    failure = reader.failure(exchange)
    assert failure is not None
    assert "event stream" in failure[1]
