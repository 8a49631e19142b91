"""The wire against a scripted server: every way an answer can come, and every way it can fail
to."""

from __future__ import annotations

import gzip
import time
from collections.abc import Sequence

import gevent
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_load.ground.clock import SO_TIMESTAMPNS
from llama_load.loadgen.wire import exchange as exchange_module
from llama_load.loadgen.wire.connection import Connection
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.loadgen.wire.transport import Transport
from llama_load.servers.address import parse_url
from llama_load.servers.answer import AnswerReader
from tests.answer_pipeline import exchange_of, record_of
from tests.scripted_server import (
    DONE,
    END,
    FINISH,
    GOOD_STREAM,
    STREAM,
    ScriptedServer,
    Step,
    chunk,
    event,
    token,
)
from tests.servers.test_answer_end import is_complete

pytestmark = pytest.mark.portable

KERNEL_STAMPS = SO_TIMESTAMPNS is not None
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
QUICK = Timeouts(connect_s=0.3, first_token_s=0.4, token_s=0.4)
PATIENT = Timeouts(connect_s=5, first_token_s=10, token_s=10)


def send(
    url: str, timeouts: Timeouts = PATIENT, body: bytes = b"{}"
) -> tuple[Exchange, AnswerReader]:
    reader = AnswerReader()
    address = parse_url(url).resolved()
    request = Request("POST", "/v1/chat/completions", (("X-Request-Id", "1"),), body)
    return Transport.of_this_process().send(address, request, reader, timeouts), reader


def answer(
    *steps: Step, timeouts: Timeouts = PATIENT, **server: bool
) -> tuple[Exchange, AnswerReader]:
    with ScriptedServer(steps, **server) as scripted:
        return send(scripted.url, timeouts)


def failure(*steps: Step, timeouts: Timeouts = PATIENT, **server: bool) -> str | None:
    exchange, reader = answer(*steps, timeouts=timeouts, **server)
    found = reader.failure(exchange)
    return found[0] if found else None


def test_a_good_stream_is_read_to_its_end_with_stamps_in_order() -> None:
    """Started, connected, sent, headers, first and last progress, ended: in this order, by the
    kernel's clock."""
    exchange, reader = answer(
        STREAM, "taken", token("a"), "taken", 0.03, token("b"), FINISH, DONE, END
    )
    assert reader.failure(exchange) is None
    assert (reader.text, reader.finish_reason, reader.done) == ("ab", "stop", True)
    stamps = [
        exchange.stamps.started_ns,
        exchange.opening.connected_ns,
        exchange.stamps.sent_ns,
        exchange.stamps.headers_ns,
    ]
    stamps += [
        exchange.stamps.first_progress_ns,
        exchange.stamps.last_progress_ns,
        exchange.stamps.ended_ns,
    ]
    assert stamps == sorted(stamps)
    assert exchange.counts.user_space_reads == (
        0 if KERNEL_STAMPS else exchange.counts.reads
    )
    assert exchange.counts.headers_alone
    assert reader.token_ns == [
        exchange.stamps.first_progress_ns,
        exchange.stamps.last_progress_ns,
    ]
    assert (reader.token_ns[1] - reader.token_ns[0]) / 1e6 >= 30


def test_the_request_goes_out_whole_with_its_framing() -> None:
    with ScriptedServer(GOOD_STREAM) as server:
        address = parse_url(server.url + "/base/").resolved()
        body = "{'text': '你好 😀'}".encode()
        Transport.of_this_process().send(
            address,
            Request("POST", "/v1/x", (("A", "b"),), body),
            AnswerReader(),
            PATIENT,
        )
    head, _, sent = server.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /base/v1/x HTTP/1.1"
    assert {
        f"Host: 127.0.0.1:{server.port}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "A: b",
    } <= set(lines)
    assert sent == body


def test_a_body_larger_than_the_socket_buffers_is_sent_whole() -> None:
    """16 MB, as a request with many images may have, to a server that begins to read late."""
    with ScriptedServer(GOOD_STREAM) as server:
        exchange, reader = send(server.url, Timeouts(), b"x" * 16_000_000)
    assert reader.failure(exchange) is None
    assert server.requests[0].endswith(b"x" * 1000)
    assert len(server.requests[0]) > 16_000_000


