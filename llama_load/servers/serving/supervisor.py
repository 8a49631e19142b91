"""The process between us and a server that we start.

It starts the server and what belongs to it, watches, and stops all of it. It is a process of its
own, because it must act when ours cannot: after `kill -9` of ours it stops the server and runs the
clean-up commands. It sees our end by the pipe on its stdin. If it is killed itself, the kernel
(Linux) kills what it started.

It is run as `python -m llama_load.servers.serving.supervisor`, gets a `Job` as one line of JSON on
stdin, and prints events as lines of JSON: `{"ready": seconds, "pid": …}`, then `{"ended": why}`
unless it is told to stop; `{"failed": why}` if the server does not become ready. It stops when
stdin is closed.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec
import psutil

from llama_load.ground.own_modules import child_environment, module_command
from llama_load.ground.processes import adopt_orphans, end_with_parent, with_descendants
from llama_load.outside.plain_http import NoAnswerError, request, tls_context
from llama_load.servers.serving import registry
from llama_load.servers.serving.last_words import last_words
from llama_load.servers.serving.registry import Entry

LOOK_S = 0.05
STARTING_LOOK_S = 0.01
COMMAND_WITHIN_S = 60.0
WORKER_WITHIN_S = 30.0
GPU_MEMORY_WITHIN_S = 10.0
NICE = 10
STOPPED_WITHIN_S = 15.0  # vLLM ends its processes one after the other
# So long a server may take to notice that an RPC worker is gone, and to write its last words.
NOTICES_WITHIN_S = 2.0
READY_ANSWER_WITHIN_S = 2.0
READY = (200, 401, 403)  # it answers, though not without a key


class Failed(Exception):
    """The start failed; the text says why."""


class StopRequested(Exception):
    """We are to stop: our stdin was closed, or we got a signal."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process to start."""

    name: str  # in messages
    command: Sequence[str]
    log: str  # the file for its output
    address: str = ""  # of an RPC worker
    shown: Sequence[str] = ()  # the command without secrets


@dataclass(frozen=True, slots=True)
class Job:
    """All that the supervisor needs."""

    server: Process
    url: str  # where it is reached
    port: int
    ready_url: str
    ready_within_s: float
    env: Mapping[str, str] = field(default_factory=dict)
    companions: Sequence[Process] = ()
    workers: Sequence[Process] = ()
    rpc: Sequence[str] = ()  # addresses of all workers, started by us or not
    set_up: Sequence[Sequence[str]] = ()
    clean_up: Sequence[Sequence[str]] = ()
    commands_log: str = os.devnull
    is_for_one_client: bool = False  # see `ServerSpec`


