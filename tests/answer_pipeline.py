"""Bytes as a server might send them, cut anywhere, made into the record that a run would keep. No
socket is involved, because hypothesis and the fuzzer, and not a network, decide where every read
ends."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from gevent.hub import Waiter

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.users.measure import SentRequest, make_record
from llama_load.loadgen.users.session import Ticket
from llama_load.loadgen.users.session_tokens import NO_SESSIONS
from llama_load.loadgen.wire.answer_body import AnswerBody
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.phase_clock import PhaseClock
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.run_folder.observed.record import RequestRecord, to_batch
from llama_load.servers.address import parse_url
from llama_load.servers.answer import AnswerReader
from llama_load.servers.counts import checked_counts
from llama_load.servers.prompt import Prompt
from llama_load.servers.target import Target
from tests.make_records import from_batch
from tests.server_kinds import OPENAI

ADDRESS = parse_url("http://127.0.0.1:9")


class NoPool:
    """Stands in for the pool of connections: whatever an exchange asks of it, nothing happens."""

    def __getattr__(self, name: str) -> object:
        return lambda *_, **__: None


def exchange_of(
    pieces: Sequence[bytes], reader: AnswerReader | None = None
) -> tuple[Exchange, AnswerReader]:
    """What becomes of an answer that comes in these reads and is closed then."""
    reader = reader or AnswerReader()
    exchange = Exchange(
        NoPool(),
        ADDRESS,
        Request("POST", "/"),
        PhaseClock(Timeouts()),
        AnswerBody(reader),
        Waiter(),
        lambda _: None,
    )
    exchange.on_start()
    for at, piece in enumerate(pieces, start=exchange.stamps.started_ns):
        if exchange.stamps.ended_ns is None and piece:
            exchange.take(memoryview(piece), at)
    if exchange.stamps.ended_ns is None:
        exchange.connection_lost(
            "cut_off",
            "the server closed the connection",
            exchange.stamps.started_ns + len(pieces),
        )
    return exchange, reader


def prompt_of(reader: AnswerReader) -> tuple[int | None, str | None]:
    """The prompt's tokens, and who says so."""
    counts = checked_counts(reader)
    return counts.prompt_tokens, counts.prompt_token_source


def output_of(reader: AnswerReader) -> tuple[int | None, str | None]:
    """The answer's tokens, and who says so."""
    counts = checked_counts(reader)
    return counts.output_tokens, counts.token_source


def record_of(
    pieces: Sequence[bytes],
    reader: AnswerReader | None = None,
    number: int = 0,
    endpoint: str = "chat",
    prompt: Prompt | None = None,
    **asked_for: Any,
) -> RequestRecord:
    """The record of such an answer, through the columns of the journal and back. `asked_for`:
    fields of `SentRequest`."""
    exchange, reader = exchange_of(pieces, reader)
    reader.settle(exchange)
    ticket = Ticket(Lease(number, False, "workload"), Target(ADDRESS, OPENAI, None))
    asked = SentRequest(
        "id",
        "User",
        "workload",
        "name",
        endpoint,
        None,
        "text",
        "",
        8,
        prompt,
        **asked_for,
    )
    record = make_record(
        SimpleNamespace(worker="w", save_texts=True, session_headers=NO_SESSIONS),
        ticket,
        asked,
        exchange,
        reader,
    )
    (kept,) = from_batch(to_batch([record]))
    return kept
