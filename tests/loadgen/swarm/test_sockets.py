"""A swarm with a key lets nobody in who does not have it, reads nothing of a stranger, and sends no
server's key to anybody."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import gevent
import gevent.server
import gevent.socket
import psutil
import pytest
import zmq
from locust.exception import RPCError
from locust.rpc import Message, zmqrpc

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.secret_flags import redact_options
from llama_load.loadgen.swarm import messages, refusal, swarm_key, unanswered_ready
from llama_load.loadgen.swarm.refusal import MOST_CUT_OFF
from llama_load.loadgen.swarm.sockets import FRAME_BYTES, Client, Server
from llama_load.loadgen.swarm.swarm_key import curve_keys, refuse_open_network
from tests.conftest import SHAREGPT, Simulated, environment, start_program
from tests.json_server import json_server
from tests.swarms import own_port, swarm, wait_until
from tests.waiting import until

KEY = "swarm-key-0123456789"
CANARY = "sk-canary-0123456789abcdef"
MIB = 1 << 20


@pytest.fixture(params=[KEY, None], ids=["key", "no key"])
def key(request: pytest.FixtureRequest) -> str | None:
    return request.param


@pytest.fixture
def master(key: str | None) -> Iterator[Server]:
    server = Server("127.0.0.1", 0, curve_keys(key) if key else None)
    yield server
    server.close(linger=0)


Connect = Callable[..., Client]


@pytest.fixture
def connect(key: str | None) -> Iterator[Connect]:
    made: list[Client] = []

    def client(master: Server, name: str = "w_1", key: str | None = key) -> Client:
        made.append(
            Client("127.0.0.1", master.port, name, curve_keys(key) if key else None)
        )
        return made[-1]

    yield client
    for each in made:
        each.close(linger=0)


def heard(master: Server, within_s: float = 0.3) -> Message | None:
    with gevent.Timeout(within_s, False):
        return master.recv_from_client()[1]
    return None


def test_messages_and_batches_of_any_size_arrive_whole(
    master: Server, connect: Connect
) -> None:
    """What was sent before there was a connection comes, too, in order; large ones travel in
    several frames."""
    client = connect(master)
    for number in range(3):
        client.send(
            Message("one", {"n": number, "x": b"x" * number * FRAME_BYTES}, "w_1")
        )
    got = [heard(master, 2) for _ in range(3)]
    assert [(each.data["n"], len(each.data["x"])) for each in got if each] == [
        (n, n * FRAME_BYTES) for n in range(3)
    ]
    master.send_to_client(Message("two", {"x": b"y" * 5 * MIB}, "w_1"))
    assert len(client.recv().data["x"]) == 5 * MIB
    batch = os.urandom(MIB)
    until(lambda: client.send_batch(messages.pack_header(7, "0" * 16), batch))
    message = heard(master, 2)
    assert message is not None
    assert (message.type, message.node_id) == (messages.RECORDS, "w_1")
    assert message.data == {"number": 7, "run": "0" * 16, "batch": batch}


def test_a_worker_says_that_it_is_ready_until_the_master_has_answered(
    master: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its heartbeats: Locust does so at a worker's start alone."""
    monkeypatch.setattr(unanswered_ready, "ANSWERED_WITHIN_S", 0.05)
    client = connect(master)
    ready = Message("client_ready", "2.47.0", "w_1")
    heartbeat = Message("heartbeat", {"state": "ready"}, "w_1")

    def next_kinds(count: int) -> list[str]:
        gevent.sleep(0.1)  # what is thrown away arrives, which nothing shows
        client.send(heartbeat)
        said = [heard(master, 2) for _ in range(count)]
        return [message.type for message in said if message is not None]

    client.send(ready)
    message = heard(master, 2)
    assert message is not None
    assert message.type == "client_ready"
    until(lambda: client.is_connected)
    assert next_kinds(2) == ["client_ready", "heartbeat"]
    assert next_kinds(2) == ["client_ready", "heartbeat"]
    master.send_to_client(Message("ack", {"index": 0}, "w_1"))
    assert client.recv().type == "ack"
    assert next_kinds(1) == ["heartbeat"]
    assert heard(master) is None