def test_events_that_share_a_read_are_counted_as_merged() -> None:
    """Three tokens in one segment: two of them have no separate arrival time; the first token is
    one of those."""
    exchange, reader = answer(
        STREAM,
        token("a") + token("b") + token("c"),
        0.02,
        token("d"),
        FINISH,
        DONE,
        END,
    )
    assert (
        reader.text,
        exchange.counts.progress_events,
        exchange.counts.merged,
        exchange.counts.first_merged,
    ) == ("abcd", 4, 2, True)


def test_content_length_and_until_close_bodies_are_complete() -> None:
    body = (
        b'data: {"choices":[{"finish_reason":"stop","text":"hi"}]}\n\ndata: [DONE]\n\n'
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    assert failure(head + b"Content-Length: %d\r\n\r\n" % len(body), body) is None
    assert failure(head + b"\r\n", body) is None


def test_informational_answers_are_passed_over() -> None:
    assert failure(b"HTTP/1.1 100 Continue\r\n\r\n", *GOOD_STREAM) is None


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("cut_off", [STREAM, token()]),
        ("cut_off", [STREAM]),
        ("cut_off", [b"HTTP/1.1 200 OK\r\nContent-Type: text/ev"]),
        ("cut_off", []),
        ("cut_off", [STREAM, token(), END]),
        ("cut_off", [STREAM, chunk(b'data: {"choices":[{"delta":{"content":"x"')]),
        ("reset", [STREAM, token(), 0.05, "reset"]),
        ("first_token_timeout", ["hold"]),
        ("first_token_timeout", [STREAM, chunk(b":\n\n"), "hold"]),
        ("token_timeout", [STREAM, token(), "hold"]),
        (
            "error_event",
            [
                STREAM,
                token(),
                event('{"error":{"code":500,"message":"out of memory"}}'),
                DONE,
                END,
            ],
        ),
        ("error_event", [STREAM, token(), event('{"error":{"message":"aborted"}}')]),
        ("empty_answer", [STREAM, FINISH, DONE, END]),
        ("empty_answer", [STREAM, END]),
        ("bad_event", [STREAM, event("{not json"), FINISH, DONE, END]),
        ("bad_event", [STREAM, event('{"choices": 7}'), FINISH, DONE, END]),
        ("protocol", [b"SSH-2.0-OpenSSH_9.2\r\n"]),
        ("protocol", [STREAM, b"zz\r\nnonsense\r\n"]),
        ("too_large", [b"HTTP/1.1 200 OK\r\nX: ", b"y" * 100_000_000]),
        ("too_large", [b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100_000]),
        ("too_large", [STREAM, token(), FINISH, b"0\r\n", b"Trailer: y\r\n" * 100_000]),
        ("too_large", [STREAM, b"ffffffff\r\ndata: ", b"y" * 5_000_000]),
        (
            "too_large",
            [
                UNTIL_CLOSE,
                b"data: " + b"y" * 3_000_000 + b"\n",
                b"data: " + b"y" * 3_000_000,
            ],
        ),
        ("first_token_timeout", [b"HTTP/1.1 200 OK\r\n", *[0.03, b"X: y\r\n"] * 40]),
        ("first_token_timeout", [STREAM, *[0.03, chunk(b":\n\n")] * 40]),
        ("token_timeout", [STREAM, token(), *[0.03, chunk(b":\n\n")] * 40]),
        (
            "bad_event",
            [STREAM, event('{"choices":' + "[" * 100_000), FINISH, DONE, END],
        ),
        (
            "no_stream",
            [
                STREAM.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"),
                chunk(gzip.compress(b"0" * 10**6) * 100),
                END,
            ],
        ),
        (
            "no_stream",
            [
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
            ],
        ),
        (
            "http_500",
            [b'HTTP/1.1 500 X\r\nContent-Length: 19\r\n\r\n{"error":"no luck"}'],
        ),
        (
            "http_302",
            [
                b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n"
            ],
        ),
        ("overloaded", [b"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy"]),
        ("overloaded", [b"HTTP/1.1 429 X\r\nContent-Length: 4\r\n\r\nbusy"]),
    ],
)
def test_every_bad_answer_has_its_failure_class(
    kind: str, steps: Sequence[Step]
) -> None:
    assert failure(*steps, timeouts=QUICK if "timeout" in kind else PATIENT) == kind


