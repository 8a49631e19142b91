"""Real swarms on this machine: a master and workers, each a separate Locust process."""

from __future__ import annotations

import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
import requests
from locust.rpc import Message

from llama_load.loadgen.swarm.sockets import Client
from llama_load.loadgen.swarm.swarm_key import CurveKeys
from llama_load.servers.local_ports import free_port
from tests.conftest import (
    SHAREGPT,
    Finished,
    Program,
    end_with_parent,
    environment,
    start_program,
)
from tests.waiting import until
from tests.web_client import TOKEN


@dataclass
class Swarm:
    """A master and its workers, under way."""

    folder: Path
    port: int
    locustfile: Path
    master: Program
    workers: list[Program] = field(default_factory=list)

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def add_worker(
        self,
        *before: str,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> Program:
        """One more worker; `before` is put before its command (unshare); `port` leads to the master
        by another way."""
        number = len(self.workers)
        place = self.folder / f"worker-{number}"
        place.mkdir()
        command = ["locust", "-f", str(self.locustfile), "--worker"]
        command += [
            "--master-host",
            "127.0.0.1",
            "--master-port",
            str(port or self.port),
            "--loglevel",
            "WARNING",
        ]
        env = environment() | dict(env or {})
        process: Program
        with (place / "log").open("w") as log:
            if before:
                command = [*before, sys.executable, "-m", *command]
                process = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    text=True,
                    cwd=place,
                    env=env,
                    preexec_fn=end_with_parent,
                )
            else:
                process = start_program(command, place, env, log)
        self.workers.append(process)
        return process

    def log(self, number: int) -> str:
        return (self.folder / f"worker-{number}" / "log").read_text()

    def records_on_disk(self) -> int:
        """How many bytes of records the master has written."""
        return sum(
            journal.stat().st_size for journal in self.run_dir.glob("requests*.arrows")
        )

    def has_records(self) -> bool:
        return self.records_on_disk() > 0

    def finish(self, timeout_s: float = 60) -> Finished:
        """Wait for the master's end."""
        out, err = self.master.communicate(timeout=timeout_s)
        return Finished(self.master.wait(), out, err, self.run_dir)


@contextmanager
def swarm(
    folder: Path,
    host: str,
    workers: int,
    *arguments: str,
    expect: int | None = None,
    locustfile: Path = SHAREGPT,
    web_port: int | None = None,
) -> Iterator[Swarm]:
    """Start a master, with its web UI if that has a port, and this many workers."""
    folder.mkdir(exist_ok=True)
    port = free_port()
    command = ["locust", "-f", str(locustfile), "--master", "--host", host]
    command += ["--master-bind-port", str(port), "--loglevel", "WARNING"]
    command += (
        ["--headless", "--expect-workers", str(expect or workers)]
        if web_port is None
        else web_ui(web_port)
    )
    command += ["--run-dir", str(folder / "run"), *arguments]
    master = start_program(command, folder, environment())
    running = Swarm(folder, port, locustfile, master)
    try:
        for _ in range(workers):
            running.add_worker()
        yield running
    finally:
        for process in [master, *running.workers]:
            if process.poll() is None:
                process.kill()
            process.wait()


def own_port() -> list[str]:
    """Flags for --processes: a port that no other run uses."""
    port = str(free_port())
    return ["--master-bind-port", port, "--master-port", port]


def web_ui(port: int) -> list[str]:
    """Flags for Locust's web page on this machine alone."""
    return ["--web-port", str(port), "--web-host", "127.0.0.1", "--web-token", TOKEN]


def wait_until(true: Callable[[], bool], timeout_s: float = 60) -> None:
    """Also while a page that is asked does not answer yet."""

    def is_so() -> bool:
        with suppress(requests.RequestException):
            return true()
        return False

    until(is_so, timeout_s)


