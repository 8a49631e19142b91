"""Connections that say nothing, more than there are descriptors, end nothing: neither a run nor what is served beside it."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import requests

from llama_load.run.reserve import RESERVED, Reserve
from llama_load.wire.local_ports import free_port
from tests.conftest import REPOSITORY, Simulated
from tests.swarms import Stranger, swarm, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit")

# Of the master; more are opened than it may have.
DESCRIPTORS = 512


@contextmanager
def idle(port: int, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    opened = []
    try:
        for _ in range(count):
            with suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", port), 2)
                opened.append(connection)
                connection.sendall(said)
        yield opened
    finally:
        for connection in opened:
            connection.close()


def test_a_run_ends_whatever_connects(tmp_path: Path, simulate: Callable[..., Simulated]) -> None:
    """The port for workers, and that of --metrics-port, with heads that are begun and not ended."""
    metrics = free_port()
    server = simulate("--interval-ms", "1")
    load = ("-u", "2", "--num-prompts", "6", "--max-tokens", "2", "--warmup", "0", "--metrics-port", str(metrics))
    with swarm(tmp_path / "s", server.url, 0, *load, expect=1) as running:
        watching = Stranger(running.port)
        wait_until((running.run_dir / "run.json").exists)  # it is prepared, and waits for workers
        psutil.Process(running.master.pid).rlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        with idle(running.port, DESCRIPTORS + 100), idle(metrics, DESCRIPTORS + 100, b"GET /metrics HTTP/1.1\r\nHost: lo"):
            wait_until(lambda: requests.get(f"http://127.0.0.1:{metrics}/metrics", timeout=10).ok)
            wait_until(lambda: psutil.Process(running.master.pid).num_fds() < DESCRIPTORS * 3 // 4)  # ZeroMQ accepts on its own
            running.add_worker()
            done = running.finish()
        watching.close()
    assert done.code == 0, done.err


def test_a_head_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    """The page's server with a limit of 1 s: a silent connection, half a head, and a further request that does not come are closed;
    an answer may take longer."""
    program = """
import sys
import gevent
from llama_load.web import bounded_server
bounded_server.HEAD_WITHIN_S = 1.0

def answer(environ, start_response):
    gevent.sleep(2 if environ["PATH_INFO"] == "/slow" else 0)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]

server = bounded_server.BoundedServer(("127.0.0.1", int(sys.argv[1])), answer, log=None)
server.serve_forever()
"""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", program, str(port)], cwd=REPOSITORY)
    try:
        wait_until(lambda: requests.get(f"http://127.0.0.1:{port}/", timeout=5).ok)
        whole = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
        for said in (b"", whole[:20], whole):
            with socket.create_connection(("127.0.0.1", port), 20) as connection:
                connection.sendall(said)
                heard = b""
                while data := connection.recv(4096):  # until it is closed
                    heard += data
            assert heard.endswith(b"ok") == (said == whole)
    finally:
        process.kill()
        process.wait()


def test_descriptors_are_kept_for_the_end() -> None:
    before = psutil.Process().num_fds()
    reserve = Reserve()
    assert psutil.Process().num_fds() == before + RESERVED
    reserve.release()
    reserve.release()
    assert psutil.Process().num_fds() == before