def test_an_answer_without_a_length_asked_for_is_bounded_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small events without end; the bound is lowered from 64 MiB to what a test can send."""
    many = [STREAM, *[token()] * 2000]
    assert failure(*many, FINISH, DONE, END) is None
    monkeypatch.setattr(exchange_module, "MAX_ANSWER_BYTES", 20_000)
    assert failure(*many, FINISH, DONE, END) == "too_large"


def test_an_answer_that_is_too_large_names_the_rule() -> None:
    """The limit of a request is that of the tokens which it asked for; nobody chose the number of
    bytes."""
    many = [STREAM, *[token()] * 2000]
    with ScriptedServer([*many, FINISH, DONE, END]) as server:
        request = Request("POST", "/v1/chat/completions", (), b"{}", most_bytes=20_000)
        reader = AnswerReader()
        exchange = Transport.of_this_process().send(
            parse_url(server.url).resolved(), request, reader, PATIENT
        )
    rule = "the answer did not end within 20000 bytes, the limit for an answer as long as was asked for"
    assert reader.failure(exchange) == ("too_large", rule)


def test_a_stream_that_is_kept_open_after_its_end_is_an_answer() -> None:
    """Everything has come, [DONE] included; a proxy or server just does not end the body. The
    connection is not used again."""
    exchange, reader = answer(
        STREAM, token(), FINISH, DONE, "hold", timeouts=Timeouts(2, 30, 30)
    )
    assert reader.failure(exchange) is None
    assert exchange.stamps.ended_ns is not None
    assert exchange.stamps.ended_ns < exchange.stamps.started_ns + 30e9


def stand_still(
    seconds: float, *steps: Step, timeouts: Timeouts = QUICK
) -> tuple[Exchange, AnswerReader]:
    """An exchange during which this process, event loop and all, stands still for a while."""
    with ScriptedServer(steps) as server:
        gevent.spawn_later(0.1, time.sleep, seconds)
        return send(server.url, timeouts)


def test_what_came_while_the_client_stood_still_is_in_time() -> None:
    """Time-outs run before the reads that wait: the answer came within 0.2 s, in pieces and whole,
    and is read after 1.1 s."""
    for steps in (
        [STREAM, 0.2, *[token()] * 3, FINISH, DONE, END],
        [0.2, STREAM, token(), FINISH, DONE, END],
        [STREAM, token(), 0.2, token(), FINISH, DONE, END],
        [STREAM, token(), 0.2, token(), FINISH, DONE, "hold"],
    ):
        exchange, reader = stand_still(1.0, *steps)
        assert reader.failure(exchange) is None
        assert reader.finish_reason == "stop"


@pytest.mark.skipif(
    not KERNEL_STAMPS, reason="without kernel stamps nobody knows when it came"
)
def test_what_came_too_late_while_the_client_stood_still_is_too_late() -> None:
    """The first token came after 0.7 s, by the kernel's stamp, and 0.4 s were allowed; the same for
    the second."""
    for kind, steps in (
        ("first_token_timeout", [STREAM, 0.7, token(), 0.6, token(), DONE, END]),
        ("token_timeout", [STREAM, token(), 0.7, token(), 0.6, token(), DONE, END]),
    ):
        exchange, reader = stand_still(0.9, *steps)
        assert (found := reader.failure(exchange)) is not None
        assert found[0] == kind


def test_a_whole_answer_is_no_token_timeout() -> None:
    """[DONE] has come, the stream is kept open, and a token may take 0.4 s: that is less than what
    is waited for the end."""
    timeouts = Timeouts(5, 10, 0.4)
    exchange, reader = answer(STREAM, token(), FINISH, DONE, "hold", timeouts=timeouts)
    assert reader.failure(exchange) is None


def test_a_refusal_of_any_length_is_read_as_far_as_it_helps() -> None:
    """A proxy that answers 502 with an endless page: the class is reported, 64 KiB are kept."""
    exchange, reader = answer(
        b"HTTP/1.1 502 Bad Gateway\r\n\r\n<h1>no upstream</h1>",
        *[b"x" * 1_000_000] * 20,
    )
    kind, text = reader.failure(exchange)
    assert (kind, "no upstream" in text, len(exchange.body)) == (
        "http_502",
        True,
        65536,
    )


def test_a_server_that_floods_us_does_not_hold_up_the_others() -> None:
    """Comments as fast as the loopback carries them; meanwhile five requests to another server come
    to their end."""
    flood = [STREAM, token(), *[chunk(b": nothing\n" * 100_000)] * 200]
    with ScriptedServer(flood) as noisy, ScriptedServer(GOOD_STREAM) as good:
        reader = AnswerReader()
        transport = Transport.of_this_process()
        flooded = transport.begin(
            parse_url(noisy.url).resolved(), Request("POST", "/"), reader, Timeouts()
        )
        for _ in range(5):
            exchange, answered = send(good.url, Timeouts())
            assert answered.failure(exchange) is None
        assert flooded.stamps.ended_ns is None
        flooded.cancel()


def test_a_connection_that_dies_before_the_request_is_read_is_a_failure() -> None:
    assert failure("reset", read_request=False) in ("reset", "cut_off")


def test_a_closed_port_is_connection_refused() -> None:
    with ScriptedServer(()) as server:
        pass
    time.sleep(0.05)  # the port is closed in a thread of the server
    exchange, reader = send(server.url)
    assert reader.failure(exchange)[0] == "connect_refused"
    assert exchange.stamps.started_ns <= exchange.stamps.ended_ns


def test_the_second_address_of_a_name_is_tried() -> None:
    """Nobody listens at the first one."""
    with ScriptedServer(GOOD_STREAM) as server:
        address = parse_url(server.url).resolved()
        (good,) = address.endpoints
        two = type(address)(
            *[getattr(address, n) for n in ("scheme", "host", "port", "base_path")],
            ((2, ("127.0.0.9", 1)), good),
        )
        reader = AnswerReader()
        exchange = Transport.of_this_process().send(
            two, Request("POST", "/", (), b"{}"), reader, PATIENT
        )
    assert reader.failure(exchange) is None


def test_an_error_of_the_first_address_is_none_of_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even where the second one's answer, and its end, have come before the error of the first is
    dealt with."""
    on_writable = Connection.on_writable

    def slowly(self: Connection) -> None:
        on_writable(self)
        time.sleep(0.1)  # the loop stands still

    monkeypatch.setattr(Connection, "on_writable", slowly)
    test_the_second_address_of_a_name_is_tried()


