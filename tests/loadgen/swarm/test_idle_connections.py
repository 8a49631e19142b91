"""Connections that say nothing, more than there are descriptors, end nothing: neither a run nor
what is served beside it."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import requests

from llama_load.loadgen.run.reserve import RESERVED, Reserve
from llama_load.loadgen.swarm.ports import HeldPort, is_free
from llama_load.servers.local_ports import free_port
from tests.conftest import REPOSITORY, Finished, Simulated
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


def test_a_run_ends_whatever_connects(
    tmp_path: Path, simulate: Callable[..., Simulated]
) -> None:
    """The port for workers, and that of --metrics-port, with heads that are begun and not ended."""
    metrics = free_port()
    server = simulate("--interval-ms", "1")
    load = (
        "-u",
        "2",
        "--num-prompts",
        "6",
        "--max-tokens",
        "2",
        "--warmup",
        "0",
        "--metrics-port",
        str(metrics),
    )
    with swarm(tmp_path / "s", server.url, 0, *load, expect=1) as running:
        watching = Stranger(running.port)
        wait_until(
            (running.run_dir / "run.json").exists
        )  # it is prepared, and waits for workers
        psutil.Process(running.master.pid).rlimit(
            resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)
        )
        with (
            idle(running.port, DESCRIPTORS + 100),
            idle(metrics, DESCRIPTORS + 100, b"GET /metrics HTTP/1.1\r\nHost: lo"),
        ):
            wait_until(
                lambda: (
                    requests.get(f"http://127.0.0.1:{metrics}/metrics", timeout=10).ok
                )
            )
            # ZeroMQ accepts on its own
            wait_until(
                lambda: (
                    psutil.Process(running.master.pid).num_fds() < DESCRIPTORS * 3 // 4
                )
            )
            running.add_worker()
            done = running.finish()
        watching.close()
    assert done.code == 0, done.err


def test_a_master_that_prepares_its_run_lets_nobody_in(
    tmp_path: Path, simulate: Callable[..., Simulated]
) -> None:
    """ZeroMQ accepts on its own, and nobody counts while Python is busy: strangers took every
    descriptor of a master that was about to begin. The port is its own all the time."""
    server = simulate("--interval-ms", "1")
    load = ("-u", "2", "--num-prompts", "6", "--max-tokens", "2", "--warmup", "0")
    refused = 0
    with swarm(tmp_path / "s", server.url, 0, *load, expect=1) as running:
        process = psutil.Process(running.master.pid)
        with ExitStack() as opened:
            while not (running.run_dir / "run.json").exists():
                with suppress(psutil.Error):  # before it is what it will be
                    process.rlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
                for _ in range(50):
                    try:
                        opened.enter_context(
                            socket.create_connection(("127.0.0.1", running.port), 2)
                        )
                    except ConnectionRefusedError:
                        refused += 1
                assert running.master.poll() is None, running.master.communicate()
            running.add_worker()
            done = running.finish()
    assert refused > 100
    assert done.code == 0, done.err


def test_a_held_port_is_nobody_elses() -> None:
    port = free_port()
    held = HeldPort("", port, is_ipv4=True)
    assert not is_free(port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 2)
    held.close()
    assert is_free(port)


SERVER = """
import sys
import gevent
from llama_load.page import bounded_server
bounded_server.HEAD_WITHIN_S = 1.0

def answer(environ, start_response):
    gevent.sleep(2 if environ["PATH_INFO"] == "/slow" else 0)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]

server = bounded_server.BoundedServer(("127.0.0.1", int(sys.argv[1])), answer, log=None)
server.serve_forever()
"""


def test_a_stranger_writes_no_line_into_the_log(tmp_path: Path) -> None:
    """Heads that are none: gevent wrote 20 lines for one with 101 headers."""
    port = free_port()
    heads = (
        b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 101 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"X" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(port)],
            cwd=REPOSITORY,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: requests.get(f"http://127.0.0.1:{port}/", timeout=30).ok)
        for head in heads:
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", port), 20) as connection,
            ):
                connection.sendall(head)
                while connection.recv(4096):
                    pass
        assert requests.get(f"http://127.0.0.1:{port}/", timeout=30).ok
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "log").read_text() == ""


def test_a_head_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    """The page's server with a limit of 1 s: a silent connection, half a head, and a further
    request that does not come are closed; an answer may take longer."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port)], cwd=REPOSITORY
    )
    try:
        wait_until(lambda: requests.get(f"http://127.0.0.1:{port}/", timeout=30).ok)
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


GREEDY = """
import os, resource
from locust import task
from llama_load import LlamaUser, ShareGPT

resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
held = []

class Greedy(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        self.chat()
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            print("none is left:", error.strerror)
"""


def test_a_run_that_has_no_descriptor_left_gets_all_its_reports(
    run_locust: Callable[..., Finished],
    simulate: Callable[..., Simulated],
    tmp_path: Path,
) -> None:
    """Whatever took them: here the locustfile, after its first answer. A reading of the machine's
    CPU ended what would have ended the run."""
    locustfile = tmp_path / "greedy.py"
    locustfile.write_text(GREEDY)
    flags = ("-u", "2", "--num-prompts", "12", "--warmup", "0", "--max-tokens", "2")
    beside = (
        "--junit",
        "out.xml",
        "--csv",
        "out",
        "--upload",
        f"file://{tmp_path}/copy",
    )
    html = {"LLAMA_LOAD_NO_REPORT_HTML": "false"}
    server = simulate("--interval-ms", "1")
    done = run_locust(server.url, *flags, *beside, locustfile=locustfile, **html)
    assert "none is left: Too many open files" in done.out
    assert done.code == 0, done.err
    assert done.summary["completed"] == 12
    assert "/llama_load/" not in done.err, done.err
    written = ("report.html", "report.md", "summary.txt", "requests.parquet")
    for folder in (done.folder, *(tmp_path / "copy").iterdir()):
        assert all((folder / name).stat().st_size for name in written)
    assert (tmp_path / "out.xml").stat().st_size and (
        tmp_path / "out_requests.csv"
    ).stat().st_size


def test_descriptors_are_kept_for_the_end() -> None:
    before = psutil.Process().num_fds()
    reserve = Reserve()
    assert psutil.Process().num_fds() == before + RESERVED
    reserve.release()
    reserve.release()
    assert psutil.Process().num_fds() == before