class Supervisor:
    """Runs a job. Everything it starts is in `running`, in that order."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.running: list[tuple[Process, subprocess.Popen[bytes]]] = []
        self._parent = os.getppid()
        self._gpu_memory_before: dict[str, int] = {}
        self._is_to_stop = False

    def run(self) -> None:
        """From the set-up commands to the clean-up commands."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._start()
            why = self._watch()
            registry.mark_ended(self.job.port, why)
            tell(ended=why)
        except Failed as failure:
            tell(failed=str(failure))
        except psutil.NoSuchProcess:
            tell(
                failed=f"the server ended as soon as it was ready{tail(self.job.server.log)}"
            )
        except StopRequested:
            registry.remove(self.job.port)
        finally:
            try:
                self._stop_all()
            finally:
                self._clean_up()

    def _start(self) -> None:
        job = self.job
        for command in job.set_up:
            self._run("set-up", command)

        self._gpu_memory_before = {} if job.is_for_one_client else gpu_memory()
        for companion in job.companions:
            self._spawn(companion)
        for worker in job.workers:
            self._spawn(worker)
        for address in job.rpc:
            self._wait_for_worker(address)

        began_s = time.monotonic()
        server = self._spawn(job.server)
        while not self._is_ready():
            self._pause(STARTING_LOOK_S)
            self._refuse_ended()
            if time.monotonic() - began_s > job.ready_within_s:
                text = f"the server was not ready within {job.ready_within_s:g} s"
                raise Failed(text + tail(job.server.log))
        start_s = time.monotonic() - began_s
        self._refuse_ended()

        listening = self._listening(server.pid)
        if not job.is_for_one_client:
            self._register(listening, start_s)
        tell(ready=start_s, pid=listening.pid)

    def _watch(self) -> str:
        """Wait until something ends, and return what and why."""
        ended = self._ended()
        while ended is None:
            self._pause(LOOK_S)
            ended = self._ended()
        part, code = ended
        if part is self.job.server:
            return f"the server ended ({exit_text(code)}){tail(part.log)}"

        _, server = self.running[-1]
        if part.address:
            with suppress(subprocess.TimeoutExpired):
                server.wait(NOTICES_WITHIN_S)

        words = f"{part.name} ended ({exit_text(code)})"
        if server.poll() is None:
            return f"{words}, so the server was stopped{tail(part.log)}"
        words += f", and the server with it ({exit_text(server.returncode)})"
        return words + tail(self.job.server.log)

    def _ended(self) -> tuple[Process, int | None] | None:
        """What has ended first, with its exit code.

        An RPC worker that dies takes the server with it, so the server is asked last.
        """
        for part, process in self.running:
            code = process.poll()
            if code is not None:
                return part, code
        return None

    def _refuse_ended(self) -> None:
        ended = self._ended()
        if ended is None:
            return

        part, code = ended
        how = exit_text(code)
        last_lines = tail(part.log)
        if part is self.job.server:
            raise Failed(f"the server ended while starting ({how}){last_lines}")
        raise Failed(
            f"{part.name} ended while the server was starting ({how}){last_lines}"
        )

    # ------------------------------------------------------------------ parts of it

    def _spawn(self, part: Process) -> subprocess.Popen[bytes]:
        begin = _begin_beside_the_client if self.job.is_for_one_client else _begin
        with _private_log(part.log, os.O_TRUNC) as output:
            try:
                process = subprocess.Popen(
                    part.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=child_environment(self.job.env),
                    preexec_fn=begin,
                    start_new_session=True,
                )
            except OSError as error:
                why = f"{error.strerror}: {part.command[0]}"
                raise Failed(f"{part.name} cannot be started: {why}") from None

        self.running.append((part, process))
        return process

    def _run(self, what: str, command: Sequence[str]) -> None:
        name = f"the {what} command {command[0]}"
        with _private_log(self.job.commands_log, os.O_APPEND) as output:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=child_environment(),
                    timeout=COMMAND_WITHIN_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise Failed(
                    f"{name} did not end within {COMMAND_WITHIN_S:g} s"
                ) from None
            except OSError as error:
                raise Failed(f"{name} cannot be started: {error.strerror}") from None

        if done.returncode:
            text = f"{name} failed ({exit_text(done.returncode)})"
            raise Failed(text + tail(self.job.commands_log))

    def _clean_up(self) -> None:
        for command in self.job.clean_up:
            try:
                self._run("clean-up", command)
            except Failed as failure:
                tell(warning=str(failure))

    def _wait_for_worker(self, address: str) -> None:
        """Until an RPC worker accepts connections: a server that does not reach one aborts."""
        host, _, port = address.rpartition(":")
        deadline_s = time.monotonic() + WORKER_WITHIN_S
        while True:
            try:
                socket.create_connection(
                    (host.strip("[]"), int(port)), timeout=2
                ).close()
                return
            except OSError as error:
                if time.monotonic() > deadline_s or not self.job.workers:
                    why = error.strerror or error
                    raise Failed(
                        f"the RPC worker {address} cannot be reached: {why}"
                    ) from None
            self._pause(STARTING_LOOK_S)
            self._refuse_ended()

    def _is_ready(self) -> bool:
        # Whether it is ready does not depend on who signed its certificate.
        tls = partial(tls_context, insecure=True)
        try:
            answer = request(
                "GET", self.job.ready_url, within_s=READY_ANSWER_WITHIN_S, tls=tls
            )
        except NoAnswerError:
            return False
        return answer.status in READY

    def _listening(self, pid: int) -> psutil.Process:
        """The process of the server that listens: one of `wrap` or vLLM's launcher may start it."""
        first = psutil.Process(pid)
        for process in with_descendants([first]):
            if registry.listens(process.pid, self.job.port):
                return process
        return first

    def _register(self, process: psutil.Process, start_s: float) -> None:
        job = self.job
        entry = Entry(
            port=job.port,
            pid=process.pid,
            created_s=process.create_time(),
            command=tuple(job.server.shown),
            log=job.server.log,
            rpc=tuple(job.rpc),
            start_s=start_s,
            gpu_memory_before=self._gpu_memory_before,
        )
        try:
            registry.write(entry)
        except OSError as error:
            tell(
                warning=f"load tests will not find this server's process and log: {error}"
            )

    def _stop_all(self) -> None:
        """In the reverse order of their start: SIGTERM, then SIGKILL; at last what is left."""
        for _, process in reversed(self.running):
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOPPED_WITHIN_S)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()

    # ------------------------------------------------------------------ being told

    def _pause(self, seconds: float) -> None:
        """Wait. Raises StopRequested."""
        readable, _, _ = select.select([0], [], [], seconds)
        is_closed = readable and not os.read(0, 4096)
        if self._is_to_stop or is_closed or os.getppid() != self._parent:
            raise StopRequested

    def _on_signal(self, *_: object) -> None:
        self._is_to_stop = True


def _private_log(path: str, how: int) -> BinaryIO:
    """The log of a program that writes to it itself.

    No key is masked in it, so only the owner may read it.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
    file = os.fdopen(descriptor, "wb")
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.fchmod(descriptor, 0o600)  # it may have been there before
    return file


def _begin() -> None:
    end_with_parent(signal.SIGKILL)


def _begin_beside_the_client() -> None:
    """Leave one core to the client on the same machine, and yield to it on the others."""
    _begin()
    os.nice(NICE)
    if sys.platform.startswith("linux"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[1:] or cores)


def tell(**event: Any) -> None:
    """Print an event. Our reader may be gone."""
    with suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")


def exit_text(code: int | None) -> str:
    """`exit code 1`, or `killed by SIGKILL`."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def gpu_memory() -> dict[str, int]:
    """Bytes in use on each NVIDIA GPU, by its UUID; empty where that is not known.

    A process of its own asks, because a driver may hang.
    """
    command = module_command("llama_load.telemetry.nvml")
    try:
        ctypes.CDLL("libnvidia-ml.so.1")  # cheaper than a process that finds no driver
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GPU_MEMORY_WITHIN_S,
            check=False,
        )
        return {
            str(uuid): int(taken) for uuid, taken in json.loads(done.stdout).items()
        }
    except (OSError, ValueError, TypeError, AttributeError, subprocess.TimeoutExpired):
        return {}


def tail(log: str) -> str:
    """`; ` with where a log is and how it ends; "" if it is empty."""
    words = last_words(Path(log))
    return f"; {words}" if words else ""


def main() -> NoReturn:
    """Read the job from stdin and run it."""
    # What a server's processes leave behind becomes our child, so that we find it.
    adopt_orphans()
    # Without a buffer, so that select sees what comes after the line.
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        job = stdin.readline()
    if job:
        Supervisor(msgspec.convert(json.loads(job), Job)).run()
    sys.exit(0)


if __name__ == "__main__":
    main()
