"""Starts servers, waits until they are ready, and stops them.

`with serving(spec, folder) as server`, or `start(command, …)`.
"""

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

from llama_load.ground.errors import RunError
from llama_load.ground.own_modules import module_command
from llama_load.outside.command_secrets import redact_words
from llama_load.outside.foreign_text import printable_lines
from llama_load.servers.kinds import ServerSpec, start_of
from llama_load.servers.kinds.server_start import READY_WITHIN_S, runnable
from llama_load.servers.local_ports import free_port, refuse_taken
from llama_load.servers.serving.commands import with_model
from llama_load.servers.serving.supervisor import (
    COMMAND_WITHIN_S,
    STOPPED_WITHIN_S,
    Job,
    Process,
)

# A server that listens everywhere is reached by loopback.
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


class Server:
    """A server that is ready, and the supervisor that started it.

    `log`: its output; `command`: as it was started, without secrets; `start_s`: from the start of
    its process until it was ready; `pid`: of the process that listens; `rpc`: addresses of its RPC
    workers.
    """

    def __init__(self, job: Job) -> None:
        """Start it. RunError: it ends or is not ready in time."""
        self.url = job.url
        self.port = job.port
        self.log = Path(job.server.log)
        self.rpc = tuple(job.rpc)
        self.command = tuple(job.server.shown)
        self._ended = ""
        # The parts are stopped and the clean-up commands run one after the other; a supervisor that
        # takes longer hangs.
        parts = 1 + len(job.companions) + len(job.workers)
        clean_up_within_s = len(job.clean_up) * COMMAND_WITHIN_S
        self._stops_within_s = 5 + parts * STOPPED_WITHIN_S + clean_up_within_s

        command = module_command("llama_load.servers.serving.supervisor")
        self._supervisor = subprocess.Popen(
            command, stdin=PIPE, stdout=PIPE, start_new_session=True, bufsize=0
        )
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._orders = self._supervisor.stdin
        self._events = self._supervisor.stdout

        try:
            order = json.dumps(asdict(job)).encode() + b"\n"
            with suppress(BrokenPipeError):  # it has ended: so says `_event`
                self._orders.write(order)
            event = self._event()
            if "ready" not in event:
                why = event.get(
                    "failed", "the process that starts servers ended; try again"
                )
                raise RunError(why)
            self.start_s = float(event["ready"])
            self.pid = int(event["pid"])
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
        if self._ended:
            return self._ended

        self._ended = (
            self._event().get("ended")
            or "the process that watches the server was killed, and the server with it"
        )
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
        for name, value in event.items():
            if isinstance(value, str):
                event[name] = printable_lines(value)

        if "warning" in event:
            print(f"llama-load: {event['warning']}", file=sys.stderr)
            return self._event()
        return event


@contextmanager
def serving(spec: ServerSpec, folder: Path) -> Iterator[Server]:
    """A running server.

    Its log is server.log in `folder`; beside it are worker-N.log, alongside-N.log and
    commands.log.

    It is stopped at the end of the block, with its RPC workers and companions, and the clean-up
    commands are run; also if our process is killed. UsageError: something is missing. RunError,
    with the end of the log: it ends or is not ready in time.
    """
    server = Server(_job(spec, folder))
    try:
        yield server
    finally:
        server.stop()


def start(
    command: Sequence[str],
    url: str,
    log: Path,
    *,
    ready: str = "/health",
    env: Mapping[str, str] | None = None,
) -> Server:
    """The server that this command starts, for one client on this machine, when the path `ready`
    below `url` answers.

    `env` is added to the environment. `Server.stop` ends it; so does the end of our process.
    RunError, with the end of the log: it ends or is not ready in time.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    job = Job(
        server=_part_process("the server", command, log),
        url=url,
        port=urlsplit(url).port or 80,
        ready_url=url + ready,
        ready_within_s=READY_WITHIN_S,
        env=env or {},
        is_for_one_client=True,
    )
    return Server(job)


def _job(spec: ServerSpec, folder: Path) -> Job:
    start = start_of(spec)
    spec = with_model(spec)
    refuse_taken(spec.host, spec.port)
    port = spec.port or free_port(spec.host)

    workers = []
    for number in range(spec.rpc_workers):
        address = f"127.0.0.1:{free_port()}"
        worker_command = start.worker_command(spec, address)
        log = folder / f"worker-{number}.log"
        workers.append(
            _part_process(f"the RPC worker {address}", worker_command, log, address)
        )
    rpc = (*[worker.address for worker in workers], *spec.rpc)

    companions = []
    for number, companion in enumerate(spec.alongside):
        log = folder / f"alongside-{number}.log"
        companions.append(
            _part_process(f"the companion {companion[0]}", companion, log)
        )

    programs = [
        command[0] for command in (*spec.alongside, *spec.set_up, *spec.clean_up)
    ]
    for program in (*spec.wrap[:1], *programs):
        runnable(program, "check the command")

    command = (*spec.wrap, *start.command(spec, port, rpc))
    url = _url(spec, port)
    folder.mkdir(parents=True, exist_ok=True)
    return Job(
        server=_part_process("the server", command, folder / "server.log"),
        url=url,
        port=port,
        ready_url=url + start.ready_path,
        ready_within_s=spec.ready_within_s,
        env=start.environment(spec),
        companions=companions,
        workers=workers,
        rpc=rpc,
        set_up=spec.set_up,
        clean_up=spec.clean_up,
        commands_log=str((folder / "commands.log").absolute()),
        is_for_one_client=spec.is_for_one_client,
    )


def _url(spec: ServerSpec, port: int) -> str:
    """Where the server is reached from this machine."""
    host = _LOOPBACK_OF.get(spec.host, spec.host)
    if ":" in host:
        host = f"[{host}]"
    scheme, prefix = start_of(spec).scheme_and_prefix(spec)
    return f"{scheme}://{host}:{port}{prefix}"


def _part_process(
    name: str, command: Sequence[str], log: Path, address: str = ""
) -> Process:
    return Process(
        name=name,
        command=list(command),
        log=str(log.absolute()),
        address=address,
        shown=list(redact_words(tuple(command))),
    )
