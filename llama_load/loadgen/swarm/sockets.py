"""The sockets of a swarm: Locust's, with all options set before they are bound or connected.

    worker                      master
    control  NAME         --->  one port: Locust's messages, leases, clocks; the answers come back
                                on it
    records  NAME/records --->  the same port: a batch is a header (see `Records`) and its bytes

A worker's records have a connection of their own, so that they delay neither heartbeats nor leases
nor clocks; the master's socket takes messages from all connections in turn. Nothing of ours waits
in a queue for a connection that is closed: `send_now` and `send_batch` return False, and the
caller's state is sent later. Locust's messages wait for it, its heartbeats are dropped.

With a swarm key all is encrypted (`swarm_key`), and messages travel in frames of 64 KiB at most:
that is the most that the master reads from a peer whose key it has not checked yet.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from socket import has_dualstack_ipv6
from typing import Any, TypeVar

import gevent
import zmq
from gevent.event import Event
from locust.exception import RPCError
from locust.rpc import Message, zmqrpc
from zmq.utils.monitor import recv_monitor_message

from llama_load.loadgen.options.secret_flags import redact_options
from llama_load.loadgen.swarm import messages
from llama_load.loadgen.swarm.ports import HeldPort
from llama_load.loadgen.swarm.refusal import CUT_OFF, FAILED, Refusal
from llama_load.loadgen.swarm.swarm_key import SAME_KEY, CurveKeys
from llama_load.loadgen.swarm.unanswered_ready import READY, UnansweredReady
from llama_load.loadgen.swarm.unanswered_spawns import UnansweredSpawns
from llama_load.loadgen.swarm.unknown_peers import UnknownPeers
from llama_load.outside.foreign_text import printable, printable_lines

RECORDS_SUFFIX = "/records"
# With a key: the largest frame, without the 33 bytes that CURVE adds.
FRAME_BYTES = 64 * 1024
# Without a key a message is one frame (Locust's own sockets do not read several): leases with
# images take megabytes.
MOST_BYTES = 256 * 1024 * 1024
# Messages that wait at most in a direction of a connection, except those that a worker receives.
# More than a worker sends in a stall of 5 s.
QUEUED = 1000
# A worker's ZeroMQ sends heartbeats of its own, also while Python is busy. Without an answer for 6
# s it connects again: TCP alone might try for a minute after a network has healed. The master keeps
# a silent connection for longer than it waits for a worker (30 s), so a connection that closes
# earlier was closed by the other side.
HEARTBEAT_MS = 2_000
NO_ANSWER_MS = 6_000
SILENT_MS = 60_000
HANDSHAKE_MS = 5_000
CONNECT_MS = 3_000
# A receiving loop lets others run after this time.
YIELD_S = 0.005
# connections that the kernel keeps until the master accepts them: 500 workers come at once
BACKLOG = 1024
LOOK_AGAIN_S = 1.0
# A worker whose connections were closed makes new ones within this time, if it can.
BACK_WITHIN_S = 1.0
# A worker's first message on a new connection, so that the master knows at once who has come back.
HERE_I_AM = [b""]
# ZeroMQ's names begin so: of peers that gave none, and of connections whose worker has made a newer
# one under its name.
NAMELESS = "\0"
POLLIN = int(zmq.POLLIN)  # as an enum it would cost 3 us to compare

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Turns:
    """Lets other greenlets run every 5 ms, in a loop that might never wait."""

    def __init__(self) -> None:
        self._since_s = 0.0

    def take(self) -> None:
        """Called in each round of the loop."""
        if time.monotonic() - self._since_s > YIELD_S:
            gevent.sleep(0)
            self._since_s = time.monotonic()


class _Inbox:
    """Waits for messages of a socket. (zmq.green costs four times as much: it asks for ZeroMQ's
    state twice a message.)"""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._there = Event()
        self._is_waiting = False
        self._watcher = gevent.get_hub().loop.io(socket.getsockopt(zmq.FD), 1)
        self._watcher.start(self._there.set)

    def receive(self, get: Callable[[int], T]) -> T:
        """What `get(flags)` returns, as soon as it does not raise zmq.Again."""
        while True:
            with suppress(zmq.Again):
                return get(zmq.NOBLOCK)
            self._there.clear()
            if self._has_message():
                continue
            self._is_waiting = True
            self._there.wait(LOOK_AGAIN_S)
            self._is_waiting = False

    def look(self) -> None:
        """To be called after each `send`, because that takes ZeroMQ's signal that a message has
        come."""
        if self._is_waiting and self._has_message():
            self._there.set()

    def close(self) -> None:
        """Wake who waits. Before the socket is closed."""
        self._watcher.stop()
        self._watcher.close()
        self._there.set()

    def _has_message(self) -> bool:
        return bool(self._socket.getsockopt(zmq.EVENTS) & POLLIN)


class _Socket(zmqrpc.BaseSocket):
    """What both sides have in common."""

    def __init__(self, host: str, port: int, keys: CurveKeys | None) -> None:
        self._keys = keys
        self._is_ipv4 = not has_dualstack_ipv6() or self.ipv4_only(host, port)
        self._turns = Turns()

    def _begin(self, socket: Any, events: int) -> None:
        """Receive from this socket, and listen to these events of its connections. Before it is
        bound or connected."""
        self.socket = socket
        self._inbox = _Inbox(socket)
        self._monitor = socket.get_monitor_socket(
            events | zmq.EVENT_DISCONNECTED | FAILED | CUT_OFF
        )
        self._events = _Inbox(self._monitor)
        self._listening = gevent.spawn(self._listen)

    def _listen(self) -> None:
        turns = Turns()
        with suppress(zmq.ZMQError):  # closed
            while True:
                turns.take()
                self._note(
                    self._events.receive(
                        lambda flags: recv_monitor_message(self._monitor, flags)
                    )
                )

    @abstractmethod
    def _note(self, event: Any) -> None:
        """A connection was made or closed."""

    def close(self, linger: int | None = None) -> None:
        """See BaseSocket.close."""
        if not self.socket.closed:
            for inbox in (self._inbox, self._events):
                inbox.close()
            self.socket.disable_monitor()
            self._listening.kill(block=False)
            self.socket.close(linger=linger)

    def _new_socket(self, kind: int, *more: tuple[int, int]) -> Any:
        socket: Any = zmq.Context.instance().socket(kind)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.IPV6, int(not self._is_ipv4)),
            (zmq.MAXMSGSIZE, FRAME_BYTES + 64 if self._keys else MOST_BYTES),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
            (zmq.SNDHWM, QUEUED),
            (zmq.RCVHWM, QUEUED),
            *more,
        ):
            socket.setsockopt(option, value)
        return socket

    def _frames(self, data: bytes) -> list[bytes]:
        if self._keys is None or len(data) <= FRAME_BYTES:
            return [data]
        return [
            data[start : start + FRAME_BYTES]
            for start in range(0, len(data), FRAME_BYTES)
        ]


def _unpacked(data: bytes) -> Message:
    """Raises ValueError if it is not a Locust message."""
    try:
        message: Message = Message.unserialize(data)
    except Exception as error:  # msgpack's own, and what its hooks raise
        raise ValueError("a message that cannot be read") from error
    if not isinstance(message.type, str) or not isinstance(message.node_id, str):
        raise ValueError("a message without a type")
    return message


class Server(_Socket):
    """The master's socket."""

    def __init__(
        self,
        host: str,
        port: int,
        keys: CurveKeys | None = None,
        *,
        is_open: bool = True,
    ) -> None:
        """`is_open`: listen at once, else from `open` on; until then the port is only held. Raises
        RPCError: it is taken."""
        super().__init__(host, port, keys)
        self._place = (host, port)
        # Handover: a worker may come back before its old connection is known to be dead.
        self._begin(
            self._new_socket(
                zmq.ROUTER, (zmq.ROUTER_HANDOVER, 1), (zmq.BACKLOG, BACKLOG)
            ),
            zmq.EVENT_ACCEPTED,
        )
        if keys is not None:
            keys.on_master(self.socket)
        # of each peer: the file descriptor of its connection
        self._connections: dict[str, int] = {}
        self._peers: dict[int, str] = {}
        self._closed_s: dict[str, float] = {}
        self._accepted_s = 0.0
        self.spawns = UnansweredSpawns()
        self._unknown = UnknownPeers()
        self._named: set[str] = set()
        self._held = None if is_open else self._hold()
        if is_open:
            self.open()

    def open(self) -> None:
        """Listen from now on. While the event loop stands still ZeroMQ goes on accepting, and nobody
        counts strangers: nothing that takes long may follow before it runs again. Raises
        RPCError."""
        host, port = self._place
        if self._held is not None:
            self._held.close()
        try:
            if port == 0:
                self.port = self.socket.bind_to_random_port(f"tcp://{host}")
            else:
                self.socket.bind(f"tcp://{host}:{port}")
                self.port = port
            self._unknown.port = self.port
        except zmq.ZMQError as error:
            raise RPCError(f"Socket bind failure: {error}") from error

    def _hold(self) -> HeldPort:
        host, port = self._place
        try:
            held = HeldPort("" if host == "*" else host, port, is_ipv4=self._is_ipv4)
        except OSError as error:
            raise RPCError(f"Socket bind failure: {error}") from error
        self.port = held.port
        return held

    def send_to_client(self, msg: Message) -> None:
        """See BaseSocket.send_to_client. A worker that is not connected gets nothing."""
        self.spawns.sent(msg)
        with suppress(zmq.ZMQError):
            self.socket.send_multipart(
                [msg.node_id.encode(), *self._frames(_redact_message(msg).serialize())],
                zmq.NOBLOCK,
            )
            self._inbox.look()

    def recv_from_client(self) -> tuple[str, Message]:
        """See BaseSocket.recv_from_client."""
        while True:
            self._turns.take()
            try:
                first = self._inbox.receive(
                    lambda flags: self.socket.recv(flags, copy=False)
                )
                frames = self.socket.recv_multipart() if first.more else []
            except zmq.ZMQError as error:
                gevent.sleep(YIELD_S)
                raise RPCError("ZMQ network broken") from error
            peer = first.bytes.decode("utf-8", "replace")
            if peer.startswith(NAMELESS):
                continue
            try:
                if (
                    peer not in self._connections and printable(peer) != peer
                ) or not frames:
                    raise ValueError("it has no proper name")
                self._note_connection(peer, first.get(zmq.SRCFD))
                if frames == HERE_I_AM:
                    continue
                if peer.endswith(RECORDS_SUFFIX):
                    worker = peer.removesuffix(RECORDS_SUFFIX)
                    return worker, Message(
                        messages.RECORDS, messages.unpack_batch(frames), worker
                    )
                message = _unpacked(frames[0] if len(frames) == 1 else b"".join(frames))
                if message.node_id != peer:
                    raise ValueError("it speaks for another worker")
                self.spawns.received(message)
            except ValueError as error:
                self.name_once(peer, str(error))
                continue
            return peer, message

    def name_once(self, worker: str, fault: str) -> None:
        """Log the first fault of each peer."""
        if worker not in self._named and len(self._named) < 1000:
            self._named.add(worker)
            shown = printable(worker, 80), printable(fault, 1000)
            logger.error(
                "a message of worker %s is ignored: %s (further ones are not reported)",
                *shown,
            )

    # ------------------------------------------------------------------ who is connected

    def closed_for_s(self, worker: str) -> float:
        """For how long both connections of this worker have been closed, by its side or by what is
        in between; 0: they are not. (A network that is cut closes nothing for a minute.)"""
        since_s = self._closed_s.get(worker)
        if since_s is None:
            return 0.0
        # Who connects now may be this worker: it says so after a few round trips. Later ones are
        # others: a worker that has lost its connections makes new ones at once.
        back_s = min(self._accepted_s, since_s + BACK_WITHIN_S)
        return time.monotonic() - max(since_s, back_s)

    def _note_connection(self, peer: str, connection: int) -> None:
        if self._connections.get(peer) != connection:
            self._take_events()  # the file descriptor's former owner may not be noted as gone yet
            self._connections[peer] = connection
            self._peers[connection] = peer
            self._unknown.forget(connection)
            self._closed_s.pop(peer.removesuffix(RECORDS_SUFFIX), None)

    def _take_events(self) -> None:
        with suppress(zmq.ZMQError):  # no more
            while True:
                self._note(recv_monitor_message(self._monitor, zmq.NOBLOCK))

    def _note(self, event: Any) -> None:
        if event["event"] & FAILED and "" not in self._named:
            self._named.add("")
            logger.error(
                "a connection was refused: the peer has no swarm key or another one; %s",
                SAME_KEY,
            )
        # a peer without encryption may close it first
        if event["event"] == CUT_OFF and not self._named & {"", "cut off"}:
            self._named.add("cut off")
            logger.warning(
                "a connection was refused or broken during its handshake: no swarm key, or a network that fails"
            )
        if event["event"] == zmq.EVENT_ACCEPTED:
            self._accepted_s = time.monotonic()
            self._unknown.accepted(
                event["value"], len(self._peers), is_open=self._keys is None
            )
        if event["event"] != zmq.EVENT_DISCONNECTED:
            return
        self._unknown.forget(event["value"])
        peer = self._peers.pop(event["value"], None)
        if peer is None or self._connections.get(peer) != event["value"]:
            return
        del self._connections[peer]
        worker = peer.removesuffix(RECORDS_SUFFIX)
        if not {worker, worker + RECORDS_SUFFIX} & self._connections.keys():
            self._closed_s[worker] = time.monotonic()
            if (
                len(self._closed_s) > QUEUED
            ):  # the oldest one is of a worker that has quit long ago
                del self._closed_s[next(iter(self._closed_s))]