def test_a_killed_greenlet_closes_its_connection_at_once() -> None:
    """The server sees the end of the connection; the exchange is cancelled, neither success nor
    failure."""
    seen: list[Exchange] = []
    transport = Transport.of_this_process()

    def ask(url: str) -> None:
        exchange = transport.begin(
            parse_url(url).resolved(),
            Request("POST", "/", (), b"{}"),
            AnswerReader(),
            Timeouts(),
        )
        seen.append(exchange)
        try:
            exchange.wait()
        finally:
            exchange.cancel()

    with ScriptedServer((STREAM, token(), "hold")) as server:
        greenlet = gevent.spawn(ask, server.url)
        gevent.sleep(0.1)  # in the middle of the answer, which nothing shows
        greenlet.kill()
    assert seen[0].cancelled
    assert not transport.pool.connections
    assert seen[0] not in transport.active


@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(st.integers(1, len(b"".join(GOOD_STREAM)) - 1), max_size=6))
def test_any_segmentation_of_an_answer_gives_the_same_events(cuts: list[int]) -> None:
    """Fed by hand into an exchange, so that hypothesis decides where every read ends."""
    whole = b"".join(GOOD_STREAM)
    edges = [0, *sorted(set(cuts)), len(whole)]
    reader = exchange_of([whole[a:b] for a, b in zip(edges, edges[1:], strict=False)])[
        1
    ]
    assert (reader.text, reader.finish_reason, reader.done) == ("ab", "stop", True)


@given(st.lists(st.binary(max_size=60), max_size=8), st.booleans())
def test_any_bytes_end_in_a_record_never_in_a_traceback(
    pieces: list[bytes], after_head: bool
) -> None:
    record = record_of([STREAM, *pieces] if after_head else pieces)
    assert record.status != "ok"


KINDS = {
    token("a"): "text",
    token("é😀"): "text",
    FINISH: "known",
    DONE: "done",
    event('{"usage":{"completion_tokens":7}}'): "usage",
}
answers = st.lists(
    st.sampled_from(
        [
            token("a"),
            token("é😀"),
            FINISH,
            DONE,
            event('{"usage":{"completion_tokens":7}}'),
            event('{"error":"no"}'),
            END,
        ]
    )
)


