"""The compiled receiver: what it hands over is what was sent, in order and in time, whatever Python
does meanwhile."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from llama_load.ground.clock import SO_TIMESTAMPNS, BatchClock
from llama_load.loadgen.wire.poller import END_OF_STREAM
from llama_load.loadgen.wire.receiver import compiled_receiver
from llama_load.loadgen.wire.slab import KEPT_READ_BYTES
from tests.scripted_server import DONE, END, FINISH, STREAM, token

Receiver = compiled_receiver()
if Receiver is None:
    pytestmark = pytest.mark.skip(
        reason="there is no compiled receiver in this installation"
    )

WITHIN_S = 20.0


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """(server's side, client's side) of a connection on loopback, as the wire opens it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS or 0, 1)
    return server, client


def until(is_so: Any, why: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < end, why
        time.sleep(0.0002)  # between two looks, closer than tokens follow each other


@pytest.fixture
def receiver() -> Iterator[Any]:
    made = Receiver()
    yield made
    made.stop()


class Stream:
    """A connection, what was sent on it, and what of that was handed over."""

    def __init__(self, receiver: Any) -> None:
        self.receiver = receiver
        self.server, self.client = tcp_pair()
        self.fd = self.client.fileno()
        self.generation = receiver.add(self.fd)
        self.sent = b""
        self.got: list[bytes] = []
        self.stamps: list[int] = []
        self.ended = 0

    def send(self, data: bytes, *, alone: bool = True) -> None:
        """Send; `alone`: wait until the receiver has read it, so that it is a read of its own."""
        before = self.receiver.facts()[1]
        self.server.sendall(data)
        self.sent += data
        if alone:
            until(lambda: self.receiver.facts()[1] > before, "nothing was received")

    def take(self, found: tuple[int, int, list[bytes], list[int], int, int]) -> None:
        """Keep what was handed over."""
        fd, generation, reads, stamps, _, ended = found
        assert (fd, generation) == (self.fd, self.generation)
        self.got += reads
        self.stamps += stamps
        assert not (self.ended and (reads or ended)), "something came after the end"
        self.ended = self.ended or ended

    def close(self) -> None:
        """The receiver first: it must not read a descriptor that is closed, or belongs to another
        by then."""
        with suppress(KeyError, RuntimeError):
            self.receiver.remove(self.fd)
        self.server.close()
        self.client.close()


def collected(receiver: Any, stream: Stream) -> None:
    for found in receiver.collect(64):
        stream.take(found)


def test_every_read_wakes_until_the_stream_is_kept(receiver: Any) -> None:
    """A first token is handed over at once; later whole events wait; what may be the end of the
    answer does not."""
    stream = Stream(receiver)
    stream.send(STREAM)
    collected(receiver, stream)
    assert stream.got == [STREAM]
    receiver.keep(stream.fd)
    for _ in range(5):
        stream.send(token())
    assert receiver.collect(64) == []
    stream.send(END)
    [(_, _, reads, stamps, plain, ended)] = receiver.collect(64)
    assert reads == [token()] * 5 + [END]
    assert (plain, ended) == (5, 0)
    assert stamps == sorted(stamps)
    stream.close()


def test_a_part_of_an_event_wakes(receiver: Any) -> None:
    """What follows may be the end of the answer, and nothing tells the thread so."""
    stream = Stream(receiver)
    receiver.keep(stream.fd)
    stream.send(token()[:-3])
    [(_, _, reads, _, plain, _)] = receiver.collect(64)
    assert (reads, plain) == ([token()[:-3]], 0)
    stream.close()


def test_a_stream_that_is_held_leaves_the_others_their_places(receiver: Any) -> None:
    """Four wait; the second and the last are held, the second is removed."""
    streams = [Stream(receiver) for _ in range(4)]
    for stream in streams:
        stream.send(STREAM)
    receiver.hold(streams[1].fd, True)
    receiver.hold(streams[3].fd, True)
    receiver.remove(streams[1].fd)
    assert [found[0] for found in receiver.collect(64)] == [
        streams[0].fd,
        streams[2].fd,
    ]
    receiver.hold(streams[3].fd, False)
    assert [found[0] for found in receiver.collect(64)] == [streams[3].fd]
    for stream in streams:
        stream.close()


def test_the_end_of_a_connection_is_handed_over_after_its_bytes(receiver: Any) -> None:
    """The peer's end, and a reset."""
    stream = Stream(receiver)
    stream.send(token())
    stream.server.close()
    until(
        lambda: [stream.take(found) for found in receiver.collect(64)] and stream.ended,
        "no end",
    )
    assert (b"".join(stream.got), stream.ended) == (token(), END_OF_STREAM)

    other = Stream(receiver)
    other.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    other.server.close()
    until(
        lambda: [other.take(found) for found in receiver.collect(64)] and other.ended,
        "no end",
    )
    assert os.strerror(other.ended) == "Connection reset by peer"


def test_a_flood_stays_in_the_kernel(receiver: Any) -> None:
    """Python takes nothing: the receiver keeps at most about 96 KiB and one read of a stream; all
    of it arrives in the end."""
    stream = Stream(receiver)
    receiver.keep(stream.fd)
    flood = os.urandom(4_000_000)
    sender = threading.Thread(target=lambda: stream.send(flood, alone=False))
    sender.start()
    time.sleep(0.3)  # nobody takes anything meanwhile
    total = 0
    while total < len(flood):
        found = receiver.take(stream.fd)
        size = sum(map(len, found[2]))
        assert size <= (96 + 64) * 1024
        total += size
        stream.take(found)
        time.sleep(0.001)  # slower than the flood
    sender.join()
    assert b"".join(stream.got) == flood
    stream.close()


def test_a_descriptor_that_is_used_again_gets_nothing_of_its_predecessor(
    receiver: Any,
) -> None:
    """Bytes that were not collected go with their stream."""
    stream = Stream(receiver)
    stream.send(b"old bytes")
    assert receiver.remove(stream.fd) is True
    stream.close()
    after = Stream(receiver)
    assert after.generation != stream.generation
    assert receiver.collect(64) == []
    assert receiver.remove(after.fd) is False
    after.close()


def test_a_held_stream_is_received_but_not_reported(receiver: Any) -> None:
    """Until it is released."""
    stream = Stream(receiver)
    receiver.hold(stream.fd, True)
    stream.send(token())
    stream.server.close()
    assert receiver.collect(64) == []
    receiver.hold(stream.fd, False)
    until(
        lambda: [stream.take(found) for found in receiver.collect(64)] and stream.ended,
        "no end",
    )
    assert stream.got == [token()]


def test_misuse_is_an_error_and_not_a_crash(receiver: Any) -> None:
    """Unknown, closed and repeated descriptors; a receiver that has stopped, or belongs to the
    parent."""
    stream = Stream(receiver)
    with pytest.raises(OSError, match="File exists"):
        receiver.add(stream.fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        receiver.add(100_000)
    with pytest.raises(ValueError, match="no descriptor"):
        receiver.add(-1)
    for call in (receiver.keep, receiver.take, receiver.receive, receiver.remove):
        with pytest.raises(KeyError):
            call(99_999)
    child = os.fork()
    if child == 0:
        try:
            receiver.collect(1)
        except RuntimeError:
            del receiver
            gc.collect()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    stopped = Receiver()
    stopped.stop()
    stopped.stop()
    with pytest.raises(RuntimeError):
        stopped.collect(1)
    stream.close()


def test_a_number_that_is_no_descriptor_costs_no_memory(receiver: Any) -> None:
    """The table of descriptors grew before anybody looked: to 16 GiB for the highest number."""
    before = resident_bytes()
    with pytest.raises(OSError, match="Bad file descriptor"):
        receiver.add(2**24)
    assert resident_bytes() - before < 32 * 2**20


def resident_bytes() -> int:
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_the_end_of_a_stream_that_cannot_be_watched_again_is_reported(
    receiver: Any,
) -> None:
    """It was full, and its descriptor is closed when Python has made room: this is found while it
    is collected, and reported although it is held and released in between."""
    stream = Stream(receiver)
    receiver.keep(stream.fd)
    sender = threading.Thread(target=lambda: stream.send(b"x" * 400_000, alone=False))
    sender.start()
    until(lambda: receiver.facts()[1] and is_still(receiver), "it is not full")
    stream.client.close()
    sender.join()
    [(_, _, reads, _, _, ended)] = receiver.collect(1)
    assert sum(map(len, reads)) >= 96 * 1024
    assert ended == 0

    receiver.hold(stream.fd, True)
    receiver.hold(stream.fd, False)
    [(_, _, reads, _, _, ended)] = receiver.collect(1)
    assert (reads, os.strerror(ended)) == ([], "Bad file descriptor")
    stream.close()


def is_still(receiver: Any) -> bool:
    """Whether nothing is read for a while."""
    before = receiver.facts()[1]
    time.sleep(0.1)  # nothing is to happen
    return bool(receiver.facts()[1] == before)


def test_many_streams_are_read_together_below_a_quarter_of_their_gaps(
    receiver: Any,
) -> None:
    """Ten streams: with gaps of 4 ms they are read every millisecond or less often; as soon as the
    gaps are 0.4 ms, at once again, and no two tokens in one read."""
    streams = [Stream(receiver) for _ in range(10)]
    for stream in streams:
        receiver.keep(stream.fd)

    def send_to_all(times: int, gap_s: float) -> None:
        for _ in range(times):
            for stream in streams:
                stream.send(token(), alone=False)
            time.sleep(gap_s)  # the gap of tokens that is tested

    assert receiver.facts()[4] == 0
    send_to_all(40, 0.004)
    until(lambda: receiver.facts()[4] > 0, "the streams are not read together")
    assert receiver.facts()[4] <= 3_000_000
    until(lambda: send_to_all(20, 0.0004) or receiver.facts()[4] == 0, "they still are")

    def has_come(stream: Stream) -> bool:
        stream.take(receiver.take(stream.fd))
        return b"".join(stream.got) == stream.sent

    for stream in streams:
        until(lambda stream=stream: has_come(stream), "bytes are missing")
        stream.close()


NS = st.integers(-(10**15), 10**15)


@given(
    stamp=NS,
    offset=NS,
    step=st.sampled_from([0, 3_600 * 10**9, -3_600 * 10**9, 2_000_000, -2_000_000]),
    now=NS,
    previous=NS,
)
def test_stamps_are_converted_as_in_python(
    stamp: int, offset: int, step: int, now: int, previous: int
) -> None:
    """With and without a step of the wall clock."""
    from llama_load.loadgen.wire import _receiver  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(time, "monotonic_ns", lambda: now)
        clock = BatchClock(now, offset, offset - step)
        expected = clock.arrival_ns(_timespec(stamp), previous)
    assert _receiver.arrival_ns(stamp, offset, offset - step, now, previous) == expected


def _timespec(stamp_ns: int) -> bytes:
    seconds, nanoseconds = divmod(stamp_ns, 10**9)
    return seconds.to_bytes(8, "little", signed=True) + nanoseconds.to_bytes(
        8, "little", signed=True
    )


PIECES = st.sampled_from(
    [
        token(),
        token("多"),
        STREAM,
        FINISH,
        DONE,
        END,
        b"x",
        b"\n\n\r\n",
        b"y" * 40,
        b"z" * (KEPT_READ_BYTES + 1),
    ]
)


class AnySequence(RuleBasedStateMachine):
    """Calls and traffic in any order: every byte is handed over once, in order, and the end once,
    after them."""

    def __init__(self) -> None:
        super().__init__()
        self.receiver = Receiver()
        self.streams: dict[int, Stream] = {}
        # their descriptors: which number one gets is not for hypothesis to see
        self.order: list[int] = []
        self.open: list[int] = []  # those whose server has not closed
        self.held: set[int] = set()

    @precondition(lambda self: len(self.streams) < 4)
    @rule()
    def connect(self) -> None:
        stream = Stream(self.receiver)
        self.streams[stream.fd] = stream
        self.order.append(stream.fd)
        self.open.append(stream.fd)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 3), piece=PIECES)
    def send(self, which: int, piece: bytes) -> None:
        self.streams[self.open[which % len(self.open)]].send(piece, alone=False)

    @precondition(lambda self: self.streams)
    @rule(
        which=st.integers(0, 3),
        call=st.sampled_from(["keep", "receive", "take", "hold", "release", "silent"]),
    )
    def call(self, which: int, call: str) -> None:
        fd = self.order[which % len(self.order)]
        if call == "take":
            found = self.receiver.take(fd)
            assert found[5] == 0
            self.streams[fd].take(found)
        elif call in {"hold", "release"}:
            self.receiver.hold(fd, call == "hold")
            (self.held.add if call == "hold" else self.held.discard)(fd)
        elif call == "silent":
            assert set(self.receiver.silent(time.monotonic_ns() + 10**9)) <= set(
                self.streams
            )
        else:
            getattr(self.receiver, call)(fd)

    @rule(most=st.integers(0, 4))
    def collect(self, most: int) -> None:
        found = self.receiver.collect(most)
        assert len(found) <= most
        for entry in found:
            assert entry[0] not in self.held
            self.streams[entry[0]].take(entry)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 3))
    def server_closes(self, which: int) -> None:
        fd = self.open.pop(which % len(self.open))
        self.streams[fd].server.close()

    @precondition(lambda self: self.streams)
    @rule(which=st.integers(0, 3))
    def client_closes(self, which: int) -> None:
        fd = self.order[which % len(self.order)]
        self.receiver.remove(fd)
        self._forget(fd)

    def _forget(self, fd: int) -> None:
        stream = self.streams.pop(fd)
        self.order.remove(fd)
        self.held.discard(fd)
        if fd in self.open:
            self.open.remove(fd)
        stream.close()

    @invariant()
    def what_came_is_what_was_sent(self) -> None:
        for stream in self.streams.values():
            assert stream.sent.startswith(b"".join(stream.got))
            assert stream.stamps == sorted(stream.stamps)

    def teardown(self) -> None:
        for fd, stream in list(self.streams.items()):
            self.receiver.hold(fd, False)
            if fd in self.open:
                stream.server.close()

        def all_ended() -> bool:
            for entry in self.receiver.collect(64):
                self.streams[entry[0]].take(entry)
            return all(stream.ended for stream in self.streams.values())

        try:
            until(all_ended, "a stream never ended")
            for stream in self.streams.values():
                assert b"".join(stream.got) == stream.sent
        finally:
            for fd in list(self.streams):
                self._forget(fd)
            self.receiver.stop()


def test_any_sequence_of_calls_loses_and_invents_nothing() -> None:
    run_state_machine_as_test(
        AnySequence,
        settings=settings(
            max_examples=int(os.environ.get("RECEIVER_EXAMPLES", "25")), deadline=None
        ),
    )
