"""A swarm with a key hears nobody who does not have it, nothing twice, and sends no server's key to anybody."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import pytest
import zmq
from locust.exception import RPCError
from locust.rpc import Message, zmqrpc

from llama_load.options.flags import without_keys
from llama_load.swarm.sealed_rpc import MAC_BYTES, MAGIC, NO_SESSION, TO_MASTER, TO_WORKER, BadSeal, Client, Seal, Server
from tests.conftest import SHAREGPT, Simulated, environment
from tests.json_server import json_server
from tests.swarms import own_port, swarm, wait_until

KEY = "swarm-key-0123456789"
CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture
def master() -> Iterator[Server]:
    server = Server("127.0.0.1", 0, Seal(KEY))
    yield server
    server.close(linger=0)


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def client(master: Server, name: str = "w_1", key: str | None = KEY) -> Client:
        made.append(Client("127.0.0.1", master.port, name, Seal(key) if key else None))
        return made[-1]

    yield client
    for each in made:
        each.close(linger=0)


def heard(master: Server, within_s: float = 0.5) -> Message | None:
    with gevent.Timeout(within_s, False):
        return master.recv_from_client()[1]
    return None


def test_a_worker_with_the_key_is_heard_and_answered(master: Server, connect: Callable[..., Client]) -> None:
    """What it said before the master's first answer comes, too, in order."""
    client = connect(master)
    listening = gevent.spawn(client.recv)
    for number in range(3):
        client.send(Message("one", {"n": number}, "w_1"))
    assert [heard(master, 2).data["n"] for _ in range(3)] == [0, 1, 2]
    master.send_to_client(Message("two", {"run": "r"}, "w_1"))
    assert listening.get(timeout=2).data == {"run": "r"}


@pytest.mark.parametrize("key", [None, "another-key-987654321"])
def test_a_peer_without_the_key_is_not_heard(
    master: Server, connect: Callable[..., Client], key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(master, key=key)
    gevent.spawn(client.recv)
    for _ in range(3):
        client.send(Message("client_ready", "2.47.0", "w_1"))
    assert heard(master) is None
    assert len([each for each in caplog.messages if "is not heard" in each and "w_1" in each]) == 1
    gevent.sleep(0.1)
    assert any("the master is not heard" in each for each in caplog.messages)


def test_locusts_own_socket_is_not_heard(master: Server) -> None:
    peer = zmqrpc.Client("127.0.0.1", master.port, "w_2")
    peer.send(Message("quit", None, "w_1"))
    assert heard(master) is None
    peer.close(linger=0)


def test_a_message_is_not_taken_twice_nor_from_another_worker(master: Server, connect: Callable[..., Client]) -> None:
    client = connect(master)
    gevent.spawn(client.recv)
    client.send(Message("one", {"n": 0}, "w_1"))
    assert heard(master, 2) is not None
    message = Message("records", {"number": 1, "run": "r"}, "w_1")
    sealed = client._seal.seal(TO_MASTER, "w_1", client._session, message.serialize())
    client.socket.send(sealed)
    assert heard(master, 2).data["number"] == 1
    client.socket.send(sealed)
    assert heard(master) is None
    other = connect(master, "w_2")
    other.socket.send(sealed)
    assert heard(master) is None
    other.send(Message("quit", None, "w_1"))  # in another's name
    assert heard(master) is None


def test_what_was_recorded_of_an_earlier_master_is_not_taken(connect: Callable[..., Client]) -> None:
    seal = Seal(KEY)
    first, second = (Server("127.0.0.1", 0, Seal(KEY)) for _ in range(2))
    old = seal.seal(TO_MASTER, "w_1", first._session, Message("client_ready", "2", "w_1").serialize())
    client = connect(second)
    client.socket.send(old)
    assert heard(second) is None
    for server in (first, second):
        server.close(linger=0)


def test_a_worker_hears_no_other_master_and_nothing_twice(master: Server, connect: Callable[..., Client]) -> None:
    client = connect(master)
    seal = master._seal
    assert client._opened(seal.seal(TO_WORKER, "w_1", b"1" * 16, b"x")) == b"x"
    again = seal.seal(TO_WORKER, "w_1", b"1" * 16, b"y")
    assert client._opened(again) == b"y"
    with pytest.raises(BadSeal, match="twice"):
        client._opened(again)
    assert client._opened(seal.seal(TO_WORKER, "w_1", b"2" * 16, b"z")) == b"z"
    with pytest.raises(BadSeal, match="earlier session"):
        client._opened(seal.seal(TO_WORKER, "w_1", b"1" * 16, b"x"))
    for bad in (seal.seal(TO_WORKER, "w_2", b"2" * 16, b"x"), seal.seal(TO_MASTER, "w_1", b"2" * 16, b"x"), Seal("k").seal(TO_WORKER, "w_1", b"2" * 16, b"x")):  # fmt: skip
        with pytest.raises(BadSeal):
            client._opened(bad)


def test_any_changed_byte_is_noticed() -> None:
    seal = Seal(KEY)
    sealed = seal.seal(TO_MASTER, "w", NO_SESSION, b"message")
    assert seal.open(TO_MASTER, "w", sealed)[2] == b"message"
    for at in range(len(sealed)):
        with pytest.raises(BadSeal):
            seal.open(TO_MASTER, "w", sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :])
    for size in range(len(MAGIC) + MAC_BYTES + 30):
        with pytest.raises(BadSeal):
            seal.open(TO_MASTER, "w", sealed[:size])


