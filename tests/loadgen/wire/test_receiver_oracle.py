"""What the compiled receiver hands over gives the results of reading in Python, byte for byte.

Recorded answers of real servers, cut anywhere, go over a real socket to the receiver; Python looks
now and then. What it gets then goes through the connection with the script's arrival times. The
oracle understands each read at once (`ReadByRead`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest
from gevent.hub import Waiter
from hypothesis import given
from hypothesis import strategies as st

from llama_load.loadgen.wire.answer_body import AnswerBody
from llama_load.loadgen.wire.connection import OPEN, Connection
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.phase_clock import DONE, PhaseClock
from llama_load.loadgen.wire.poller import Received
from llama_load.loadgen.wire.read_loop import ReadLoop
from llama_load.loadgen.wire.request import Request
from llama_load.servers.answer import AnswerReader
from tests.answer_pipeline import ADDRESS
from tests.loadgen.wire.test_receiver import Receiver, Stream, until
from tests.loadgen.wire.test_slab import (
    FD,
    NAMES,
    START_NS,
    Pool,
    ReadByRead,
    Script,
    every,
    found_in,
    play,
    scripts,
)
from tests.transcripts import timed

if Receiver is None:
    pytestmark = pytest.mark.skip(
        reason="there is no compiled receiver in this installation"
    )


# What a read takes beside its bytes, and what may wait for Python before the receiver reads no more
# (PAUSE_BYTES).
PIECE_BYTES, MOST_WAITING = 16, 24 * 1024


@dataclass
class Looks:
    """After which reads Python looks at the receiver, after which the waiting slabs have their
    turn, and when reads may be kept."""

    at: set[int]
    turns: set[int]
    kept_from: int


def received(script: Script, looks: Looks) -> list[Received]:
    """The script's reads as the receiver hands them over, with the script's times; at last the end
    of the connection."""
    receiver = Receiver()
    stream = Stream(receiver)
    stamps = [at for _, at in script.reads]
    found = []

    def look() -> bool:
        for _, _, reads, real_stamps, plain, ended in receiver.collect(1):
            assert all(stamp > 0 for stamp in real_stamps)
            times = [stamps.pop(0) for _ in reads]
            found.append(Received(FD, reads, times, plain, ended))
        return bool(found) and found[-1].ended != 0

    waiting = 0
    for number, (data, _) in enumerate(script.reads):
        stream.send(data)
        waiting += len(data) + PIECE_BYTES
        if number == looks.kept_from:
            receiver.keep(stream.fd)
        if number in looks.at or waiting > MOST_WAITING:
            # released, it reports what it has, of a kept stream, too
            receiver.hold(stream.fd, True)
            receiver.hold(stream.fd, False)
            look()
            waiting = 0
    stream.server.close()
    until(look, "no end")
    receiver.stop()
    stream.client.close()
    assert b"".join(data for part in found for data in part.reads) == b"".join(
        data for data, _ in script.reads
    )
    return found


def play_received(
    script: Script, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Everything that is known of the answer."""
    parts = received(script, looks)
    now_ns = START_NS
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    pool = Pool()
    reader = AnswerReader()
    request = Request("POST", "/", most_bytes=script.most_bytes)
    exchange = Exchange(
        pool,
        ADDRESS,
        request,
        PhaseClock(script.timeouts),
        AnswerBody(reader),
        Waiter(),
        lambda _: None,
    )  # type: ignore[arg-type]
    connection = Connection(pool, ADDRESS)  # type: ignore[arg-type]
    connection.state, connection.opening.connected_ns = OPEN, START_NS
    connection._sock = Socketless()  # type: ignore[assignment]
    connection.exchange, exchange.connection = exchange, connection
    exchange.on_start()
    pool.connections[FD] = connection
    loop = ReadLoop()
    for number, part in enumerate(parts):
        if exchange.clock.phase == DONE:
            break
        now_ns = part.stamps[-1] if part.stamps else now_ns
        is_last = part is parts[-1] and script.end != "close"
        loop.deliver(
            pool,
            Received(
                FD, part.reads, part.stamps, part.plain, 0 if is_last else part.ended
            ),
        )  # type: ignore[arg-type]
        while number in looks.turns and pool.waiting:
            waiting = pool.waiting.pop()
            waiting.understand()
            assert waiting.slab is not None
            waiting.slab.queued = False
    if script.end == "cancel":
        exchange.cancel()
    elif script.end == "fail":
        exchange.fail("client_timeout", "the locustfile stopped waiting")  # type: ignore[arg-type]
    return found_in(exchange, reader)


class Socketless:
    """In place of a socket: nothing reads it."""

    def close(self) -> None:
        pass


def same(script: Script, looks: Looks) -> None:
    """Both ways, compared. When a failure was noticed depends on when Python looked."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected, _ = play(
            Script(
                list(script.reads),
                most_bytes=script.most_bytes,
                timeouts=script.timeouts,
                end=script.end,
            ),
            ReadByRead,
            monkeypatch,
        )
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = play_received(script, looks, monkeypatch)
    for result in (expected, found):
        if result["failure"] is not None or result["cancelled"]:
            result["stamps"].ended_ns = None
    assert found == expected


@given(scripts(), st.data())
def test_any_reads_of_a_recorded_answer_give_the_same_result(
    script: Script, data: st.DataObject
) -> None:
    some = st.sets(st.integers(0, len(script.reads)), max_size=8)
    same(
        script,
        Looks(
            data.draw(some),
            data.draw(some),
            data.draw(st.integers(0, len(script.reads))),
        ),
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_collected_only_at_its_end_gives_the_same_result(name: str) -> None:
    """All of it was received while Python did something else."""
    steps = [step for step in timed(name).steps if isinstance(step, bytes)]
    same(Script(every(steps)), Looks(set(), set(), 0))
