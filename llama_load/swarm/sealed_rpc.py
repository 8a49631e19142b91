"""Locust's sockets with message authentication: a swarm key authenticates every message, including Locust's own.

    worker -> master   MAGIC, MAC, master's session, counter, message
    master -> worker   the same

The MAC (HMAC-SHA256 with the swarm key) covers direction, worker name, session, counter and message; the message names its run.
A worker name belongs to one worker process, a random session to one master process, and counters increase: a message cannot be
replayed, neither to another worker nor in another run. A worker learns the session from the master's first answer (a challenge) and
then sends its earlier messages again.

Without a swarm key Locust's messages are unchanged. API keys are never sent: they are removed from Locust's message that starts
users, which carries all options. Nothing is encrypted: prompts and records can be read on the network.
"""

from __future__ import annotations

import hmac
import itertools
import logging
import secrets
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import gevent
import zmq
from locust import argument_parser, runners
from locust.exception import RPCError, RPCReceiveError
from locust.rpc import Message, zmqrpc

from llama_load.foreign_text import printable, printable_lines
from llama_load.options.flags import LOOPBACK, without_keys

MAGIC = b"LL1\0"
MAC_BYTES, SESSION_BYTES, COUNTER_BYTES = 32, 16, 8
_MESSAGE = SESSION_BYTES + COUNTER_BYTES
_HEAD = len(MAGIC) + MAC_BYTES + _MESSAGE
ANYWHERE = "*"  # Locust's default of --master-bind-host
NO_SESSION = bytes(SESSION_BYTES)
TO_MASTER, TO_WORKER = b"m", b"w"
# The largest message accepted. Batches of records take kilobytes, leases with images a few megabytes.
MOST_BYTES = 256 * 1024 * 1024
# Messages kept until the master's first answer: ready, hello, heartbeats.
MOST_UNANSWERED = 100

logger = logging.getLogger(__name__)


class BadSeal(Exception):
    """A message with a wrong key, or replayed."""


class Seal:
    """Creates and checks the authenticated messages of one process. All its sockets share one counter."""

    def __init__(self, key: str) -> None:
        self._key = sha256(b"llama-load swarm key " + key.encode()).digest()
        self._counter = itertools.count(1)

    def seal(self, direction: bytes, worker: str, session: bytes, message: bytes) -> bytes:
        """The message with its authentication header."""
        rest = session + next(self._counter).to_bytes(COUNTER_BYTES, "big") + message
        return MAGIC + self._mac(direction, worker, rest) + rest

    def open(self, direction: bytes, worker: str, data: bytes) -> tuple[bytes, int, bytes]:
        """Session, counter and message. Raises BadSeal."""
        if len(data) < _HEAD or data[: len(MAGIC)] != MAGIC:
            raise BadSeal("it has no swarm key")
        mac, rest = data[len(MAGIC) : len(MAGIC) + MAC_BYTES], memoryview(data)[len(MAGIC) + MAC_BYTES :]
        if not hmac.compare_digest(mac, self._mac(direction, worker, rest)):
            raise BadSeal("it has another swarm key")
        session, counter, message = rest[:SESSION_BYTES], rest[SESSION_BYTES:_MESSAGE], rest[_MESSAGE:]
        return bytes(session), int.from_bytes(counter, "big"), bytes(message)

    def _mac(self, direction: bytes, worker: str, rest: bytes | memoryview) -> bytes:
        name = worker.encode()
        mac = hmac.new(self._key, direction + len(name).to_bytes(4, "big") + name, sha256)
        mac.update(rest)
        return mac.digest()


def _understood(data: bytes) -> Message:
    """Raises RPCReceiveError if it is not a Locust message."""
    try:
        message: Message = Message.unserialize(data)
        return message
    except (ValueError, TypeError, KeyError) as error:  # msgpack's are ValueErrors, too
        raise RPCReceiveError("a message that cannot be read") from error


class Server(zmqrpc.Server):
    """The master's socket."""

    def __init__(self, host: str, port: int, seal: Seal | None = None) -> None:
        begin: Any = super().__init__
        begin(host, port)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        self._seal = seal
        self._session = secrets.token_bytes(SESSION_BYTES)
        self._counters: dict[str, int] = {}
        self._refused: set[str] = set()

    def send_to_client(self, msg: Message) -> None:
        """See BaseSocket.send_to_client."""
        data = _without_secrets(msg).serialize()
        if self._seal is not None:
            data = self._seal.seal(TO_WORKER, msg.node_id, self._session, data)
        try:
            self.socket.send_multipart([msg.node_id.encode(), data])
        except zmq.ZMQError as error:
            raise RPCError("ZMQ sent failure") from error

    def recv_from_client(self) -> tuple[str, Message]:
        """See BaseSocket.recv_from_client: the next message of a worker that has our key."""
        while True:
            try:
                frames = self.socket.recv_multipart()
            except zmq.ZMQError as error:
                raise RPCError("ZMQ network broken") from error
            if len(frames) != 2:
                continue
            try:
                worker = frames[0].decode()
                if printable(worker) != worker:
                    raise BadSeal("it has no proper name")
                data = self._opened(worker, frames[1])
                if data is None:
                    continue
                message = _understood(data)
            except (UnicodeDecodeError, BadSeal, RPCReceiveError) as error:
                self._refuse(frames[0].decode("utf-8", "replace"), error)
                continue
            if self._seal is not None and message.node_id != worker:
                self._refuse(worker, BadSeal("it speaks for another worker"))
                continue
            return worker, message

    def _opened(self, worker: str, data: bytes) -> bytes | None:
        """The message in these bytes; None if the worker must send it again in this session. Raises BadSeal."""
        if self._seal is None:
            if data[: len(MAGIC)] == MAGIC:
                raise BadSeal("it has a swarm key, this master has none")
            return data
        session, counter, message = self._seal.open(TO_MASTER, worker, data)
        if session != self._session:
            self._answer(worker, b"")  # the challenge: this is the session
            return None
        if counter <= self._counters.get(worker, 0):
            raise BadSeal("a message came twice")
        self._counters[worker] = counter
        return message

    def _answer(self, worker: str, message: bytes) -> None:
        if self._seal is not None:
            self.socket.send_multipart([worker.encode(), self._seal.seal(TO_WORKER, worker, self._session, message)])

    def _refuse(self, worker: str, error: Exception) -> None:
        """Log once per peer why it is refused, and notify the peer."""
        if worker not in self._refused and len(self._refused) < 1000:
            self._refused.add(worker)
            logger.error(
                "a peer named %s is not heard: %s; give master and workers the same LLAMA_LOAD_SWARM_KEY",
                printable(worker, 80),
                error,
            )
            try:
                self._answer(worker, b"")
            except (zmq.ZMQError, UnicodeEncodeError):
                return


