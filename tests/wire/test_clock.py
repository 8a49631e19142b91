"""Steps of the wall clock (NTP, an administrator, a virtual machine that was moved) during requests: no latency moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llama_load.targets.answer import AnswerReader
from llama_load.wire import Exchange, Request, Timeouts, Transport, parse_url
from llama_load.wire import connection as wire_connection
from llama_load.wire import transport as wire_transport
from llama_load.wire.clock import SO_TIMESTAMPNS, receipt_ns, wall_minus_mono_ns
from llama_load.wire.slab import Slab
from tests.scripted_server import DONE, END, FINISH, STREAM, ScriptedServer, token

pytestmark = pytest.mark.skipif(SO_TIMESTAMPNS is None, reason="without kernel stamps the wall clock stamps nothing")

HOUR_NS = 3_600_000_000_000
GAP_S = 0.03
TOKENS = 6
# How far two samples of one offset may be apart on a busy machine.
SAMPLES_MS = 10


class SteppedClock:
    """A wall clock that is ahead by a step from its nth reading on: both what is sampled of it and what the kernel stamps.

    `late`: how many segments that are read after the step were stamped before it. `reads` has the true and the computed instant of
    receipt of each read.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step_ns: int, at: int, late: int) -> None:
        self._step_ns, self._at, self._late = step_ns, at, late
        self._samples = 0
        self._unpack = wire_connection.unpack_timespec
        monkeypatch.setattr(wire_transport, "wall_minus_mono_ns", self._sample)
        monkeypatch.setattr(wire_connection, "unpack_timespec", self._stamp)
        self._received_ns = 0
        self.reads: list[tuple[int, int]] = []
        for owner, method in ((Exchange, Exchange.take), (Slab, Slab.keep)):
            monkeypatch.setattr(owner, method.__name__, self._noting(method))

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def noting(owner: object, data: bytes | memoryview, at: int) -> Any:
            self.reads.append((self._received_ns, at))
            return method(owner, data, at)

        return noting

    @property
    def has_stepped(self) -> bool:
        return self._samples >= self._at

    def _sample(self) -> int:
        self._samples += 1
        return wall_minus_mono_ns() + (self._step_ns if self.has_stepped else 0)

    def _stamp(self, data: bytes) -> tuple[int, int]:
        seconds, nanoseconds = self._unpack(data)
        stamp_ns = seconds * 1_000_000_000 + nanoseconds
        self._received_ns = stamp_ns - wall_minus_mono_ns()
        if self.has_stepped:
            self._late -= 1
            stamp_ns += 0 if self._late >= 0 else self._step_ns
        return divmod(stamp_ns, 1_000_000_000)


@pytest.fixture
def own_transport(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A transport of this test's, whose last sample of the clock is from now."""
    monkeypatch.setattr(Transport, "_instance", None)
    yield
    Transport.of_this_process().close_parked()


def answered() -> AnswerReader:
    reader = AnswerReader()
    with ScriptedServer((STREAM, GAP_S, *[token(), GAP_S] * TOKENS, FINISH, DONE, END)) as server:
        address = parse_url(server.url).resolved()
        exchange = Transport.of_this_process().send(address, Request("POST", "/"), reader, Timeouts(5, 10, 10))
    assert reader.failure(exchange) is None
    return reader


@pytest.mark.usefixtures("own_transport")
@pytest.mark.parametrize("step_ns", [HOUR_NS, -HOUR_NS], ids=["forward", "back"])
@pytest.mark.parametrize("late", [0, 1])
def test_a_step_of_the_wall_clock_moves_no_latency(monkeypatch: pytest.MonkeyPatch, step_ns: int, late: int) -> None:
    """Six tokens, 30 ms apart; the wall clock is stepped by an hour before the headers are read, before the first token, in the
    middle. The first segment after the step was received after it, or before."""
    for at in range(2, 2 + TOKENS):
        Transport._instance = None
        clock = SteppedClock(monkeypatch, step_ns, at, late)
        reader = answered()
        monkeypatch.undo()
        assert clock.has_stepped
        assert len(reader.token_ns) == TOKENS
        assert set(reader.token_ns) <= {computed for _, computed in clock.reads}
        errors_ms = [(computed - true) / 1e6 for true, computed in clock.reads]
        assert max(map(abs, errors_ms)) < SAMPLES_MS, errors_ms


@pytest.mark.parametrize("step_ns", [HOUR_NS, -HOUR_NS, 20_000_000, -20_000_000])
@pytest.mark.parametrize("lag_ns", [0, 40_000, 2_000_000])
def test_a_stamp_is_right_from_before_a_step_and_from_after_it(step_ns: int, lag_ns: int) -> None:
    """Received at 10 s, read a little later; the clock was 5 s ahead before the step."""
    received_ns, before_ns = 10_000_000_000, 5_000_000_000
    offset_ns, now_ns = before_ns + step_ns, received_ns + lag_ns
    assert receipt_ns(received_ns + before_ns, offset_ns, before_ns, now_ns) == received_ns
    assert receipt_ns(received_ns + offset_ns, offset_ns, before_ns, now_ns) == received_ns
