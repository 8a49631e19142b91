"""Starts servers, waits until they are ready, and stops them: `with serving(spec, folder) as server`, or `start(command, …)`."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from subprocess import PIPE
from typing import Any
from urllib.parse import urlsplit

from llama_load.command_secrets import redact_words
from llama_load.errors import RunError
from llama_load.foreign_text import printable_lines
from llama_load.serving.commands import with_model
from llama_load.serving.supervisor import COMMAND_WITHIN_S, STOPPED_WITHIN_S, Job, Process
from llama_load.targets.servers import ServerSpec, start_of
from llama_load.targets.servers.server_start import READY_WITHIN_S, runnable
from llama_load.wire.local_ports import free_port, refuse_taken

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - listening everywhere, it is reached by loopback


class Server:
    """A server that is ready, and the supervisor that started it.

    `log`: its output; `command`: as it was started, without secrets; `start_s`: from the start of its process until it was ready;
    `pid`: of the process that listens; `rpc`: addresses of its RPC workers.
    """

    def __init__(self, job: Job) -> None:
        """Start it. RunError: it ends or is not ready in time."""
        self.url, self.port, self.log, self.rpc = job.url, job.port, Path(job.server.log), tuple(job.rpc)
        self.command = tuple(job.server.shown)
        self._ended = ""
        # Set-up, clean-up and the parts one after the other; a supervisor that takes longer hangs.
        parts = 1 + len(job.companions) + len(job.workers)
        self._stops_within_s = 5 + parts * STOPPED_WITHIN_S + len(job.clean_up) * COMMAND_WITHIN_S
        command = [sys.executable, "-m", "llama_load.serving.supervisor"]
        self._supervisor = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, start_new_session=True, bufsize=0)
        assert self._supervisor.stdin is not None and self._supervisor.stdout is not None
        self._orders, self._events = self._supervisor.stdin, self._supervisor.stdout
        try:
            with suppress(BrokenPipeError):  # it has ended: so says `_event`
                self._orders.write(json.dumps(asdict(job)).encode() + b"\n")
            ready = self._event()
            if "ready" not in ready:
                raise RunError(ready.get("failed", "the process that starts servers ended; try again"))
            self.start_s, self.pid = float(ready["ready"]), int(ready["pid"])
        except BaseException:
            self.stop()
            raise

    def ended(self) -> str:
        """Why it has ended, with its last words; "" while it runs."""
        if not self._ended and select.select([self._events], [], [], 0)[0]:
            self.wait()
        return self._ended

    def wait(self) -> str:
        """Wait until it ends by itself, and return why."""
        if not self._ended:
            self._ended = self._event().get("ended") or "the process that watches the server was killed, and the server with it"
        return self._ended

    def stop(self) -> None:
        """Stop it and all that was started with it, and run the clean-up commands."""
        self._orders.close()
        try:
            self._supervisor.wait(self._stops_within_s)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()

    def _event(self) -> dict[str, Any]:
        """The supervisor's next event; {} at its end."""
        event: dict[str, Any] = {}
        with suppress(ValueError):
            event = json.loads(self._events.readline())
        event = {name: printable_lines(value) if isinstance(value, str) else value for name, value in event.items()}
        if "warning" in event:
            print(f"llama-load: {event['warning']}", file=sys.stderr)
            return self._event()
        return event


@contextmanager
def serving(spec: ServerSpec, folder: Path) -> Iterator[Server]:
    """A running server. Its log is server.log in `folder`; beside it are worker-N.log, alongside-N.log and commands.log.

    It is stopped at the end of the block, with its RPC workers and companions, and the clean-up commands are run; also if our
    process is killed. UsageError: something is missing. RunError, with the end of the log: it ends or is not ready in time.
    """
    server = Server(_job(spec, folder))
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
    return Server(Job(server, url, port, url + ready, READY_WITHIN_S, env=env or {}, is_for_one_client=True))


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
    return Process(name, list(command), str(log.absolute()), address, list(redact_words(tuple(command))))
