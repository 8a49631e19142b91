"""Steps of the wall clock (NTP, an administrator, a virtual machine that was moved) during
requests: no latency moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from llama_load.ground import clock as wire_clock
from llama_load.ground.clock import (
    SO_TIMESTAMPNS,
    receipt_ns,
    unpack_timespec,
    wall_minus_mono_ns,
)
from llama_load.loadgen.wire import read_loop
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.loadgen.wire.slab import Slab
from llama_load.loadgen.wire.transport import Transport
from llama_load.servers.address import parse_url
from llama_load.servers.answer import AnswerReader
from tests.scripted_server import DONE, END, FINISH, STREAM, ScriptedServer, token

pytestmark = pytest.mark.skipif(
    SO_TIMESTAMPNS is None, reason="without kernel stamps the wall clock stamps nothing"
)

HOUR_NS = 3_600_000_000_000
GAP_S = 0.03
TOKENS = 6
# Two samples of one offset are as far apart as a busy machine stands still; a step is an hour.
FAR_MS = 10_000


class SteppedClock:
    """A wall clock that is ahead by a step from its nth reading on: both what is sampled of it and
    what the kernel stamps.

    `late`: how many segments that are read after the step were stamped before it. `reads` has the
    true and the computed instant of receipt of each read.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, step_ns: int, at: int, late: int
    ) -> None:
        self._step_ns, self._at, self._late = step_ns, at, late
        self._samples = 0
        monkeypatch.setattr(read_loop, "wall_minus_mono_ns", self._sample)
        for module in (wire_clock, read_loop):
            monkeypatch.setattr(module, "unpack_timespec", self._stamp)
        self._received_ns = 0
        self.reads: list[tuple[int, int]] = []
        take, kept = Exchange.take, Slab.__init__
        monkeypatch.setattr(
            Exchange,
            "take",
            lambda exchange, data, at: (self._note(at), take(exchange, data, at)),
        )
        monkeypatch.setattr(
            Slab,
            "__init__",
            lambda slab: (kept(slab), setattr(slab, "stamps", Noted(self._note)))[0],
        )

    def _note(self, at: int) -> None:
        self.reads.append((self._received_ns, at))

    @property
    def has_stepped(self) -> bool:
        return self._samples >= self._at

    def _sample(self) -> int:
        self._samples += 1
        return wall_minus_mono_ns() + (self._step_ns if self.has_stepped else 0)

    def _stamp(self, data: bytes) -> tuple[int, int]:
        seconds, nanoseconds = unpack_timespec(data)
        stamp_ns = seconds * 1_000_000_000 + nanoseconds
        self._received_ns = stamp_ns - wall_minus_mono_ns()
        if self.has_stepped:
            self._late -= 1
            stamp_ns += 0 if self._late >= 0 else self._step_ns
        return divmod(stamp_ns, 1_000_000_000)


class Noted(list[int]):
    """A list that reports what is appended."""

    def __init__(self, note: Callable[[int], None]) -> None:
        super().__init__()
        self._note = note

    def append(self, at: int) -> None:
        self._note(at)
        super().append(at)


@pytest.fixture
def own_transport(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A transport of this test's, whose last sample of the clock is from now. It reads in Python,
    whose clocks a test can replace: `test_receiver.py` compares the compiled receiver's conversion
    with Python's."""
    monkeypatch.setenv("LLAMA_LOAD_RECEIVER", "python")
    monkeypatch.setattr(Transport, "_instances", {})
    yield
    Transport.of_this_process().pool.close_parked()


def answered() -> AnswerReader:
    reader = AnswerReader()
    with ScriptedServer(
        (STREAM, GAP_S, *[token(), GAP_S] * TOKENS, FINISH, DONE, END)
    ) as server:
        address = parse_url(server.url).resolved()
        exchange = Transport.of_this_process().send(
            address, Request("POST", "/"), reader, Timeouts(5, 10, 10)
        )
    assert reader.failure(exchange) is None
    return reader


@pytest.mark.usefixtures("own_transport")
@pytest.mark.parametrize("step_ns", [HOUR_NS, -HOUR_NS], ids=["forward", "back"])
@pytest.mark.parametrize("late", [0, 1])
def test_a_step_of_the_wall_clock_moves_no_latency(
    monkeypatch: pytest.MonkeyPatch, step_ns: int, late: int
) -> None:
    """Six tokens, 30 ms apart; the wall clock is stepped by an hour before the headers are read,
    before the first token, in the middle. The first segment after the step was received after it,
    or before."""
    stepped = 0
    for at in range(2, 2 + TOKENS):
        Transport._instances = {}
        monkeypatch.setenv("LLAMA_LOAD_RECEIVER", "python")
        clock = SteppedClock(monkeypatch, step_ns, at, late)
        reader = answered()
        monkeypatch.undo()
        # not, if a busy machine reads several tokens at once and is done before
        stepped += clock.has_stepped
        assert len(reader.token_ns) == TOKENS
        assert set(reader.token_ns) <= {computed for _, computed in clock.reads}
        errors_ms = [(computed - true) / 1e6 for true, computed in clock.reads]
        assert max(map(abs, errors_ms)) < FAR_MS, errors_ms
    assert stepped > TOKENS // 2


@pytest.mark.parametrize("step_ns", [HOUR_NS, -HOUR_NS, 20_000_000, -20_000_000])
@pytest.mark.parametrize("lag_ns", [0, 40_000, 2_000_000])
def test_a_stamp_is_right_from_before_a_step_and_from_after_it(
    step_ns: int, lag_ns: int
) -> None:
    """Received at 10 s, read a little later; the clock was 5 s ahead before the step."""
    received_ns, before_ns = 10_000_000_000, 5_000_000_000
    offset_ns, now_ns = before_ns + step_ns, received_ns + lag_ns
    assert (
        receipt_ns(received_ns + before_ns, offset_ns, before_ns, now_ns) == received_ns
    )
    assert (
        receipt_ns(received_ns + offset_ns, offset_ns, before_ns, now_ns) == received_ns
    )