@pytest.mark.parametrize(
    ("key", "theirs"), [(KEY, None), (KEY, "another-key-987654321"), (None, KEY)]
)
def test_a_peer_with_another_key_or_none_is_not_heard(
    master: Server,
    connect: Connect,
    theirs: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = connect(master, key=theirs)
    for _ in range(3):
        client.send(Message("client_ready", "2.47.0", "w_1"))
    assert heard(master) is None
    assert not client.is_connected
    until(lambda: any("a connection was refused" in each for each in caplog.messages))
    until(
        lambda: any(
            "the master refuses this worker" in each for each in caplog.messages
        )
    )


@pytest.mark.parametrize(
    ("key", "theirs"), [(KEY, None), (KEY, "another-key-987654321"), (None, KEY)]
)
def test_a_worker_that_is_refused_ends(
    master: Server,
    connect: Connect,
    theirs: str | None,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says at once what is wrong, and after one patience it ends: Locust's worker tried for five
    minutes."""
    client = connect(master, key=theirs)
    ready = Message("client_ready", "2.47.0", "w_1")
    until(lambda: "the master refuses this worker" in caplog.text)
    client.send(ready)
    monkeypatch.setattr(refusal, "REFUSED_FOR_S", 0)
    with pytest.raises(SystemExit) as ended:
        client.send(ready)
    assert ended.value.code == UsageError.exit_code
    said = capsys.readouterr().err
    assert said.endswith(
        "so it ends: give master and workers the same LLAMA_LOAD_SWARM_KEY\n"
    )


@pytest.mark.parametrize("key", [KEY])
def test_a_proxy_without_its_master_does_not_end_a_worker(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts connections and closes them; the master may come."""
    monkeypatch.setattr(refusal, "REFUSED_FOR_S", 0)
    closed = 0

    def close(connection: gevent.socket.socket, _: object) -> None:
        nonlocal closed
        closed += 1
        connection.close()

    server = gevent.server.StreamServer(("127.0.0.1", 0), close)
    server.start()
    client = connect(SimpleNamespace(port=server.server_port))
    until(lambda: closed >= 2 * MOST_CUT_OFF)
    client.send(Message("client_ready", "2.47.0", "w_1"))
    server.stop()


@pytest.mark.parametrize("key", [KEY])
def test_a_stranger_gets_no_answer_that_depends_on_the_key(master: Server) -> None:
    """ZeroMQ's greeting, which is the same for all; after that a frame without the key ends the
    connection."""
    with gevent.socket.create_connection(("127.0.0.1", master.port)) as stranger:
        stranger.settimeout(5)
        stranger.sendall(greeting("CURVE"))
        got = b""
        while len(got) < 64:
            got += stranger.recv(1000)
        assert got[12:] == greeting("CURVE")[12:]
        stranger.sendall(command(b"\x05HELLO\x01\x00" + bytes(192)))
        assert stranger.recv(1000) == b""


def greeting(mechanism: str) -> bytes:
    return (
        b"\xff"
        + bytes(8)
        + b"\x7f\x03\x01"
        + mechanism.encode().ljust(20, b"\0")
        + bytes(32)
    )


def command(body: bytes) -> bytes:
    return b"\x06" + struct.pack(">Q", len(body)) + body


ATTACKS: dict[
    str, tuple[bytes, bytes]
] = {  # what is sent once, and what again and again
    "a frame of 1 GiB": (
        greeting("CURVE") + b"\x06" + struct.pack(">Q", 1 << 30),
        bytes(MIB),
    ),
    "parts without end": (
        greeting("CURVE"),
        (b"\x03" + struct.pack(">Q", 60_000) + bytes(60_000)) * 16,
    ),
    "commands without end": (greeting("CURVE"), command(bytes(60_000)) * 16),
    "no encryption": (
        greeting("NULL") + command(b"\x05READY"),
        (b"\x03" + struct.pack(">Q", 60_000) + bytes(60_000)) * 16,
    ),
    "ZeroMQ 2": (
        b"\xff" + bytes(7) + b"\x01\x7f\x01\x05",
        (b"\x03" + struct.pack(">Q", 60_000) + bytes(60_000)) * 16,
    ),
    "ZeroMQ 1": (b"\x01\x00", b"\xff" + struct.pack(">Q", 1 << 30) + bytes(MIB)),
    "noise": (os.urandom(1000), os.urandom(MIB)),
}


@pytest.mark.parametrize("key", [KEY])
@pytest.mark.parametrize("attack", ATTACKS)
def test_strangers_cost_neither_memory_nor_silence(
    master: Server, connect: Connect, attack: str
) -> None:
    """Ten of them at once, each sending what it can; a worker is heard meanwhile."""
    client = connect(master)
    until(lambda: client.is_connected)
    process = psutil.Process()
    before = process.memory_info().rss
    highest = 0
    is_over = False

    def attacker() -> None:
        first, again = ATTACKS[attack]
        while not is_over:
            try:
                with gevent.socket.create_connection(
                    ("127.0.0.1", master.port)
                ) as stranger:
                    stranger.sendall(first)
                    while not is_over:
                        stranger.sendall(again)
            except OSError:
                gevent.sleep(0.005)  # before the next attack

    attackers = [gevent.spawn(attacker) for _ in range(10)]
    number = 0
    stop_s = time.monotonic() + 0.5
    while time.monotonic() < stop_s or number < 6:
        number += 1
        client.send(Message("one", {"n": number}, "w_1"))
        message = heard(master, 5)
        assert message is not None
        assert message.data["n"] == number
        highest = max(highest, process.memory_info().rss)
        gevent.sleep(0.01)  # the attackers go on
    is_over = True
    gevent.joinall(attackers)
    assert highest - before < 50 * MIB


@pytest.mark.parametrize("key", [KEY])
def test_half_open_connections_are_closed(
    master: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 peers that connect and say nothing do not keep a worker out."""
    strangers = [
        socket.create_connection(("127.0.0.1", master.port)) for _ in range(500)
    ]
    client = connect(master)
    client.send(Message("one", {"n": 1}, "w_1"))
    message = heard(master, 10)
    assert message is not None
    for stranger in strangers:
        stranger.close()


def test_a_worker_that_speaks_for_another_is_named_once(
    master: Server, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = connect(master), connect(master, "w_2")
    for _ in range(3):
        other.send(Message("quit", None, "w_1"))
    for data in (
        b"",
        b"\xc1",
        b"\x93\x01",
        b"\x91\x01",
        b"\x93\x05\x05\x05",
        b"\xdf\xff\xff\xff\xff",
        b"\x91" * 5000,
    ):
        other.socket.send_multipart([data])
    other.socket.send_multipart([b""] * 1000)
    client.send(Message("good", None, "w_1"))
    message = heard(master, 5)
    assert message is not None
    assert message.type == "good"
    assert heard(master) is None
    assert len([each for each in caplog.messages if "w_2 is ignored" in each]) == 1


def test_a_batch_without_a_header_is_no_batch(master: Server, connect: Connect) -> None:
    client = connect(master)
    until(lambda: client.is_connected)
    for frames in ([b"x"], [b"x", b"y"], [b"x" * 20], [b"\xff" * 20, b"y"]):
        until(lambda frames=frames: client._send(client._records, frames))
    client.send(Message("good", None, "w_1"))
    message = heard(master, 5)
    assert message is not None
    assert message.type == "good"


def test_records_that_wait_delay_nothing_else(master: Server, connect: Connect) -> None:
    """500 batches of a worker wait at the master when the worker's answer to a ping comes: it is
    among the first to be read, because it has a connection of its own. So is what another worker
    says."""
    client, other = connect(master), connect(master, "w_2")
    until(lambda: client.is_connected and other.is_connected)
    for number in range(500):
        until(
            lambda number=number: client.send_batch(
                messages.pack_header(number + 1, "0" * 16), bytes(1000)
            )
        )
    gevent.sleep(0.2)  # batches wait in both sockets, which nothing shows
    for each, name in ((client, "w_1"), (other, "w_2")):
        assert each.send_now(Message(messages.PONG, {}, name))
    gevent.sleep(0.2)  # the same of what overtakes them
    kinds = [
        message.type for _ in range(20) if (message := heard(master, 2)) is not None
    ]
    assert kinds.count(messages.PONG) == 2
    assert kinds.count(messages.RECORDS) == 18


def test_a_worker_comes_back_under_its_name(master: Server, connect: Connect) -> None:
    """Also while its old connection is not known to be dead."""
    for number in range(3):
        client = connect(master)
        client.send(Message("one", {"n": number}, "w_1"))
        message = heard(master, 5)
        assert message is not None
        assert message.data["n"] == number
        master.send_to_client(Message("two", {"n": number}, "w_1"))
        assert client.recv().data["n"] == number


@pytest.mark.parametrize("key", [None])
def test_a_connection_without_a_name_is_not_heard_and_not_named(
    master: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """ZeroMQ makes up a name. It does so, too, for a connection whose worker has made a newer one
    under its name: a master that stood still for 40 s called those unknown workers."""
    with zmq.Context.instance().socket(zmq.DEALER) as nameless:
        nameless.setsockopt(zmq.LINGER, 0)
        nameless.connect(f"tcp://127.0.0.1:{master.port}")
        nameless.send(Message("one", None, "w_1").serialize())
        assert heard(master) is None
    assert not caplog.messages


def test_a_master_that_closes_new_connections_is_not_called_another(
    master: Server, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """As one does that is suspended. The worker knows it: the keys are the same."""
    client = connect(master)
    until(lambda: client.is_connected)
    port = master.port
    master.close(linger=0)
    until(lambda: not client.is_connected)
    closed = 0

    def close(connection: gevent.socket.socket, _: object) -> None:
        nonlocal closed
        closed += 1
        connection.close()

    server = gevent.server.StreamServer(("127.0.0.1", port), close)
    server.start()
    until(lambda: closed >= 2 * MOST_CUT_OFF)
    server.stop()
    assert "refuses" not in caplog.text


# The process of a worker whose event loop stands still, while its master goes on sending and its
# connection is made again.
STALLED_WORKER = """
from gevent import monkey
from gevent.monkey import get_original
monkey.patch_all()
import gevent
from locust.rpc import Message
from llama_load.loadgen.swarm import sockets

sockets.HEARTBEAT_MS = 50
sockets.NO_ANSWER_MS = 150
master = sockets.Server("127.0.0.1", 0)
worker = sockets.Client("127.0.0.1", master.port, "w_1")
worker.send(Message("client_ready", None, "w_1"))
master.recv_from_client()
for number in range(5 * sockets.QUEUED):
    master.send_to_client(Message("leases", number, "w_1"))
get_original("time", "sleep")(0.6)
with gevent.Timeout(1, False):
    while True:
        worker.recv()
worker.send(Message("client_ready", None, "w_1"))
print(master.recv_from_client()[1].type)
"""


def test_a_stalled_worker_with_a_full_queue_goes_on() -> None:
    """ZeroMQ ended its process: "Assertion failed: _input_stopped"."""
    command = [sys.executable, "-c", STALLED_WORKER]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "client_ready\n"


def test_closed_connections_are_noticed(master: Server, connect: Connect) -> None:
    """Those of a worker that ends, and of no other; the file descriptor may be the next
    worker's."""
    listening = gevent.spawn(lambda: [master.recv_from_client() for _ in range(100)])
    staying, going = connect(master), connect(master, "w_2")
    for client, name in ((staying, "w_1"), (going, "w_2")):
        client.send(Message("one", None, name))
        until(
            lambda client=client: client.send_batch(
                messages.pack_header(1, "0" * 16), b"x"
            )
        )
    until(lambda: len(master._connections) == 4)
    going.close()
    until(lambda: master.closed_for_s("w_2") > 0)
    late = connect(master, "w_3")
    late.send(Message("one", None, "w_3"))
    until(lambda: "w_3" in master._connections)
    gevent.sleep(0.1)  # none of them is to be closed
    assert master.closed_for_s("w_1") == master.closed_for_s("w_3") == 0
    connect(master, "w_2")  # which says nothing yet
    until(lambda: master.closed_for_s("w_2") == 0)
    listening.kill()


def test_connections_of_strangers_hide_no_closed_worker(
    master: Server, connect: Connect
) -> None:
    """A monitor that connects to the port all the time: a worker that is gone was noticed after 31
    s, by its silence."""
    listening = gevent.spawn(lambda: [master.recv_from_client() for _ in range(100)])
    staying, going = connect(master), connect(master, "w_2")
    for client, name in ((staying, "w_1"), (going, "w_2")):
        client.send(Message("one", None, name))
        until(
            lambda client=client: client.send_batch(
                messages.pack_header(1, "0" * 16), b"x"
            )
        )
    until(lambda: len(master._connections) == 4)
    going.close()
    until(lambda: "w_2" in master._closed_s)
    knocks = 0

    def is_noticed() -> bool:
        nonlocal knocks
        socket.create_connection(("127.0.0.1", master.port)).close()
        knocks += 1
        return master.closed_for_s("w_2") > 0.2

    until(is_noticed)
    assert knocks > 5
    listening.kill()


def test_nothing_of_ours_waits_for_a_connection(
    master: Server, connect: Connect
) -> None:
    """Locust's messages do; its heartbeats do not."""
    client = connect(master)
    until(lambda: client.is_connected)
    port, keys = master.port, master._keys
    master.close(linger=0)
    until(lambda: not client.is_connected)
    assert not client.send_now(Message("want", {}, "w_1"))
    assert not client.send_batch(messages.pack_header(1, "0" * 16), b"x")
    client.send(Message("heartbeat", {}, "w_1"))
    client.send(Message("stats", {}, "w_1"))
    again = Server("127.0.0.1", port, keys)
    try:
        message = heard(again, 10)
        assert message is not None
        assert message.type == "stats"
        assert heard(again) is None
    finally:
        again.close(linger=0)


def test_a_receiving_loop_lets_others_run(master: Server, connect: Connect) -> None:
    """While messages wait all the time. (Locust's loop never yields then: a busy master
    acknowledged nothing.)"""
    client = connect(master)
    turns = 0

    def flood() -> None:
        while True:
            for _ in range(50):
                client._send(client.socket, [Message("one", None, "w_1").serialize()])
            gevent.sleep(0)  # a turn of the loop

    def other() -> None:
        nonlocal turns
        while True:
            gevent.sleep(0)  # a turn of the loop
            turns += 1

    greenlets = [gevent.spawn(flood), gevent.spawn(other)]
    received, stop = 0, time.monotonic() + 0.3
    while time.monotonic() < stop:
        received += heard(master, 1) is not None
    gevent.killall(greenlets)
    assert received > 100
    assert turns > 10


def test_a_closed_socket_lets_others_run(master: Server, connect: Connect) -> None:
    """Locust receives from it in a loop until there is a new one, which another greenlet makes."""
    client = connect(master)
    client.close()
    with gevent.Timeout(0.1, False):
        while True:
            with pytest.raises(RPCError):
                client.recv()
    assert True  # the timeout came: a loop that never yields would hold it up


def test_a_short_key_is_refused() -> None:
    with pytest.raises(
        UsageError, match="at least 16 characters, got 5: make one with"
    ):
        curve_keys("short")
    assert curve_keys(KEY) == curve_keys(KEY) != curve_keys(KEY + "x")


def test_a_zeromq_without_curve_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm_key.zmq, "has", lambda what: what != "curve")
    with pytest.raises(
        UsageError,
        match="has no CURVE, so the swarm cannot be encrypted: install pyzmq from PyPI",
    ):
        curve_keys("a-key-that-is-not-cached")


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.1",
        "master",
        "127.evil.example",
        "*",
        "",
        "127.0.0.1",
        "localhost",
        "::1",
        "127.9.9.9",
    ],
)
def test_a_worker_with_keys_serves_no_unknown_master(host: str) -> None:
    """Without a swarm key it cannot know who the master is: on loopback it may be any user who
    bound the port first."""
    body = f'{{"api_key": "{CANARY}"}}'
    for given in (
        {"api_key": CANARY},
        {"header": [f"X-Team: {CANARY}"]},
        {"extra_body": body},
    ):
        with pytest.raises(
            UsageError,
            match=f"keys for the server and would use them for whoever listens .* at {re.escape(host)},",
        ):
            refuse_open_network(SimpleNamespace(**given), host)
    harmless = SimpleNamespace(
        api_key="",
        header=["User-Agent: me"],
        extra_body='{"top_k": 1}',
        web_token=CANARY,
        scrape_token=CANARY,
    )
    refuse_open_network(harmless, host)


