"""Every transcript of a real server, sent again byte by byte over a socket, and what is made of
it."""

from __future__ import annotations

import pytest

from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.loadgen.wire.transport import Transport
from llama_load.servers.address import parse_url
from llama_load.servers.answer import AnswerReader
from llama_load.servers.counts import checked_counts
from llama_load.servers.server_errors import context_numbers, http_failure
from tests.answer_pipeline import output_of, prompt_of
from tests.scripted_server import ScriptedServer
from tests.transcripts import Capture, errors, single, timed, titled


def replay(capture: Capture) -> tuple[AnswerReader, Exchange]:
    reader = AnswerReader()
    with ScriptedServer(capture.steps) as server:
        request = Request("POST", "/v1/chat/completions", (), b"{}")
        exchange = Transport.of_this_process().send(
            parse_url(server.url).resolved(), request, reader, Timeouts(2, 2, 2)
        )
    return reader, exchange


def test_llama_server_with_usage() -> None:
    """Role with content null is no token; usage and timings come on an event without choices."""
    reader, exchange = replay(timed("llama_stream"))
    assert reader.failure(exchange) is None
    assert len(reader.token_ns) == 60
    assert output_of(reader) == (60, "usage")
    assert (prompt_of(reader), checked_counts(reader).cached_tokens) == (
        (40, "usage"),
        39,
    )
    assert (reader.finish_reason, reader.done) == ("length", True)
    assert reader.timings is not None
    assert reader.timings.predicted_n == 60


def test_llama_server_without_usage() -> None:
    """Without include_usage the timings of the finish event tell all; prompt tokens are the cached
    and the processed ones."""
    reader, exchange = replay(timed("llama_stream_no_usage"))
    assert reader.failure(exchange) is None
    assert output_of(reader) == (3, "timings")
    assert (prompt_of(reader), checked_counts(reader).cached_tokens) == (
        (19, "timings"),
        6,
    )
    assert reader.text == " savo-"


def test_llama_server_holds_back_partial_utf8() -> None:
    """Four byte tokens make one event: one stamp, five tokens by usage (with the end-of-text
    one)."""
    reader, exchange = replay(timed("llama_stream_merged_utf8"))
    assert reader.failure(exchange) is None
    assert (reader.text, len(reader.token_ns), output_of(reader)) == (
        "😀",
        1,
        (5, "usage"),
    )
    assert checked_counts(reader).cached_tokens == 18


def test_llama_server_with_timings_per_token() -> None:
    """Prompt progress events carry no token."""
    reader, exchange = replay(timed("llama_stream_timings_per_token"))
    assert reader.failure(exchange) is None
    assert (reader.text, len(reader.token_ns)) == ("- siV", 3)


def test_llama_server_whose_rpc_worker_was_killed() -> None:
    """24 tokens, then the head dies with its worker: cut off."""
    reader, exchange = replay(timed("llama_rpc_worker_killed"))
    assert len(reader.token_ns) == 24
    assert reader.failure(exchange) == (
        "cut_off",
        "the server closed the connection in the middle of the answer",
    )


def test_vllm() -> None:
    """Role with an empty content is no token, the finish rides on the last token, usage comes
    without timings."""
    reader, exchange = replay(timed("vllm_stream"))
    assert reader.failure(exchange) is None
    assert len(reader.token_ns) == 49
    assert output_of(reader) == (60, "usage")
    assert (prompt_of(reader), checked_counts(reader).cached_tokens) == (
        (39, "usage"),
        None,
    )
    assert (reader.finish_reason, reader.done, reader.timings) == ("length", True, None)
    assert exchange.headers["server"] == "uvicorn"


def test_vllm_with_a_stream_interval_of_five() -> None:
    """Five tokens an event: 13 stamps for 60 tokens, which only usage counts rightly."""
    reader, exchange = replay(timed("vllm_stream_interval5"))
    assert reader.failure(exchange) is None
    assert (len(reader.token_ns), output_of(reader)) == (13, (60, "usage"))


def test_vllm_with_usage_on_every_event() -> None:
    """`continuous_usage_stats` with a stream interval of five: the first token alone, then five an
    event, the rest with the last."""
    reader, exchange = replay(timed("vllm_stream_continuous_usage"))
    assert reader.failure(exchange) is None
    counts = checked_counts(reader)
    assert (counts.output_tokens, counts.event_tokens, counts.first_event_tokens) == (
        23,
        (1, 5, 5, 5, 5, 2),
        1,
    )
    assert counts.prompt_tokens == 13


