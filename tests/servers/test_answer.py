"""What streams mean: captures of the real llama-server, and the layouts that other servers use."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.users.measure import SentRequest, make_record
from llama_load.loadgen.users.session import Ticket
from llama_load.loadgen.users.session_tokens import NO_SESSIONS
from llama_load.servers.answer import AnswerReader
from llama_load.servers.counts import Bounds, checked_counts
from llama_load.servers.prompt import Prompt
from llama_load.servers.server_errors import describe_error, http_failure
from llama_load.servers.target import Target
from tests.answer_pipeline import ADDRESS, exchange_of, output_of, prompt_of, record_of
from tests.server_kinds import OPENAI


def read(*events: str | bytes) -> AnswerReader:
    reader = AnswerReader()
    for at, data in enumerate(events, start=1):
        reader.event(data if isinstance(data, bytes) else data.encode(), at)
    return reader


def complete(**changed: Any) -> Any:
    """An exchange that ended well, as far as the wire can tell."""
    whole = {
        "failure": None,
        "status": 200,
        "headers": {"content-type": "text/event-stream"},
        "body": b"",
        "is_stream": True,
        "error_frame": b"",
        "other_lines": b"",
        "has_body_end": True,
    }
    return SimpleNamespace(**whole | changed)


def test_reasoning_counts_as_tokens_and_the_answer_begins_after_it() -> None:
    """llama-server and vLLM name it differently; `content: ""` next to it is no answer."""
    reader = read(
        '{"choices":[{"delta":{"role":"assistant","content":""}}]}',
        '{"choices":[{"delta":{"reasoning_content":"hm"}}]}',
        '{"choices":[{"delta":{"reasoning":"so","content":null}}]}',
        '{"choices":[{"delta":{"content":"42"}}]}',
        '{"choices":[{"delta":{},"finish_reason":"stop"}]}',
    )
    assert reader.token_ns == [2, 3, 4]
    assert reader.first_answer_ns == 4
    assert (reader.reasoning, reader.text, reader.generated) == ("hmso", "42", "hmso42")
    assert reader.failure(complete()) is None


@pytest.mark.parametrize("blank", [" ", "\\n\\n", "\\u200b", "\\ufeff \\t"])
def test_the_first_token_is_the_first_that_a_reader_could_see(blank: str) -> None:
    """Blanks and zero-width characters before it are kept in the text, and their first instant
    beside it."""
    reader = read(
        f'{{"choices":[{{"delta":{{"content":"{blank}"}}}}]}}',
        f'{{"choices":[{{"index":0,"delta":{{"content":"{blank}"}}}},{{"index":0,"delta":{{}}}}]}}',
        '{"choices":[{"delta":{"content":"a"}}]}',
        f'{{"choices":[{{"delta":{{"content":"{blank}"}}}}]}}',
        '{"choices":[{"delta":{},"finish_reason":"stop"}]}',
    )
    assert (reader.blank_ns, reader.token_ns, reader.first_answer_ns) == (
        [1, 2],
        [3, 4],
        3,
    )
    assert len(reader.text) == 1 + 3 * len(json.loads(f'"{blank}"'))


def test_a_record_has_both_instants() -> None:
    """A blank 1 ns after the start, text 2 ns after it."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    events = [
        b'data: {"choices":[{"delta":{"content":"' + text + b'"}}]}\n\n'
        for text in (b" ", b"a", b"b")
    ]
    found = record_of(
        [head, *events, b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n']
    )
    started = found.started_mono_ns
    assert (found.first_blank_mono_ns, found.first_token_mono_ns) == (
        started + 1,
        started + 2,
    )
    assert (
        found.blank_events,
        found.token_events,
        found.output_chars,
        found.output_bytes,
    ) == (1, 2, 3, 3)


def test_tpot_is_of_the_tokens_after_the_first_visible_one() -> None:
    """A blank 1 ns after the start, text 2, 3 and 4 ns after it, by usage four tokens: 1 ns a
    token."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    events = [
        b'data: {"choices":[{"delta":{"content":"' + text + b'"}}]}\n\n'
        for text in (b" ", b"a", b"b", b"c")
    ]
    end = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":4}}\n\n'
    found = record_of([head, *events, end])
    assert (found.output_tokens, found.token_source) == (4, "usage")
    assert found.tpot_ms == pytest.approx(1e-6)


def test_blanks_before_reasoning_and_between_it_and_the_answer() -> None:
    """Reasoning is the first token; the answer begins with its first visible text."""
    reader = read(
        '{"choices":[{"delta":{"reasoning_content":"\\n"}}]}',
        '{"choices":[{"delta":{"reasoning_content":"hm"}}]}',
        '{"choices":[{"delta":{"content":"\\n\\n"}}]}',
        '{"choices":[{"delta":{"content":"42"}}]}',
    )
    assert (reader.blank_ns, reader.token_ns, reader.first_answer_ns) == (
        [1],
        [2, 3, 4],
        4,
    )


def test_an_answer_of_blanks_alone_begins_with_its_first_event() -> None:
    reader = read(
        '{"choices":[{"delta":{"content":" "}}]}',
        '{"choices":[{"delta":{"content":"\\n"},"finish_reason":"length"}]}',
    )
    reader.settle(complete())
    assert (reader.blank_ns, reader.token_ns, reader.first_answer_ns) == ([], [1, 2], 1)
    assert reader.failure(complete()) is None


def test_the_model_is_that_of_the_first_event_that_names_it() -> None:
    reader = read(
        '{"choices":[{"delta":{"content":"a"}}]}',
        '{"model":"m","system_fingerprint":"b11434","choices":[{"delta":{"content":"a"}}]}',
        '{"model":"other","choices":[{"delta":{"content":"b"}}]}',
    )
    assert reader.model == "m (b11434)"


def test_tool_calls_are_tokens() -> None:
    reader = read(
        '{"choices":[{"delta":{"tool_calls":[]}}]}',
        '{"choices":[{"delta":{"content":null,"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]}',
        '{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}',
    )
    assert reader.token_ns == [2]
    assert reader.failure(complete()) is None


def test_finish_on_the_last_token_and_usage_with_choices() -> None:
    """vLLM's finish, and the completions endpoint's last event."""
    reader = read(
        '{"choices":[{"text":"a","finish_reason":null}]}',
        '{"choices":[{"text":"b","finish_reason":"length"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}',
        "[DONE]",
    )
    assert (
        reader.text,
        reader.finish_reason,
        prompt_of(reader),
        output_of(reader),
    ) == ("ab", "length", (7, "usage"), (2, "usage"))


@pytest.mark.parametrize(
    "last",
    [
        '{"error":{"code":502,"message":"gone"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}',
        '{"choices":[{"delta":{},"finish_reason":"abort"}]}',
        '{"choices":[{"text":"","finish_reason":"error"}]}',
    ],
)
def test_an_answer_that_the_server_gave_up_is_a_failure(last: str) -> None:
    """A router whose provider broke off reports it next to choices, an engine by the finish_reason
    alone."""
    found = read('{"choices":[{"delta":{"content":"a"}}]}', last, "[DONE]").failure(
        complete()
    )
    assert found is not None
    assert found[0] == "error_event"


def test_a_usage_of_zeros_is_none() -> None:
    """Some servers fill in zeros for what they do not count; an answer that is there has cost
    something."""
    zeros = '{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}'
    reader = read('{"choices":[{"delta":{"content":"a"}}]}', zeros)
    assert (prompt_of(reader), output_of(reader)) == ((None, None), (1, "events"))
    timings = '{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0},"timings":{"prompt_n":0,"cache_n":9,"predicted_n":4}}'
    reader = read('{"choices":[{"delta":{"content":"a"}}]}', timings)
    assert (prompt_of(reader), output_of(reader)) == ((9, "timings"), (4, "timings"))
    assert output_of(read(zeros)) == (0, "usage")


def test_without_usage_and_timings_the_events_are_counted() -> None:
    assert output_of(read('{"choices":[{"delta":{"content":"a"}}]}')) == (1, "events")
    assert output_of(read()) == (None, None)


def test_done_without_a_finish_reason_is_cut_off_where_others_have_one() -> None:
    """llama-cpp-python does this when a newer request interrupts the running one; other servers
    send none at all."""
    reader = read('{"choices":[{"delta":{"content":"a"}}]}', "[DONE]")
    assert reader.failure(complete(), ends_by_reason=True)[0] == "cut_off"
    assert reader.failure(complete()) is None
    assert reader.end_note(complete()) == "no finish_reason"


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
        (
            400,
            b'{"error":{"message":"Failed to load image"}}',
            "http_400",
            "Failed to load image",
        ),
        (
            401,
            b'{"error":{"message":"Invalid API Key"}}',
            "http_401",
            "Invalid API Key",
        ),
        (404, b'{"detail":"Not Found"}', "http_404", "Not Found"),
        (429, b"slow down", "overloaded", "slow down"),
        (503, b'{"error":{"message":"Loading model"}}', "overloaded", "Loading model"),
        (500, b"", "http_500", "HTTP 500"),
        (500, "<h1>错误</h1>".encode("gbk"), "http_500", "h1"),
    ],
)
def test_http_errors_are_classified_and_quoted(
    status: int, body: bytes, kind: str, words: str
) -> None:
    assert http_failure(status, body)[0] == kind
    assert words in http_failure(status, body)[1]


def test_compressed_errors_are_read_and_bombs_are_not_inflated() -> None:
    """Proxies compress errors unasked. 100 MB of zeros take a few kB compressed, and no more than
    64 kB of memory here."""
    gzip_header = {"content-encoding": "gzip"}
    assert (
        "no luck"
        in http_failure(502, gzip.compress(b'{"error":"no luck"}'), gzip_header)[1]
    )
    assert (
        len(http_failure(502, gzip.compress(b"0" * 100_000_000), gzip_header)[1]) < 400
    )
    assert http_failure(502, b"not gzip at all", gzip_header)[1].endswith(
        "not gzip at all"
    )


def test_redirects_are_refused_in_a_sentence() -> None:
    assert (
        "redirected to https://x/; redirects are not followed"
        in http_failure(302, b"", {"location": "https://x/"})[1]
    )


@given(st.binary(max_size=400))
def test_any_error_body_is_described_in_one_line(body: bytes) -> None:
    assert "\n" not in describe_error(body)
    assert len(describe_error(body)) <= 301


def test_a_delta_with_reasoning_and_content_keeps_both() -> None:
    """The last of the reasoning and the first of the answer can share an event: one token event,
    both texts."""
    reader = read(
        '{"choices":[{"delta":{"reasoning_content":"hm"}}]}',
        '{"choices":[{"delta":{"reasoning":"so","content":"42"},"finish_reason":"stop"}]}',
    )
    assert (reader.reasoning, reader.text, reader.token_ns, reader.first_answer_ns) == (
        "hmso",
        "42",
        [1, 2],
        2,
    )
    assert reader.failure(complete()) is None


def test_an_empty_finish_reason_is_none() -> None:
    """Some servers send "" with every chunk. A stream cut off among those is no complete answer."""
    events = [
        '{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}',
        '{"choices":[{"delta":{},"finish_reason":""}]}',
    ]
    assert read(*events).failure(complete())[0] == "cut_off"
    assert (
        read(*events, '{"choices":[{"delta":{},"finish_reason":"stop"}]}').failure(
            complete()
        )
        is None
    )


@pytest.mark.parametrize(
    "word", ["null", "None", " ", "undefined", "running", "stop", "STOP"]
)
def test_a_finish_reason_with_every_event_ends_nothing(word: str) -> None:
    """koboldcpp sends "null", Gemini's relays "STOP". [DONE] confirms a word that is one, the
    usual finish ends any."""
    events = [choice(0, "a", word), choice(0, "b", word)]
    assert read(*events).failure(complete())[0] == "cut_off"
    says_nothing = word in ("null", "None", " ", "undefined")
    done = read(*events, "[DONE]").failure(complete(), ends_by_reason=True)
    assert (done is not None) == says_nothing
    ended = read(*events, choice(0, finish="length"))
    assert (ended.failure(complete()), ended.finish_reason) == (None, "length")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("MAX_TOKENS", "length"),
        ("eos_token", "stop"),
        ("tool_use", "tool_calls"),
        ("content-filter", "content_filter"),
        ("a new one", "a new one"),
    ],
)
def test_a_finish_reason_is_kept_in_openais_words(sent: str, reason: str) -> None:
    reader = read(choice(0, "a"), choice(0, finish=sent))
    assert reader.finish_reason == reason
    is_unknown = reason == "a new one"
    assert (reader.failure(complete()) is not None) == is_unknown


def choice(index: int, text: str = "", finish: str | None = None) -> str:
    delta = {"content": text} if text else {}
    return json.dumps(
        {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}
    )


def test_every_choice_must_finish() -> None:
    """n=2: llama-server's second choice comes first. Both are token events; the answer is the first
    choice's text."""
    events = [
        choice(1, "b"),
        choice(0, "a"),
        choice(1, "B"),
        choice(0, "A"),
        choice(1, finish="length"),
    ]
    reader = read(*events)
    assert reader.failure(complete()) == (
        "cut_off",
        "the stream ended without a finish_reason for 1 of 2 choices",
    )
    reader = read(*events, choice(0, finish="stop"))
    assert reader.failure(complete()) is None
    assert (reader.token_ns, reader.first_answer_ns) == ([1, 2, 3, 4], 1)
    assert (reader.choices[0].text, reader.generated) == ("aA", "aAbB")
    assert (
        read(*events, choice(0, finish="abort")).failure(complete())[0] == "error_event"
    )
    assert (
        read(choice(0, "a", "stop"), choice(1, "b", "error")).failure(complete())[0]
        == "error_event"
    )


def test_several_choices_in_one_event_are_one_token_event() -> None:
    both = {
        "choices": [
            {"index": 0, "text": "a"},
            {"index": 1, "text": "b", "finish_reason": "stop"},
        ]
    }
    reader = read(
        json.dumps(both),
        json.dumps({"choices": [{"index": 0, "text": "c", "finish_reason": "stop"}]}),
    )
    assert (reader.token_ns, reader.choices[0].text, reader.generated) == (
        [1, 2],
        "ac",
        "acb",
    )
    assert reader.failure(complete()) is None


def test_tokens_of_several_choices_are_those_of_all() -> None:
    """vLLM's usage sums the choices up; llama-server sends one for each choice, and the last one is
    not all."""
    events = [
        choice(0, "a"),
        choice(1, "b"),
        choice(0, "c"),
        choice(1, "d", "stop"),
        choice(0, finish="stop"),
    ]
    assert output_of(
        read(*events, '{"choices":[],"usage":{"completion_tokens":6}}')
    ) == (6, "usage")
    # Less than an event each is none of theirs either.
    assert output_of(
        read(*events, '{"choices":[],"usage":{"completion_tokens":3}}')
    ) == (4, "events")
    one = '{"choices":[],"usage":{"completion_tokens":2},"timings":{"predicted_n":2}}'
    assert output_of(read(*events, one, one)) == (4, "events")


ODD = [2.5, -1, "3", None, True, [], {}, 2**60, 10**30, "x" * 30]
odd_numbers = (
    st.sampled_from(ODD)
    | st.floats(allow_nan=False)
    | st.integers()
    | st.text(max_size=4)
    | st.none()
)
OPTIONAL = [
    *(
        ("usage", name)
        for name in (
            "prompt_tokens",
            "completion_tokens",
            "prompt_tokens_details",
            "completion_tokens_details",
        )
    ),
    *(
        ("timings", name)
        for name in (
            "cache_n",
            "prompt_n",
            "prompt_ms",
            "predicted_n",
            "predicted_ms",
            "draft_n",
        )
    ),
]


@given(
    st.dictionaries(st.sampled_from(OPTIONAL), odd_numbers, max_size=4),
    odd_numbers,
    st.booleans(),
)
def test_odd_optional_numbers_do_not_fail_a_complete_answer(
    odd: dict[tuple[str, str], Any], index: Any, whole: bool
) -> None:
    """Whatever stands for a count or a duration: the answer is complete, its tokens are counted, no
    odd value is kept."""
    value: dict[str, Any] = {
        "choices": [],
        "usage": {"prompt_tokens": 7},
        "timings": {"prompt_n": 7},
    }
    for (where, name), number in odd.items():
        value[where][name] = number
    last = {"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]}
    if (
        isinstance(index, int | float)
        and index > 0
        and float(index).is_integer()
        and index is not True
    ):
        last["choices"][0]["index"] = 0  # that would be another choice
    reader = read(
        choice(0, "a"),
        choice(0, "b"),
        json.dumps(value | last if whole else last),
        json.dumps(value),
    )
    assert reader.failure(complete()) is None
    assert reader.token_ns == [1, 2]
    counts = checked_counts(reader)
    assert counts.output_tokens is not None
    assert all(
        type(count) is int and 0 <= count <= 2**53
        for count in (counts.output_tokens, counts.prompt_tokens or 0)
    )
    if ("usage", "completion_tokens") not in odd and (
        "timings",
        "predicted_n",
    ) not in odd:
        assert output_of(reader) == (2, "events")


@pytest.mark.parametrize(
    "number", ["1e400", "NaN", "-Infinity", "9" * 5000, '{"a":[1]}']
)
def test_numbers_that_json_does_not_have_are_unknown(number: str) -> None:
    """Python servers write NaN; 1e400 and 5000 digits are no number of this machine."""
    reader = read(
        choice(0, "a", "stop"),
        '{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":%s}}' % number,
    )
    assert reader.failure(complete()) is None
    assert (prompt_of(reader), output_of(reader)) == ((5, "usage"), (1, "events"))


def test_a_whole_number_written_as_a_float_is_that_number() -> None:
    usage = {
        "prompt_tokens": 7.0,
        "completion_tokens": 2.0,
        "prompt_tokens_details": {"cached_tokens": 3.0},
    }
    reader = read(
        choice(0, "a", "stop"),
        json.dumps({"choices": [], "usage": usage, "timings": {"prompt_n": -1}}),
    )
    assert (
        prompt_of(reader),
        output_of(reader),
        checked_counts(reader).cached_tokens,
    ) == ((7, "usage"), (2, "usage"), 3)
    assert reader.timings.prompt_n is None


def with_usage(text: str, so_far: int, finish: str | None = None) -> str:
    """An event of vLLM's with `continuous_usage_stats`."""
    event = json.loads(choice(0, text, finish))
    return json.dumps(
        event
        | {
            "usage": {
                "prompt_tokens": 9,
                "total_tokens": 9 + so_far,
                "completion_tokens": so_far,
            }
        }
    )


def test_usage_on_every_event_places_the_tokens() -> None:
    """3 tokens, 2, 1 that has no text yet, then 2 with it; an end-of-text token counts to the last
    event."""
    events = [
        with_usage("", 0),
        with_usage("abc", 3),
        with_usage("de", 5),
        with_usage("", 6),
        with_usage("f", 7),
    ]
    counts = checked_counts(
        read(
            *events,
            with_usage("", 8, "stop"),
            '{"choices":[],"usage":{"completion_tokens":8}}',
        )
    )
    assert (counts.output_tokens, counts.event_tokens, counts.first_event_tokens) == (
        8,
        (3, 2, 3),
        3,
    )


@pytest.mark.parametrize(
    "so_far",
    [(60, 60, 60), (1, 1, 1), (3, 2, 4)],
    ids=["the same total with every event", "each event alone", "backwards"],
)
def test_usage_that_does_not_count_up_places_nothing(so_far: tuple[int, ...]) -> None:
    counts = checked_counts(
        read(
            *(with_usage("a", count) for count in so_far),
            '{"choices":[],"usage":{"completion_tokens":60}}',
        )
    )
    assert counts.output_tokens == 60
    assert so_far == (60, 60, 60) or counts.event_tokens == ()
    # All in the first event, as far as is known: no time per token can be had from that.
    assert counts.first_event_tokens == (60 if so_far == (60, 60, 60) else None)


def test_hidden_reasoning_came_before_the_first_event() -> None:
    usage = '{"choices":[],"usage":{"completion_tokens":50,"completion_tokens_details":{"reasoning_tokens":40}}}'
    counts = checked_counts(read(choice(0, "a"), choice(0, "b", "stop"), usage))
    assert (
        counts.output_tokens,
        counts.reasoning_tokens,
        counts.first_event_tokens,
    ) == (50, 40, 41)
    shown = checked_counts(
        read(
            '{"choices":[{"delta":{"reasoning":"hm"}}]}', choice(0, "b", "stop"), usage
        )
    )
    assert (shown.reasoning_tokens, shown.first_event_tokens) == (40, None)


def streamed(tokens: int, *last: str) -> AnswerReader:
    """An answer of this many token events, and events after them."""
    return read(*(['{"choices":[{"delta":{"content":" a"}}]}'] * tokens), *last)


def test_a_count_clearly_below_the_events_is_not_believed() -> None:
    """1600 events and usage 800. Pieces that came together (a gateway that cuts tokens) are no
    tokens of their own."""
    answer = streamed(100, '{"choices":[],"usage":{"completion_tokens":50}}')
    found = checked_counts(answer)
    assert (found.output_tokens, found.token_source) == (100, "events")
    assert found.doubt == "usage: 50 output tokens where 100 events carried text"
    assert checked_counts(answer, Bounds(merged_events=50)).output_tokens == 50
    close = checked_counts(
        streamed(100, '{"choices":[],"usage":{"completion_tokens":97}}')
    )
    assert (close.output_tokens, close.doubt) == (97, None)


def test_of_differing_usage_and_timings_the_nearer_to_the_events_counts() -> None:
    both = (
        '{"choices":[],"usage":{"completion_tokens":%d},"timings":{"predicted_n":%d}}'
    )
    found = checked_counts(streamed(100, both % (107, 100)))
    assert (found.output_tokens, found.token_source) == (100, "timings")
    assert found.doubt == "usage: 107 output tokens where the server's timings have 100"
    assert checked_counts(streamed(100, both % (101, 100))).doubt is None


BOUNDS = Bounds(asked_tokens=64, sent_bytes=300, received_bytes=2000)


@pytest.mark.parametrize(
    ("usage", "bounds", "found", "doubt"),
    [
        ({"completion_tokens": 64}, BOUNDS, {"output_tokens": 64}, None),
        (
            {"completion_tokens": 4_000_000_000_000_096},
            BOUNDS,
            {"output_tokens": 2, "token_source": "events"},
            "usage: 4000000000000096 output tokens where at most 64 were requested",
        ),
        (
            {"completion_tokens": 1900},
            replace(BOUNDS, asked_tokens=None),
            {"output_tokens": 1900},
            None,
        ),
        (
            {"completion_tokens": 2001},
            replace(BOUNDS, asked_tokens=None),
            {"output_tokens": 2, "token_source": "events"},
            "usage: 2001 output tokens where 2000 bytes were received",
        ),
        (
            {
                "completion_tokens": 9000,
                "completion_tokens_details": {"reasoning_tokens": 8000},
            },
            replace(BOUNDS, asked_tokens=None),
            {"output_tokens": 9000, "reasoning_tokens": 8000},
            None,
        ),
        (
            {
                "completion_tokens": 50,
                "completion_tokens_details": {"reasoning_tokens": 51},
            },
            BOUNDS,
            {"output_tokens": 50, "reasoning_tokens": None},
            "usage: 51 reasoning tokens where only 50 tokens were generated",
        ),
        (
            {"prompt_tokens": 40_000},
            BOUNDS,
            {"prompt_tokens": None, "prompt_token_source": None},
            "usage: 40000 prompt tokens where 300 bytes were sent",
        ),
        (
            {"prompt_tokens": 40_000},
            replace(BOUNDS, sent_bytes=None),
            {"prompt_tokens": 40_000},
            None,
        ),
        (
            {"prompt_tokens": 320, "prompt_tokens_details": {"cached_tokens": 40_000}},
            BOUNDS,
            {"prompt_tokens": 320, "cached_tokens": None},
            "usage: 40000 cached prompt tokens where the prompt has 320",
        ),
        (
            {"prompt_tokens": 42, "completion_tokens": 60, "total_tokens": 102},
            BOUNDS,
            {"output_tokens": 60},
            None,
        ),
        # thoughts that only the total has (Gemini's)
        (
            {"prompt_tokens": 42, "completion_tokens": 24, "total_tokens": 102},
            BOUNDS,
            {"output_tokens": 24},
            "usage: 42 + 24 tokens of prompt and answer where the total is 102",
        ),
    ],
)
def test_counts_that_cannot_be_are_not_believed(
    usage: dict, bounds: Bounds, found: dict, doubt: str | None
) -> None:
    reader = read(
        choice(0, "a"),
        choice(0, "b", "stop"),
        json.dumps({"choices": [], "usage": usage}),
    )
    counts = checked_counts(reader, bounds)
    assert {name: getattr(counts, name) for name in found} == found
    assert counts.doubt == doubt


DRAFTS = {
    "num_draft_tokens": 12,
    "num_accepted_draft_tokens": 5,
    "num_spec_steps": 4,
    "acceptance_histogram": [1, 2, 0, 1],
}


@pytest.mark.parametrize(
    ("changed", "found", "doubt"),
    [
        ({}, (12, 5), None),
        ({"acceptance_histogram": None}, (12, 5), None),
        # 8 tokens in 3 steps make 11; the last step may have drafted 3 beyond the 10 that were
        # sent.
        (
            {
                "num_accepted_draft_tokens": 8,
                "acceptance_histogram": [0, 0, 1, 2],
                "num_spec_steps": 3,
            },
            (12, 8),
            None,
        ),
        (
            {"num_accepted_draft_tokens": 6},
            (None, None),
            "metrics: 6 accepted draft tokens where the histogram has 5",
        ),
        (
            {"num_accepted_draft_tokens": 4},
            (None, None),
            "metrics: 4 accepted draft tokens where the histogram has 5",
        ),
        (
            {"num_spec_steps": 10},
            (None, None),
            "metrics: 11 tokens of drafts where only 10 were generated",
        ),
        (
            {"num_draft_tokens": 4},
            (4, None),
            "metrics: 5 accepted draft tokens where only 4 were drafted",
        ),
        (
            {"num_draft_tokens": None},
            (None, None),
            "metrics: 5 accepted draft tokens where the histogram has 5",
        ),
        *(
            ({name: odd}, (None, None), None)
            for name in DRAFTS
            for odd in (-1, "5", True, 2.5, 2**60, [2**60], {})
        ),
    ],
)
def test_vllms_counts_of_speculative_decoding(
    changed: dict[str, Any], found: tuple, doubt: str | None
) -> None:
    """10 tokens: one of the prompt's step, 5 accepted, 4 of the steps that verified them. Odd
    values count as unknown."""
    last = {
        "choices": [],
        "usage": {"completion_tokens": 10},
        "metrics": {"speculative_decoding": DRAFTS | changed, "x": [1]},
    }
    reader = read(choice(0, "a"), choice(0, "b", "stop"), json.dumps(last))
    counts = checked_counts(reader)
    assert (counts.draft_tokens, counts.draft_accepted) == found
    assert counts.doubt == doubt
    assert (counts.output_tokens, reader.failure(complete())) == (10, None)


@pytest.mark.parametrize(
    "metrics",
    [
        None,
        1,
        "x",
        [],
        [[]],
        {"speculative_decoding": 3},
        {"speculative_decoding": None},
    ],
)
def test_metrics_of_other_servers_are_no_error(metrics: object) -> None:
    reader = read(
        choice(0, "a", "stop"), json.dumps({"choices": [], "metrics": metrics})
    )
    assert reader.failure(complete()) is None
    assert (checked_counts(reader).draft_tokens, checked_counts(reader).doubt) == (
        None,
        None,
    )


def test_a_doubted_usage_leaves_the_word_to_timings() -> None:
    extra = {
        "usage": {"completion_tokens": 65, "prompt_tokens": 10**6},
        "timings": {"predicted_n": 63, "prompt_n": 7, "cache_n": 3},
    }
    counts = checked_counts(
        read(choice(0, "a", "stop"), json.dumps({"choices": []} | extra)), BOUNDS
    )
    assert (counts.output_tokens, counts.token_source) == (63, "timings")
    assert (
        counts.prompt_tokens,
        counts.prompt_token_source,
        counts.processed_tokens,
    ) == (10, "timings", 7)
    assert counts.doubt.count(";") == 1


def test_a_server_that_ignores_max_tokens_is_believed_by_its_events() -> None:
    events = [choice(0, "a") for _ in range(70)]
    usage = '{"choices":[],"usage":{"completion_tokens":%d}}'
    assert output_of(read(*events, usage % 70)) == (70, "usage")
    assert checked_counts(read(*events, usage % 70), BOUNDS).doubt is None
    assert checked_counts(read(*events, usage % 71), BOUNDS).token_source == "events"


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "text",
                    "finish_reason",
                    "usage",
                    "timings",
                    "error",
                    "tool_calls",
                ]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


texts = st.sampled_from([None, None, "", "a", "é😀"])
tools = st.sampled_from([None, None, [], {}, "", [{"index": 0}], {"name": "f"}])
deltas = st.fixed_dictionaries(
    {
        "content": texts,
        "reasoning": texts,
        "reasoning_content": texts,
        "tool_calls": tools,
        "function_call": tools,
    }
)
odd_index = st.fixed_dictionaries(
    {}, optional={"index": st.sampled_from([0, 1, None, "0", -1, 2.0])}
)
one_choice = st.one_of(
    st.builds(
        lambda delta, index: {"delta": delta} | index,
        st.none() | deltas | deltas,
        odd_index,
    ),
    st.builds(lambda text, index: {"text": text} | index, texts, odd_index),
)
chunks = st.fixed_dictionaries(
    {
        "choices": deltas.map(lambda delta: [{"delta": delta}])
        | st.lists(one_choice, max_size=3)
        | st.none()
    },
    optional={"usage": json_like, "timings": json_like},
)


@given(chunks)
@example({"choices": [{"delta": {"content": "a", "reasoning": "b"}}]})
def test_an_event_is_a_token_exactly_if_a_choice_of_it_generated_something(
    chunk: dict[str, Any],
) -> None:
    """Text, reasoning or a tool call that is not empty; whatever stands in every optional field.
    The counted tokens are the events."""

    def generates(choice: dict[str, Any]) -> bool:
        return (
            any(choice.get("delta", choice).values())
            if choice.get("delta", choice)
            else False
        )

    choices = [
        {key: value for key, value in each.items() if key in ("delta", "text")}
        for each in chunk.get("choices") or []
    ]
    reader = read("{}")
    assert reader.event(json.dumps(chunk).encode(), 2) == any(map(generates, choices))
    assert reader.bad_event is None
    assert reader.token_ns == [2] * any(map(generates, choices))
    said = [text for one in choices for text in texts_of(one)]
    assert sorted(reader.generated) == sorted("".join(said))
    if chunk.get("usage") is None and chunk.get("timings") is None:
        assert output_of(reader) == ((1, "events") if reader.token_ns else (None, None))


def texts_of(choice: dict[str, Any]) -> list[str]:
    """The answer's text of a choice, and the reasoning by the first of its names that has any."""
    if choice.get("delta") is None:
        return [choice.get("text") or ""]
    delta = choice["delta"]
    return [
        delta.get("content") or "",
        delta.get("reasoning_content") or delta.get("reasoning") or "",
    ]


@given(json_like)
def test_any_json_event_either_spoils_an_answer_or_leaves_it_as_it_was(
    value: Any,
) -> None:
    """Before and after it come two tokens and a finish. Then it is no valid chunk (bad_event), or
    carries an error or an end that is one, or the answer is complete and has a token event more
    exactly if the event says that it is one."""
    reader = read(choice(0, "a"))
    is_token = reader.event(json.dumps(value).encode(), 2)
    reader.event(choice(0, "b", "stop").encode(), 3)
    assert reader.token_ns == ([1, 2, 3] if is_token else [1, 3])
    assert reader.text.startswith("a")
    assert reader.text.endswith("b")
    failure = reader.failure(complete())
    if reader.bad_event is None and reader.error is None:
        assert failure is None
        assert output_of(reader)[0] >= 2
    else:
        assert not is_token or reader.error is not None
        assert failure[0] in ("bad_event", "error_event", "context_exceeded")


def test_a_model_that_counts_tokens_differently_has_no_planned_length() -> None:
    """The plan's count is the first model's: as that of another one it would hide prompts that were
    cut, or name whole ones."""
    pieces = [
        b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    ]
    target = Target(ADDRESS, OPENAI, "a", models=("a", "b"), other_counts=("b",))
    of_run: Any = SimpleNamespace(
        worker="w", save_texts=False, session_headers=NO_SESSIONS
    )
    for model, tokens in (("a", 7), ("b", None)):
        exchange, reader = exchange_of(pieces)
        prompt = Prompt("text", prompt_tokens=7)
        asked = SentRequest(
            "id", "User", "workload", "name", "chat", model, "text", "", 8, prompt
        )
        record = make_record(
            of_run, Ticket(Lease(0, False, "workload"), target), asked, exchange, reader
        )
        assert (record.planned_prompt_tokens, record.prompt_tokens) == (tokens, tokens)


@pytest.mark.parametrize("nothing", ["null", "false", '""', "{}", "[]"])
def test_an_error_that_says_nothing_is_none(nothing: str) -> None:
    event = '{"error":%s,"choices":[{"delta":{"content":"a"}}]}' % nothing
    reader = read(event, choice(0, finish="stop"))
    assert reader.failure(complete()) is None