def test_bytes_that_are_no_message_end_nothing(connect: Callable[..., Client]) -> None:
    master = Server("127.0.0.1", 0)
    peer = connect(master, key=None)
    for data in (b"", b"\xc1", b"\x93\x01", b"\x91\x01", MAGIC + b"x" * 100):
        peer.socket.send(data)
    peer.send(Message("good", None, "w_1"))
    assert heard(master, 2).type == "good"
    master.close(linger=0)


def test_locusts_message_that_starts_users_holds_no_key() -> None:
    body = f'{{"auth_token": "{CANARY}"}}'
    options = {"api_key": CANARY, "header": [f"X-Key: {CANARY}"], "swarm_key": KEY, "extra_body": body, "host": "h"}
    assert without_keys(options) == {"host": "h"}
    assert without_keys({"extra_body": '{"top_k": 1}'}) == {"extra_body": '{"top_k": 1}'}


class Eavesdropper:
    """A worker of Locust's own protocol, without the swarm key: it notes all that it is sent."""

    def __init__(self, port: int) -> None:
        self.client = zmqrpc.Client("127.0.0.1", port, "peer_0")
        self.heard: list[bytes] = []
        gevent.spawn(self._listen)
        for message in (Message("client_ready", "2.47.0", "peer_0"), Message("llama_load_hello", {}, "peer_0")):
            self.client.send(message)

    def _listen(self) -> None:
        while True:
            try:
                self.heard.append(self.client.socket.recv())
            except (zmq.ZMQError, RPCError):
                return


@pytest.mark.parametrize(
    "key", [KEY, pytest.param("", marks=pytest.mark.heavy)]
)  # heavy: the peer counts as a worker until it is lost
def test_a_swarm_runs_with_keys_that_do_not_travel(tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have the server's key from their own environment. With a swarm key a peer is sent nothing that it could read."""
    seen: list[str] = []
    models = {"data": [{"id": "m"}]}
    with json_server({"/health": {"status": "ok"}, "/v1/models": models, "/v1/chat/completions": (401, {"error": f"no {CANARY}"}, {})}) as server:  # fmt: skip
        monkeypatch.setattr("tests.swarms.environment", lambda: environment() | {"LLAMA_LOAD_API_KEY": CANARY} | ({"LLAMA_LOAD_SWARM_KEY": key} if key else {}))  # fmt: skip
        with swarm(tmp_path / "s", server.url, 1, "--num-prompts", "6", "-u", "2", "--warmup", "0") as running:
            peer = Eavesdropper(running.port)
            done = running.finish()
            peer.client.close(linger=0)
            seen = [headers.get("Authorization", "") for headers in server.headers]
    assert done.code in (1, 3), done.err
    assert len(done.records.measured()) == 6, done.err
    assert seen.count(f"Bearer {CANARY}") > 6
    everything = b"".join(peer.heard) + (done.out + done.err + running.log(0)).encode()
    everything += b"".join(file.read_bytes() for file in done.folder.iterdir() if file.is_file())
    everything += str(done.records.table.to_pylist()).encode()
    assert CANARY.encode() not in everything
    assert ("workers are not authenticated" in done.err) == (not key)
    if key:
        assert "peer_0 is not heard" in done.err
        assert b"".join(peer.heard).count(b"spawn") == 0


def test_a_worker_without_the_servers_key_says_so(tmp_path: Path, simulate: Callable[..., Simulated]) -> None:
    server = simulate()
    with swarm(tmp_path / "s", server.url, 1, "--num-prompts", "4", "--api-key", CANARY) as running:
        done = running.finish()
    assert done.code == 2
    assert "the master sends no keys" in done.err and CANARY not in done.err


def test_processes_have_a_key_and_listen_on_loopback(tmp_path: Path, simulate: Callable[..., Simulated]) -> None:
    import psutil

    server = simulate("--interval-ms", "20")
    ports = own_port()
    command = [sys.executable, "-m", "locust", "-f", str(SHAREGPT), "--headless", "--processes", "2", *ports, "--host", server.url]
    command += ["-u", "2", "--num-prompts", "20", "--max-tokens", "20", "--run-dir", str(tmp_path / "run"), "--loglevel", "WARNING"]
    command += ["--api-key", CANARY]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), cwd=tmp_path)

    def listens() -> bool:
        return any(each.laddr and each.laddr.port == int(ports[1]) for each in psutil.net_connections("tcp"))

    wait_until(listens, 20)
    bound = {each.laddr.ip for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == int(ports[1]) and each.status == "LISTEN"}  # fmt: skip
    peer = Eavesdropper(int(ports[1]))
    out, err = process.communicate(timeout=60)
    peer.client.close(linger=0)
    assert process.returncode == 0, err
    assert bound == {"127.0.0.1"}
    assert "not authenticated" not in err
    assert "peer_0 is not heard" in err
    assert CANARY not in out + err
