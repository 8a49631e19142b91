"""Starts servers, waits until they are ready, and stops them: `with serving(spec, folder) as server`, or `start(command, …)`."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from llama_load.errors import RunError
from llama_load.foreign_text import printable_lines
from llama_load.serving.commands import redact_server_command, with_model
from llama_load.serving.supervisor import COMMAND_WITHIN_S, STOPPED_WITHIN_S, Job, Process
from llama_load.targets.servers import ServerSpec, start_of
from llama_load.targets.servers.server_start import READY_WITHIN_S, Command, runnable
from llama_load.wire.local_ports import free_port, refuse_taken

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - listening everywhere, it is reached by loopback


@dataclass(slots=True)
class Server:
    """A server that is ready."""

    url: str
    port: int
    log: Path  # its output
    command: Command  # as it was started, without secrets
    start_s: float  # from the start of its process until it was ready
    pid: int  # of the process that listens
    rpc: Command  # addresses of its RPC workers
    _events: _Events = field(repr=False)

    def ended(self) -> str:
        """Why it has ended, with its last words; "" while it runs."""
        return self._events.ended()

    def wait(self) -> str:
        """Wait until it ends by itself, and return why."""
        return self._events.wait()

    def stop(self) -> None:
        """Stop it and all that was started with it, and run the clean-up commands."""
        self._events.close()


@contextmanager
def serving(spec: ServerSpec, folder: Path) -> Iterator[Server]:
    """A running server. Its log is server.log in `folder`; beside it are worker-N.log, alongside-N.log and commands.log.

    It is stopped at the end of the block, with its RPC workers and companions, and the clean-up commands are run; also if our
    process is killed. UsageError: something is missing. RunError, with the end of the log: it ends or is not ready in time.
    """
    server = _started(_job(spec, folder))
    try:
        yield server
    finally:
        server.stop()


def start(command: Sequence[str], url: str, log: Path, *, ready: str = "/health", env: Mapping[str, str] | None = None) -> Server:
    """The server that this command starts, for one client on this machine, when the path `ready` below `url` answers.

    `env` is added to the environment. `Server.stop` ends it; so does the end of our process. RunError, with the end of the log: it
    ends or is not ready in time.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    server = _part("the server", command, log)
    port = urlsplit(url).port or 80
    return _started(Job(server, url, port, url + ready, READY_WITHIN_S, env=env or {}, is_for_one_client=True))


def _started(job: Job) -> Server:
    events = _Events(job)
    try:
        ready = events.next()
        if "ready" not in ready:
            raise RunError(ready.get("failed", "the process that starts servers ended; try again"))
    except BaseException:
        events.close()
        raise
    command, rpc = tuple(job.server.shown), tuple(job.rpc)
    return Server(job.url, job.port, Path(job.server.log), command, float(ready["ready"]), int(ready["pid"]), rpc, events)


def _job(spec: ServerSpec, folder: Path) -> Job:
    start = start_of(spec)
    spec = with_model(spec)
    refuse_taken(spec.host, spec.port)
    port = spec.port or free_port(spec.host)
    local = [f"127.0.0.1:{free_port()}" for _ in range(spec.rpc_workers)]
    workers = [
        _part(f"the RPC worker {address}", start.worker_command(spec, address), folder / f"worker-{i}.log", address)
        for i, address in enumerate(local)
    ]
    rpc = (*local, *spec.rpc)
    for command in (*((spec.wrap,) if spec.wrap else ()), *spec.alongside, *spec.set_up, *spec.clean_up):
        runnable(command[0], "check the command")
    command = (*spec.wrap, *start.command(spec, port, rpc))
    scheme, prefix = start.scheme_and_prefix(spec)
    folder.mkdir(parents=True, exist_ok=True)
    host = _ANY.get(spec.host, spec.host)
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{prefix}"
    return Job(
        server=_part("the server", command, folder / "server.log"),
        url=url,
        port=port,
        ready_url=url + start.ready_path,
        ready_within_s=spec.ready_within_s,
        kind=spec.kind,
        model=spec.model,
        env=start.environment(spec),
        companions=[
            _part(f"the companion {each[0]}", each, folder / f"alongside-{i}.log") for i, each in enumerate(spec.alongside)
        ],
        workers=workers,
        rpc=rpc,
        set_up=spec.set_up,
        clean_up=spec.clean_up,
        commands_log=str((folder / "commands.log").absolute()),
        is_for_one_client=spec.is_for_one_client,
    )


def _part(name: str, command: Sequence[str], log: Path, address: str = "") -> Process:
    return Process(name, list(command), str(log.absolute()), address, list(redact_server_command(tuple(command))))


class _Events:
    """The supervisor's process: its events, and its end."""

    def __init__(self, job: Job) -> None:
        command = [sys.executable, "-m", "llama_load.serving.supervisor"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0)
        self._ended = ""
        # Set-up, clean-up and the parts one after the other; a supervisor that takes longer hangs.
        parts = 1 + len(job.companions) + len(job.workers)
        self._closes_within_s = 5 + parts * STOPPED_WITHIN_S + len(job.clean_up) * COMMAND_WITHIN_S
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: so says `next`
            self._process.stdin.write(job.line())

    def next(self) -> dict[str, Any]:
        """The next event; {} at its end."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        event: dict[str, Any] = {}
        with suppress(ValueError):
            event = json.loads(line)
        event = {name: printable_lines(value) if isinstance(value, str) else value for name, value in event.items()}
        if "warning" in event:
            print(f"llama-load: {event['warning']}", file=sys.stderr)
            return self.next()
        return event

    def ended(self) -> str:
        """Why the server ended; "" while it runs."""
        assert self._process.stdout is not None
        if not self._ended and select.select([self._process.stdout], [], [], 0)[0]:
            self.wait()
        return self._ended

    def wait(self) -> str:
        """Wait for the server's end."""
        if not self._ended:
            self._ended = self.next().get("ended") or "the process that watches the server was killed, and the server with it"
        return self._ended

    def close(self) -> None:
        """Have everything stopped, and wait for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(self._closes_within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