@dataclass
class TcpProxy:
    """A port that leads to another, and the connections through it."""

    port: int
    listener: socket.socket
    listen: Callable[[], None]
    open: list[socket.socket] = field(default_factory=list)
    # cleared: the network is cut, and what is sent comes later
    flows: threading.Event = field(default_factory=threading.Event)

    def blip(self) -> None:
        """Reset all connections: what is under way on them is lost, new ones can be made at
        once."""
        for sock in self.open:
            with suppress(OSError):
                sock.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                sock.shutdown(socket.SHUT_RDWR)
                sock.close()
        self.open.clear()

    def close_port(self) -> None:
        """Reset all connections, and refuse new ones until `open_port`."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.blip()

    def open_port(self) -> None:
        """Take connections again."""
        self.listen()


@contextmanager
def slow_link(port: int, there_s: float, back_s: float) -> Iterator[TcpProxy]:
    """A way to a port with a delay in each direction. (There is no netem in every kernel.)"""

    def carry(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
        waiting: queue.Queue[tuple[float, bytes]] = queue.Queue()

        def deliver() -> None:
            with suppress(OSError):
                while True:
                    due, data = waiting.get()
                    left_s = max(0.0, due - time.monotonic())
                    time.sleep(left_s)  # the delay of the link
                    link.flows.wait()
                    if not data:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(data)

        threading.Thread(target=deliver, daemon=True).start()
        with suppress(OSError):
            while data := source.recv(65536):
                waiting.put((time.monotonic() + delay_s, data))
        waiting.put((time.monotonic() + delay_s, b""))

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", port))
                except OSError:  # nobody listens there yet: the worker will try again
                    near.close()
                    continue
                link.open += [near, far]
                for way in ((near, far, there_s), (far, near, back_s)):
                    threading.Thread(target=carry, args=way, daemon=True).start()

    def listen() -> None:
        link.listener = socket.create_server(("127.0.0.1", link.port))
        threading.Thread(target=accept, args=(link.listener,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = TcpProxy(listener.getsockname()[1], listener, listen)
        link.flows.set()
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield link
        with suppress(OSError):  # it may be closed
            link.listener.shutdown(socket.SHUT_RDWR)
        link.listener.close()


def indices_of(done: Finished) -> list[int]:
    """The places in the plan of all measured requests that ended, in order."""
    return [index for index, _ in prompts_of(done)]


def prompts_of(done: Finished) -> Sequence[tuple[int, str]]:
    """(place in the plan, hash of the prompt) of every measured request that ended, in the plan's
    order."""
    records = done.records.measured()
    ended = records.where(~records.equals("status", "cancelled"))
    return sorted(
        zip(
            ended.table["prompt_index"].to_pylist(),
            ended.strings("prompt_sha256"),
            strict=True,
        )
    )


class Stranger:
    """A peer of the master's port that says what it likes: no Locust is behind it."""

    def __init__(
        self, port: int, name: str = "stranger_1", keys: CurveKeys | None = None
    ) -> None:
        self.name = name
        self.run = "0" * 16  # that of the master's last message that named one
        self._heard: set[str] = set()
        self._client = Client("127.0.0.1", port, name, keys)
        until(lambda: self._client.is_connected)

    def say(self, kind: str, body: Any) -> None:
        """Send a message, whatever it is."""
        self.send([Message(kind, body, self.name).serialize()])

    def send(self, frames: list[bytes]) -> None:
        """Send these frames."""
        until(lambda: self._client._send(self._client.socket, frames))

    def send_records(self, header: bytes, data: bytes) -> None:
        """Send a batch of records."""
        self._client.send_batch(header, data)

    def listen(self, seconds: float) -> None:
        """Take what the master says."""
        with gevent.Timeout(seconds, False):
            while True:
                said = self._client.recv()
                self._heard.add(said.type)
                if isinstance(said.data, dict):
                    self.run = said.data.get("run", self.run)

    def heard(self, kind: str) -> bool:
        """Whether the master has sent such a message by now."""
        self.listen(0.05)
        return kind in self._heard

    def close(self) -> None:
        """Close both connections."""
        self._client.close(linger=0)