@given(answers, st.lists(st.integers(min_value=1, max_value=900), max_size=12))
def test_any_order_of_good_events_ends_in_a_record(
    events: list[bytes], cuts: list[int]
) -> None:
    """It is a good answer exactly if a token came, no error came, and two signs of its end."""
    whole = b"".join([STREAM, *events])
    edges = [0, *sorted({cut for cut in cuts if cut < len(whole)}), len(whole)]
    record = record_of([whole[a:b] for a, b in zip(edges, edges[1:], strict=False)])
    heard = [*events, END][: [*events, END].index(END)]
    tokens = [each for each in heard if each in (token("a"), token("é😀"))]
    kinds = [KINDS.get(each, "error") for each in heard]
    good = bool(tokens) and "error" not in kinds
    if good:
        good = is_complete(kinds, has_body_end=END in events, ends_by_reason=False)
    assert (record.status == "ok") == good
    if good:
        assert record.token_events == len(tokens)
        assert len(record.itl_ms) == len(tokens) - 1


def test_framing_in_separate_reads_is_no_header() -> None:
    """60,000 chunks whose size, data and end come one by one: 300 KB of framing in all, never much
    in a row."""
    pieces = [STREAM]
    for _ in range(60_000):
        pieces += [b"b\r\n", b": nothing\n\n", b"\r\n"]
    exchange, _ = exchange_of([*pieces, token(), FINISH, DONE, END])
    assert exchange.failure is None


def test_the_record_of_an_answer_has_only_counts_that_can_be() -> None:
    """8 tokens were asked for and 2 came; the server says 4000000000000096."""
    usage = '{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":%d}}'
    record = record_of(
        [
            STREAM,
            token("a"),
            token("b"),
            FINISH,
            event(usage % 4_000_000_000_000_096),
            DONE,
            END,
        ]
    )
    assert (
        record.status,
        record.output_tokens,
        record.token_source,
        record.prompt_tokens,
    ) == ("ok", 2, "events", 5)
    assert (
        record.count_doubt
        == "usage: 4000000000000096 output tokens where at most 8 were requested"
    )
    record = record_of(
        [STREAM, token("a"), token("b"), FINISH, event(usage % 8), DONE, END]
    )
    assert (record.output_tokens, record.token_source, record.count_doubt) == (
        8,
        "usage",
        None,
    )


def test_the_record_says_which_event_brought_how_many_tokens() -> None:
    """5 tokens in the first of three events, 8 in all: no time per token can be had. One an event:
    nothing is to be said."""

    def counted(text: str, so_far: int) -> bytes:
        return event(
            '{"choices":[{"delta":{"content":"%s"}}],"usage":{"completion_tokens":%d}}'
            % (text, so_far)
        )

    record = record_of(
        [
            STREAM,
            counted("abcde", 5),
            counted("f", 6),
            counted("gh", 8),
            FINISH,
            DONE,
            END,
        ]
    )
    assert (record.event_tokens, record.first_event_tokens, record.tpot_ms) == (
        [5, 1, 2],
        5,
        None,
    )
    record = record_of(
        [STREAM, counted("a", 1), counted("b", 2), counted("c", 3), FINISH, DONE, END]
    )
    assert (record.event_tokens, record.first_event_tokens) == ([], 1)
    assert record.tpot_ms is not None
    record = record_of([STREAM, counted("abcdefgh", 8), FINISH, DONE, END])
    assert (record.event_tokens, record.tpot_ms, record.token_events) == ([8], None, 1)


def test_a_request_timeout_ends_an_answer_that_flows_for_too_long() -> None:
    """A token every 0.1 s is in time for the token timeout; the whole answer is not, and its
    message names the limit."""
    slowly = [step for _ in range(30) for step in (token(), 0.1)]
    exchange, reader = answer(
        STREAM, *slowly, timeouts=Timeouts(5, 5, 5, request_s=0.4)
    )
    assert reader.failure(exchange) == (
        "request_timeout",
        "no complete answer within 0.4 s",
    )
    assert exchange.counts.progress_events < 30


def test_a_request_timeout_counts_from_the_start_before_any_answer() -> None:
    assert (
        failure("hold", timeouts=Timeouts(5, 5, 5, request_s=0.3)) == "request_timeout"
    )
    assert (
        failure("hold", timeouts=Timeouts(5, 0.3, 5, request_s=5))
        == "first_token_timeout"
    )


def test_a_complete_answer_on_an_open_stream_is_no_request_timeout() -> None:
    assert (
        failure(
            STREAM,
            token(),
            FINISH,
            DONE,
            "hold",
            timeouts=Timeouts(5, 5, 5, request_s=0.5),
        )
        is None
    )