class Client(zmqrpc.Client):
    """A worker's socket."""

    def __init__(self, host: str, port: int, identity: str, seal: Seal | None = None) -> None:
        begin: Any = super().__init__
        begin(host, port, identity)
        self._identity = identity
        self._seal = seal
        self._session = NO_SESSION
        self._past_sessions: set[bytes] = set()
        self._counter = 0
        self._unanswered: list[bytes] = []
        self._is_reported = False

    def send(self, msg: Message) -> None:
        """See BaseSocket.send."""
        for pause_s in (1, 2, 3, None):
            if self.send_now(msg):
                return
            if pause_s is None:
                break
            gevent.sleep(pause_s)
        raise RPCError("ZMQ sent failure")

    def send_now(self, msg: Message) -> bool:
        """Send it; False if the queue is full (ZeroMQ's 1,000 messages)."""
        if msg.type == "exception":  # a locustfile's exception may quote a header
            msg.data = {name: printable_lines(str(value)) for name, value in msg.data.items()}
        data = msg.serialize()
        if self._seal is not None and self._session == NO_SESSION:
            self._unanswered = [*self._unanswered, data][-MOST_UNANSWERED:]
        return self._send_data(data)

    def _send_data(self, data: bytes) -> bool:
        if self._seal is not None:
            data = self._seal.seal(TO_MASTER, self._identity, self._session, data)
        try:
            self.socket.send(data, zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def recv(self) -> Message:
        """See BaseSocket.recv: the next message of a master that has our key."""
        while True:
            try:
                data = self.socket.recv()
            except zmq.ZMQError as error:
                raise RPCError("ZMQ network broken") from error
            try:
                opened = self._opened(data)
                if opened:
                    return _understood(opened)
            except (BadSeal, RPCReceiveError) as error:
                if not self._is_reported:
                    logger.error("the master is not heard: %s; give master and workers the same LLAMA_LOAD_SWARM_KEY", error)
                self._is_reported = True

    def _opened(self, data: bytes) -> bytes:
        """The message in these bytes, empty if it only begins a session. Raises BadSeal."""
        if self._seal is None:
            if data[: len(MAGIC)] == MAGIC:
                raise BadSeal("it has a swarm key, this worker has none")
            return data
        session, counter, message = self._seal.open(TO_WORKER, self._identity, data)
        if session != self._session:
            if session in self._past_sessions:
                raise BadSeal("a message of an earlier session came again")
            self._past_sessions.add(self._session)
            self._session, self._counter = session, 0
            unanswered, self._unanswered = self._unanswered, []
            for each in unanswered:
                self._send_data(each)
        if counter <= self._counter:
            raise BadSeal("a message came twice")
        self._counter = counter
        return message


def _without_secrets(msg: Message) -> Message:
    """Remove keys from Locust's message that starts users, which carries all options."""
    if msg.type != "spawn":
        return msg
    return Message(msg.type, msg.data | {"parsed_options": without_keys(msg.data["parsed_options"])}, msg.node_id)


def install() -> None:
    """Make Locust's runners use these sockets. To be called before Locust forks, so that --processes share the key made here."""
    made_up = secrets.token_hex(32)

    def seal(options: Any) -> Seal | None:
        key = options.swarm_key or (made_up if options.processes and not options.worker else "")
        return Seal(key) if key else None

    def server(host: str, port: int) -> Server:
        options = argument_parser.parse_options()  # parsed again, because Locust changes some in its forks
        found = seal(options)
        if options.processes and host == ANYWHERE:
            host = LOOPBACK
        if found is None and host not in ("localhost", LOOPBACK, "::1"):
            logger.warning(
                "workers are not authenticated: anyone who reaches port %d of this machine can take requests, read prompts and "
                "forge results; start master and workers with the same LLAMA_LOAD_SWARM_KEY, or the master with "
                "--master-bind-host %s",
                *(port, LOOPBACK),
            )
        return Server(host, port, found)

    def client(host: str, port: int, identity: str) -> Client:
        return Client(host, port, identity, seal(argument_parser.parse_options()))

    locusts: Any = runners
    locusts.rpc = SimpleNamespace(Server=server, Client=client)