def test_a_worker_with_a_key_does_not_even_connect_without_a_swarm_key(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.setblocking(False)
        command = [
            "locust",
            "-f",
            str(SHAREGPT),
            "--worker",
            "--master-port",
            str(stranger.getsockname()[1]),
        ]
        worker = start_program(
            command, tmp_path, environment() | {"LLAMA_LOAD_API_KEY": CANARY}
        )
        _, err = worker.communicate(timeout=30)
        assert worker.wait() == 2
        assert "swarm key" in err and CANARY not in err
        with pytest.raises(BlockingIOError):
            stranger.accept()


def test_locusts_message_that_starts_users_holds_no_key() -> None:
    body = f'{{"auth_token": "{CANARY}"}}'
    options = {
        "api_key": CANARY,
        "header": [f"X-Key: {CANARY}"],
        "swarm_key": KEY,
        "extra_body": body,
        "host": "h",
    }
    assert redact_options(options) == {"host": "h"}
    assert redact_options({"extra_body": '{"top_k": 1}'}) == {
        "extra_body": '{"top_k": 1}'
    }


class Eavesdropper:
    """A worker of Locust's own protocol, without the swarm key: it notes all that it is sent."""

    def __init__(self, port: int) -> None:
        self.client = zmqrpc.Client("127.0.0.1", port, "peer_0")
        self.heard: list[bytes] = []
        gevent.spawn(self._listen)
        for message in (
            Message("client_ready", "2.47.0", "peer_0"),
            Message("llama_load_hello", {}, "peer_0"),
        ):
            self.client.send(message)

    def _listen(self) -> None:
        while True:
            try:
                self.heard.append(self.client.socket.recv())
            except (zmq.ZMQError, RPCError):
                return


def test_a_swarm_runs_with_keys_that_do_not_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers have the server's key from their own environment. With a swarm key a peer is sent
    nothing."""
    seen: list[str] = []
    models = {"data": [{"id": "m"}]}
    with json_server({"/health": {"status": "ok"}, "/v1/models": models, "/v1/chat/completions": (401, {"error": f"no {CANARY}"}, {})}) as server:  # fmt: skip
        monkeypatch.setattr("tests.swarms.environment", lambda: environment() | {"LLAMA_LOAD_API_KEY": CANARY, "LLAMA_LOAD_SWARM_KEY": KEY})  # fmt: skip
        with swarm(
            tmp_path / "s",
            server.url,
            1,
            "--num-prompts",
            "6",
            "-u",
            "2",
            "--warmup",
            "0",
        ) as running:
            peer = Eavesdropper(running.port)
            done = running.finish()
            peer.client.close(linger=0)
            seen = [headers.get("Authorization", "") for headers in server.headers]
    assert done.code in (1, 3), done.err
    assert len(done.records.measured()) == 6, done.err
    assert seen.count(f"Bearer {CANARY}") > 6
    everything = b"".join(peer.heard) + (done.out + done.err + running.log(0)).encode()
    everything += b"".join(
        file.read_bytes() for file in done.folder.iterdir() if file.is_file()
    )
    everything += str(done.records.table.to_pylist()).encode()
    assert CANARY.encode() not in everything
    assert "workers are not authenticated" not in done.err
    assert "a connection was refused" in done.err
    assert not peer.heard


def test_a_worker_without_the_servers_key_says_so(
    tmp_path: Path, simulate: Callable[..., Simulated]
) -> None:
    server = simulate()
    with swarm(
        tmp_path / "s", server.url, 1, "--num-prompts", "4", "--api-key", CANARY
    ) as running:
        done = running.finish()
    assert done.code == 2
    assert "the master sends no keys" in done.err and CANARY not in done.err


@pytest.mark.heavy
def test_processes_have_a_key_and_listen_on_loopback(
    tmp_path: Path, simulate: Callable[..., Simulated]
) -> None:
    """Catches a socket of --processes that strangers reach."""
    server = simulate("--interval-ms", "20")
    ports = own_port()
    command = [
        "locust",
        "-f",
        str(SHAREGPT),
        "--headless",
        "--processes",
        "2",
        *ports,
        "--host",
        server.url,
    ]
    command += [
        "-u",
        "2",
        "--num-prompts",
        "20",
        "--max-tokens",
        "20",
        "--run-dir",
        str(tmp_path / "run"),
        "--loglevel",
        "WARNING",
    ]
    command += ["--api-key", CANARY]
    process = start_program(command, tmp_path, environment())

    def listens() -> bool:
        return any(
            each.laddr and each.laddr.port == int(ports[1])
            for each in psutil.net_connections("tcp")
        )

    wait_until(listens, 20)
    bound = {each.laddr.ip for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == int(ports[1]) and each.status == "LISTEN"}  # fmt: skip
    peer = Eavesdropper(int(ports[1]))
    out, err = process.communicate(timeout=60)
    peer.client.close(linger=0)
    assert process.wait() == 0, err
    assert bound == {"127.0.0.1"}
    assert "not authenticated" not in err
    assert "a connection was refused" in err  # or broken during its handshake
    assert CANARY not in out + err
    assert not peer.heard
