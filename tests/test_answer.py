"""What streams mean: captures of the real llama-server, and the layouts that other servers use."""

from __future__ import annotations

import gzip
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.targets.answer import AnswerReader
from llama_load.targets.failures import describe_error, http_failure


def read(*events: str | bytes) -> AnswerReader:
    reader = AnswerReader()
    for at, data in enumerate(events, start=1):
        reader.event(data if isinstance(data, bytes) else data.encode(), at)
    return reader


def complete(**changed: Any) -> Any:
    """An exchange that ended well, as far as the wire can tell."""
    whole = {"failure": None, "status": 200, "headers": {"content-type": "text/event-stream"}, "body": b""}
    return SimpleNamespace(**whole | changed)


def test_reasoning_counts_as_tokens_and_the_answer_begins_after_it() -> None:
    """llama-server and vLLM name it differently; `content: ""` beside it is no answer."""
    reader = read(
        '{"choices":[{"delta":{"role":"assistant","content":""}}]}',
        '{"choices":[{"delta":{"reasoning_content":"hm"}}]}',
        '{"choices":[{"delta":{"reasoning":"so","content":null}}]}',
        '{"choices":[{"delta":{"content":"42"}}]}',
        '{"choices":[{"delta":{},"finish_reason":"stop"}]}',
    )
    assert reader.token_ns == [2, 3, 4]
    assert reader.first_answer_ns == 4
    assert reader.text == "hmso42"
    assert reader.failure(complete()) is None


def test_tool_calls_are_tokens() -> None:
    reader = read(
        '{"choices":[{"delta":{"tool_calls":[]}}]}',
        '{"choices":[{"delta":{"content":null,"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]}',
        '{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}',
    )
    assert reader.token_ns == [2]
    assert reader.failure(complete()) is None


def test_finish_on_the_last_token_and_usage_beside_choices() -> None:
    """vLLM's finish, and the completions endpoint's last event."""
    reader = read(
        '{"choices":[{"text":"a","finish_reason":null}]}',
        '{"choices":[{"text":"b","finish_reason":"length"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}',
        "[DONE]",
    )
    assert (reader.text, reader.finish_reason, reader.prompt_tokens(), reader.output_tokens()) == (
        "ab",
        "length",
        (7, "usage"),
        (2, "usage"),
    )


@pytest.mark.parametrize(
    "last",
    [
        '{"error":{"code":502,"message":"gone"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}',
        '{"choices":[{"delta":{},"finish_reason":"abort"}]}',
        '{"choices":[{"text":"","finish_reason":"error"}]}',
    ],
)
def test_an_answer_that_the_server_gave_up_is_a_failure(last: str) -> None:
    """A router whose provider broke off says so beside choices, an engine by the finish_reason alone."""
    found = read('{"choices":[{"delta":{"content":"a"}}]}', last, "[DONE]").failure(complete())
    assert found is not None
    assert found[0] == "error_event"


def test_a_usage_of_zeros_is_none() -> None:
    """Some servers fill in zeros for what they do not count; an answer that is there has cost something."""
    zeros = '{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}'
    reader = read('{"choices":[{"delta":{"content":"a"}}]}', zeros)
    assert (reader.prompt_tokens(), reader.output_tokens()) == ((None, None), (1, "events"))
    timings = (
        '{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0},"timings":{"prompt_n":0,"cache_n":9,"predicted_n":4}}'
    )
    reader = read('{"choices":[{"delta":{"content":"a"}}]}', timings)
    assert (reader.prompt_tokens(), reader.output_tokens()) == ((9, "timings"), (4, "timings"))
    assert read(zeros).output_tokens() == (0, "usage")


def test_without_usage_and_timings_the_events_are_counted() -> None:
    assert read('{"choices":[{"delta":{"content":"a"}}]}').output_tokens() == (1, "events")
    assert read().output_tokens() == (None, None)


def test_done_without_a_finish_reason_is_cut_off() -> None:
    """llama-cpp-python does this when a newer request interrupts the running one."""
    reader = read('{"choices":[{"delta":{"content":"a"}}]}', "[DONE]")
    assert reader.failure(complete())[0] == "cut_off"


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (
            400,
            b'{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size (4 tokens)",'
            b'"type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":4}}',
            "context_exceeded",
            "exceeds the available context size",
        ),
        (
            400,
            b'{"error":{"message":"This model\'s maximum context length is 4096 tokens.","param":"input_tokens","code":400}}',
            "context_exceeded",
            "maximum context length",
        ),
        (400, b'{"error":{"message":"Failed to load image"}}', "http_400", "Failed to load image"),
        (401, b'{"error":{"message":"Invalid API Key"}}', "http_401", "Invalid API Key"),
        (404, b'{"detail":"Not Found"}', "http_404", "Not Found"),
        (429, b"slow down", "overloaded", "slow down"),
        (503, b'{"error":{"message":"Loading model"}}', "overloaded", "Loading model"),
        (500, b"", "http_500", "HTTP 500"),
        (500, "<h1>错误</h1>".encode("gbk"), "http_500", "h1"),
    ],
)
def test_http_errors_are_classified_and_quoted(status: int, body: bytes, kind: str, words: str) -> None:
    assert http_failure(status, body)[0] == kind
    assert words in http_failure(status, body)[1]


def test_compressed_errors_are_read_and_bombs_are_not_inflated() -> None:
    """Proxies compress errors unasked. 100 MB of zeros take a few kB compressed, and no more than 64 kB of memory here."""
    gzip_header = {"content-encoding": "gzip"}
    assert "no luck" in http_failure(502, gzip.compress(b'{"error":"no luck"}'), gzip_header)[1]
    assert len(http_failure(502, gzip.compress(b"0" * 100_000_000), gzip_header)[1]) < 400
    assert http_failure(502, b"not gzip at all", gzip_header)[1].endswith("not gzip at all")


def test_redirects_are_refused_in_a_sentence() -> None:
    assert "redirected to https://x/; redirects are not followed" in http_failure(302, b"", {"location": "https://x/"})[1]


@given(st.binary(max_size=400))
def test_any_error_body_is_described_in_one_line(body: bytes) -> None:
    assert "\n" not in describe_error(body)
    assert len(describe_error(body)) <= 301


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "delta", "content", "text", "finish_reason", "usage", "timings", "error", "tool_calls"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(json_like)
def test_any_json_event_is_taken_without_an_exception(value: Any) -> None:
    """It is a token, or none, or makes the answer a bad one."""
    import msgspec

    reader = read(msgspec.json.encode(value))
    assert reader.failure(complete()) is not None or reader.token_ns