def test_vllm_with_two_choices() -> None:
    """Usage on an event is its choice's; the last one is of both. The tokens of single events are
    not known then."""
    reader, exchange = replay(timed("vllm_stream_continuous_usage_n2"))
    assert reader.failure(exchange) is None
    assert len(reader.choices) == 2
    assert len(reader.token_ns) == 6 + 5
    counts = checked_counts(reader)
    assert (counts.output_tokens, counts.token_source, counts.event_tokens) == (
        46,
        "usage",
        (),
    )


LLAMA_CPP_PYTHON = titled("llama_cpp_server_rpc")


@pytest.mark.parametrize(
    ("title", "tokens"),
    [
        ("chat stream", 4),
        ("chat stream include_usage", 4),
        ("chat stream temperature 0 seed logprobs", 3),
        ("chat stream no max_tokens fields n=2", 2),
        ("completions stream", 3),
        ("completions stream include_usage", 3),
    ],
)
def test_llama_cpp_python_never_reports_usage(title: str, tokens: int) -> None:
    """What it generated is counted by events, also when usage was asked for."""
    reader, exchange = replay(LLAMA_CPP_PYTHON[title])
    assert reader.failure(exchange) is None
    assert output_of(reader) == (tokens, "events")
    assert (prompt_of(reader), reader.finish_reason) == ((None, None), "length")


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("context exceeded stream (prompt)", "empty_answer"),  # 200 and an empty body
        ("context exceeded nonstream (prompt)", "context_exceeded"),
        ("bad JSON", "http_500"),
        ("bad type", "http_500"),
        ("embeddings", "http_500"),
        ("404", "http_404"),
        ("unknown model", "no_stream"),  # answered, but not asked to stream
    ],
)
def test_llama_cpp_python_refuses(title: str, kind: str) -> None:
    reader, exchange = replay(LLAMA_CPP_PYTHON[title])
    failure = reader.failure(exchange)
    assert failure is not None
    assert failure[0] == kind


def test_llama_cpp_python_whose_rpc_worker_was_killed() -> None:
    reader, exchange = replay(single("llama_cpp_server_worker_killed"))
    assert reader.token_ns
    assert reader.failure(exchange)[0] == "cut_off"


def test_embeddings_are_read_whole() -> None:
    """A JSON answer is no stream of tokens, but it is complete."""
    _, exchange = replay(single("llama_cpp_server_embeddings"))
    assert exchange.failure is None
    assert bytes(exchange.body).startswith(b'{"object":"list"')


@pytest.mark.parametrize(
    ("server", "title", "kind"),
    [
        ("llama", "context length exceeded (stream)", "context_exceeded"),
        ("llama", "context length exceeded (non-stream)", "context_exceeded"),
        ("llama", "bad JSON", "http_500"),
        ("llama", "missing messages", "http_400"),
        ("llama", "unknown route", "http_404"),
        ("llama", "image: not base64", "http_400"),
        ("llama", "image: unreachable URL", "http_500"),
        ("vllm", "context length exceeded (stream)", "context_exceeded"),
        ("vllm", "prompt fits, prompt+max_tokens does not", "http_400"),
        ("vllm", "bad JSON", "http_400"),
        ("vllm", "missing messages", "http_400"),
        ("vllm", "unknown model", "http_404"),
        ("vllm", "wrong method (GET chat)", "http_405"),
        ("vllm", "bad parameter (temperature=-1)", "http_400"),
        ("vllm", "image: not base64", "http_400"),
    ],
)
def test_refusals(server: str, title: str, kind: str) -> None:
    status, body = errors(f"{server}_errors")[title]
    found, text = http_failure(status, body)
    assert found == kind
    assert text.startswith(f"HTTP {status}")
    assert len(text) < 400


@pytest.mark.parametrize(
    ("server", "numbers"), [("llama", (27018, 4096)), ("vllm", (4097, 4096))]
)
def test_the_numbers_of_an_exceeded_context_are_read(
    server: str, numbers: tuple[int, int]
) -> None:
    _, body = errors(f"{server}_errors")["context length exceeded (stream)"]
    assert context_numbers(body) == numbers


def test_the_numbers_of_an_exceeded_context_are_read_from_llama_cpp_python() -> None:
    body = LLAMA_CPP_PYTHON["context exceeded nonstream (prompt)"].body
    prompt, context = context_numbers(body.encode())
    assert prompt is not None
    assert context is not None
    assert prompt > context
