"""Starts a real server as a separate process, waits until it is ready, stops it; its output goes to a log file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from llama_load.errors import RunError, UsageError
from llama_load.plain_http import NoAnswerError, request
from llama_load.processes import end_with_parent
from llama_load.targets.servers import ServerSpec, start_of
from llama_load.targets.servers.server_start import SERVER_KEY

READY_WITHIN_S = 120.0
STOPPED_WITHIN_S = 10.0
NICE = 10


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """Settings of the embedded llama-server. Port 0 takes a free one; `threads` are for computing."""

    model: Path
    host: str = "127.0.0.1"
    port: int = 0
    slots: int = 4
    ctx_per_slot: int = 4096
    threads: int = 1
    alias: str = "demo"
    api_key: str = ""
    shared_kv: bool = False  # one KV pool of slots * ctx_per_slot tokens for all slots
    speculative: str = ""  # method of drafting tokens, such as "ngram_simple"
    embeddings: bool = False  # serve /v1/embeddings
    reranking: bool = False  # serve /v1/rerank
    projector: Path | None = None  # the vision projector (mmproj)
    flags: tuple[str, ...] = ()  # some of llama-server's flags (`llama_load.serving.embedded_flags`); they override the fields

    @property
    def env(self) -> dict[str, str]:
        """Additions to its environment: the key, because every user of the machine can read command lines."""
        return {SERVER_KEY: self.api_key}

    def command(self, port: int) -> list[str]:
        """The command line that starts it on `port`, with `env` in its environment."""
        flags = ["-a", self.alias, "-np", str(self.slots), "-c", str(self.slots * self.ctx_per_slot), "-t", str(self.threads)]
        flags += ["--kv-unified"] if self.shared_kv else []
        flags += ["--spec-type", self.speculative] if self.speculative else []
        flags += ["--embeddings"] if self.embeddings else []
        flags += ["--reranking"] if self.reranking else []
        flags += ["--mmproj", str(self.projector)] if self.projector else []
        spec = ServerSpec(model=str(self.model), host=self.host, args=(*flags, *self.flags))
        return list(start_of(spec).command(spec, port))


@dataclass(slots=True)
class Running:
    """A running server: its process, base URL and log."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def stop(self) -> None:
        """Terminate the process, kill it if it does not end; and its child processes (vLLM has workers)."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOPPED_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port


def refuse_taken(host: str, port: int) -> None:
    """UsageError: a server could not listen there."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as sock:
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # like servers: connections of an earlier server do not matter
            sock.bind(address)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else "there is no such port"
        raise UsageError(f"cannot listen on {host}:{port}: {why}; choose another --port (0 takes a free one)") from None


def start(command: Sequence[str], url: str, log: Path, *, ready: str = "/health", env: Mapping[str, str] | None = None) -> Running:
    """Start `command` and wait until the path `ready` below `url` answers 200. `env` is added to the environment.

    RunError, with the end of the log: it ends or is not ready in time.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(_in_the_child, os.getpid()),
            env=os.environ | dict(env or {}),
            start_new_session=True,  # Ctrl-C in the terminal must end the client first, then this server
        )
    server = Running(process, url, log)
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RunError(f"the server ended while starting (exit code {process.returncode}); {log} ends with:\n{_tail(log)}")
        try:
            if request("GET", url + ready, within_s=2).status == 200:
                return server
        except NoAnswerError:
            pass
        time.sleep(0.05)
    server.stop()
    raise RunError(f"the server was not ready within {READY_WITHIN_S:g} s; {log} ends with:\n{_tail(log)}")


@contextmanager
def embedded_llama_server(server: EmbeddedServer, log: Path) -> Iterator[Running]:
    """The real llama-server, running inside the `with` block."""
    port = server.port or free_port(server.host)
    running = start(server.command(port), f"http://{server.host}:{port}", log, env=server.env)
    try:
        yield running
    finally:
        running.stop()


def _in_the_child(parent: int) -> None:
    """Leave one core to the client on the same machine, and yield to it on the others. On Linux, also die with the parent process,
    so that `kill -9` leaves no server behind."""
    os.nice(NICE)
    if sys.platform.startswith("linux"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[1:] or cores)
    end_with_parent(signal.SIGTERM, parent)


def _tail(log: Path, lines: int = 8) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