class Client(_Socket):
    """A worker's sockets."""

    def __init__(
        self, host: str, port: int, identity: str, keys: CurveKeys | None = None
    ) -> None:
        super().__init__(host, port, keys)
        heartbeats: tuple[tuple[int, int], ...] = (
            (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, NO_ANSWER_MS),
            (zmq.HEARTBEAT_TTL, SILENT_MS),
            (zmq.CONNECT_TIMEOUT, CONNECT_MS),
        )
        # Without a limit on what waits to be received. ZeroMQ 4.3 stops reading at the limit; where
        # the connection is then made again, the next message that is taken ends the process with
        # "Assertion failed: _input_stopped". The master bounds what it sends: it has a limit.
        control = self._new_socket(zmq.DEALER, (zmq.RCVHWM, 0), *heartbeats)
        self._begin(control, zmq.EVENT_HANDSHAKE_SUCCEEDED)
        # Immediate: a batch that waited for a closed connection would arrive after those that were
        # sent again.
        self._records = self._new_socket(zmq.DEALER, (zmq.IMMEDIATE, 1), *heartbeats)
        self._waiting: deque[bytes] = deque(
            maxlen=QUEUED
        )  # Locust's, while the queue is full
        self._is_reported = False
        self.is_connected = False
        self.closed_since_s: float | None = None
        self.connections = 0
        self._refusal = Refusal(host, port)
        self._ready = UnansweredReady()
        for socket, name in (
            (self.socket, identity),
            (self._records, identity + RECORDS_SUFFIX),
        ):
            if keys is not None:
                keys.on_worker(socket)
            socket.setsockopt(zmq.IDENTITY, name.encode())
            socket.connect(f"tcp://{host}:{port}")

    def send(self, msg: Message) -> None:
        """See BaseSocket.send. Never waits and never fails: else Locust would close the socket and
        make a new one."""
        if msg.type == "heartbeat":
            if not self.is_connected:
                return  # it would say nothing when it arrives
            ready = self._ready.overdue()
            if ready is not None:
                self.send(ready)
        if msg.type == READY:  # it is repeated every 5 s until the master has answered
            self._refusal.end_if_final()
        self._ready.sent(msg)
        if msg.type == "exception":  # a locustfile's exception may quote a header
            msg.data = {
                name: printable_lines(str(value)) for name, value in msg.data.items()
            }
        self._waiting.append(msg.serialize())
        self._send_waiting()

    def send_now(self, msg: Message) -> bool:
        """Send it after what waits; False if the connection is closed or its queue is full."""
        return (
            self.is_connected
            and self._send_waiting()
            and self._send(self.socket, self._frames(msg.serialize()))
        )

    def send_batch(self, header: bytes, data: bytes) -> bool:
        """Send a batch of records; False if their connection is closed or its queue is full."""
        return self.is_connected and self._send(
            self._records, [header, *self._frames(data)]
        )

    def _send_waiting(self) -> bool:
        while self._waiting and self._send(self.socket, self._frames(self._waiting[0])):
            self._waiting.popleft()
        return not self._waiting

    def _send(self, socket: Any, frames: list[bytes]) -> bool:
        try:
            socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        self._inbox.look()
        return True

    def recv(self) -> Message:
        """See BaseSocket.recv."""
        while True:
            self._turns.take()
            try:
                frames = self._inbox.receive(self.socket.recv_multipart)
            except zmq.ZMQError as error:
                # closed: Locust asks again at once, and the greenlet that makes a new socket would
                # never run
                gevent.sleep(0.1)
                raise RPCError("ZMQ network broken") from error
            try:
                message = _unpacked(b"".join(frames))
            except ValueError as error:
                self._report(f"a message of the master is ignored: {error}")
                continue
            self._ready.received(message)
            return message

    def _note(self, event: Any) -> None:
        kind = event["event"]
        self.is_connected = kind == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if self.is_connected:
            self._refusal.forget()
            self.closed_since_s = None
            self.connections = self.connections + 1
            self._send(self.socket, HERE_I_AM)
        elif kind == zmq.EVENT_DISCONNECTED and self.connections:
            self.closed_since_s = self.closed_since_s or time.monotonic()
        # Later it is a master that is suspended.
        if not self.connections and self._refusal.note(kind):
            self._report(
                f"the master refuses this worker, or it is no master of this swarm: {SAME_KEY}"
            )

    def _report(self, fault: str) -> None:
        if not self._is_reported:
            logger.error("%s", fault)
        self._is_reported = True

    def close(self, linger: int | None = None) -> None:
        """See BaseSocket.close."""
        self.is_connected = False
        super().close(linger)
        self._records.close(linger=linger)


def _redact_message(msg: Message) -> Message:
    """Remove keys from Locust's message that starts users, which carries all options."""
    if msg.type != "spawn":
        return msg
    return Message(
        msg.type,
        msg.data | {"parsed_options": redact_options(msg.data["parsed_options"])},
        msg.node_id,
    )
