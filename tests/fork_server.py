"""Python programs as forks of a process that has imported what a run needs: a start then takes a
third of the CPU time.

Arguments, working folder, environment and streams are those of a start. The parent and the command
line that others see are not, modules are imported before the program begins, and none is freed at
its end: tests of parents, imports, and signals during the start or the end start their processes
with `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import inspect
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from select import POLLIN, poll
from tempfile import TemporaryFile
from typing import IO, Any

# Locust patches before ours is imported, as in a run; what ours does only beside locust.main it
# does in the fork (`main`).
LOCUST = (
    *(
        "locust",
        "_strptime",
        "gevent.fileobject",
        "gevent.resolver.thread",
        "pyarrow.compute",
        "pyarrow.parquet",
    ),
    *(
        "rich._emoji_codes",
        "rich.console",
        "rich.table",
        "llama_load.loadgen.swarm.install",
        "llama_load.loadgen.swarm.lifecycle",
    ),
    *(
        "llama_load.loadgen.users.user",
        "llama_load.analysis.reports.write",
        "llama_load.cli.main",
    ),
    "locust.main",
)
# A server without a model; nothing of gevent.
SIMULATED = (
    "llama_load.cli.main",
    "llama_load.servers.kinds",
    "llama_load.servers.serving.simulated",
)
# The variables that a fork can have otherwise than the server, but for those that imports read.
VARIABLES = ("LLAMA_LOAD_", "LOCUST_")
READ_BY_IMPORTS = ("LLAMA_LOAD_LOST_AFTER_S", "LLAMA_LOAD_PORTABLE")
PR_SET_PDEATHSIG = 1  # linux/prctl.h
# The event of `sys.audit` when a program is forked, with its arguments.
FORKED = "tests.fork_server"
JOB_BYTES = 1 << 20
STARTS_WITHIN_S = 60  # the server may still be importing
# A process prints the stacks of its threads, and those of its greenlets unless its loop is stuck.
WHERE_IT_STANDS = (signal.SIGUSR1, signal.SIGUSR2)
PRINTS_WITHIN_S = 2
# And poll: Locust's import puts gevent's into their places. (Its close waits for a loop, which no
# server runs.)
fork, waitpid, close = os.fork, os.waitpid, os.close


def readable(
    files: Sequence[socket.socket | int], timeout_s: float | None = None
) -> set[int]:
    """The descriptors that have something to read, once one has; none after so many seconds.
    (`select` takes none above 1023.)"""
    poller = poll()
    for file in files:
        poller.register(file, POLLIN)
    return {
        descriptor
        for descriptor, _ in poller.poll(
            None if timeout_s is None else timeout_s * 1000
        )
    }


@dataclass
class Forked:
    """A program that runs in a process group of its own; like a `subprocess.Popen`, whose streams
    are files."""

    arguments: Sequence[str]
    pid: int
    ended: socket.socket  # gets the exit code
    out: IO[str]
    err: IO[str]
    returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code when it has ended. TimeoutExpired after so many seconds."""
        if self.returncode is None:
            if not readable([self.ended], timeout):
                raise subprocess.TimeoutExpired(self.arguments, timeout or 0)
            # with the server all that it started is killed
            self.returncode = int(self.ended.recv(32) or -signal.SIGKILL)
            self.ended.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it has printed, when it has ended: stdout and stderr."""
        self.wait(timeout)
        return self.printed()

    def printed(self) -> tuple[str, str]:
        """What it has printed so far: stdout and stderr."""
        for stream in (self.out, self.err):
            stream.seek(0)
        return self.out.read(), self.err.read()

    def send_signal(self, number: int) -> None:
        """To the program alone, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def kill_group(self) -> None:
        """SIGKILL to it and to what it started in its group, also after its end."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@dataclass
class ForkServer:
    """A server process. Programs that it started are killed when it ends."""

    process: subprocess.Popen[bytes]
    channel: socket.socket

    @classmethod
    def start(
        cls, environment: Mapping[str, str], modules: Sequence[str] = LOCUST
    ) -> ForkServer:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [
                sys.executable,
                "-m",
                "tests.fork_server",
                str(theirs.fileno()),
                *modules,
            ]
            process = subprocess.Popen(
                command,
                cwd=Path(__file__).resolve().parent.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return cls(process, ours)

    def fork(
        self,
        arguments: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        log: IO[str] | None = None,
    ) -> Forked:
        """`python -m` with these arguments; both its streams go to the log, if there is one."""
        sys.audit(FORKED, list(arguments))
        job = json.dumps([list(arguments), str(cwd), dict(environment)])
        if log:
            out = err = log
        else:
            out, err = (TemporaryFile("w+", encoding="utf-8") for _ in range(2))  # noqa: SIM115 - read after the program's end
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(
                self.channel,
                [job.encode()],
                [out.fileno(), err.fileno(), theirs.fileno()],
            )
        if not readable([ours], STARTS_WITHIN_S):
            raise TimeoutError("the server of forks does not answer")
        return Forked(arguments, int(ours.recv(32)), ours, out, err)

    def run(
        self,
        arguments: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        timeout_s: float,
    ) -> subprocess.CompletedProcess[str]:
        """The same, to its end; then its process group is killed. TimeoutExpired, and the group is
        killed; its notes are what was printed, and where each process of the group stands."""
        program = self.fork(arguments, cwd, environment)
        try:
            out, err = program.communicate(timeout_s)
        except subprocess.TimeoutExpired as late:
            for signal_number in WHERE_IT_STANDS:
                os.killpg(program.pid, signal_number)
            time.sleep(PRINTS_WITHIN_S)  # of a signal handler, see above
            for text in program.printed():
                late.add_note(text)
            raise
        finally:
            program.kill_group()
        return subprocess.CompletedProcess(arguments, program.wait(), out, err)


def imports_alike(environment: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether programs with these two environments import the same."""
    changed = {name for name, _ in environment.items() ^ other.items()}
    return all(
        name.startswith(VARIABLES) and name not in READ_BY_IMPORTS for name in changed
    )


def next_program(channel: socket.socket) -> list[str] | None:
    """Serve until the channel ends (None). In a fork: the program's arguments, when all else is as
    they want it."""
    # by descriptor of the process: its pid, and the socket for its exit code
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ended = readable([channel, *running])
        for descriptor in running.keys() & ended:
            pid, tells = running.pop(descriptor)
            close(descriptor)
            code = os.waitstatus_to_exitcode(waitpid(pid, 0)[1])
            with tells, suppress(OSError):
                tells.send(b"%d" % code)
        if channel.fileno() not in ended:
            continue
        job, descriptors, _, _ = socket.recv_fds(channel, JOB_BYTES, 3)
        if not job:
            return None
        pid = fork()
        if not pid:
            for descriptor in (channel.detach(), descriptors.pop(), *running):
                close(descriptor)
            for _, tells in running.values():
                tells.close()
            return set_up(*json.loads(job), descriptors)
        tells = socket.socket(fileno=descriptors.pop())
        for descriptor in descriptors:
            close(descriptor)
        tells.send(b"%d" % pid)
        running[os.pidfd_open(pid)] = pid, tells


def set_up(
    arguments: list[str], cwd: str, environment: dict[str, str], streams: Sequence[int]
) -> list[str]:
    """Give a fork its streams, folder and environment; its arguments."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for number, descriptor in enumerate(streams, 1):
        os.dup2(descriptor, number)
        close(descriptor)
    os.chdir(cwd)
    sys.path[0] = cwd
    os.environ.clear()
    os.environ.update(environment)
    return arguments


def main() -> None:
    atexit.register(leave)  # the first one is called last
    channel = socket.socket(fileno=int(sys.argv[1]))
    # What the standard library keeps once it was asked: a program's answer, and the path of every
    # module, which Locust looks for.
    platform.uname().processor  # noqa: B018
    for module in sys.argv[2:]:
        import_module(module)
    inspect.stack()
    gc.freeze()
    program = next_program(channel)
    if program is None:
        return
    say_where_it_stands()
    sys.argv[1:] = program[1:]
    # runpy would warn of a module that is imported
    if not hasattr(sys.modules.get(program[0]), "__path__"):
        sys.modules.pop(program[0], None)
    run_again("llama_load")
    try:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    except SystemExit as ends:
        exit_code.append(
            ends.code if isinstance(ends.code, int) else int(ends.code is not None)
        )
        raise
    exit_code.append(0)


def say_where_it_stands() -> None:
    """On the signals of `WHERE_IT_STANDS`, to stderr."""
    threads, greenlets = WHERE_IT_STANDS
    faulthandler.register(threads)
    if "gevent" in sys.modules:
        signal.signal(greenlets, lambda *_: print_greenlets())


def print_greenlets() -> None:
    """Those too that a run has frozen, which the collector does not list."""
    from gevent.util import print_run_info

    gc.unfreeze()
    print_run_info()


def run_again(name: str) -> None:
    """Have the next import of a module run it, in its old object: ours looks at who imports it."""
    module = sys.modules.pop(name)
    loader: Any = SourceFileLoader
    loader.create_module = lambda _, spec: module if spec.name == name else None


exit_code: list[int] = []


def leave() -> None:
    """End a program at once: to free module after module takes a tenth of a second, as nothing is
    shared with the server then."""
    if exit_code:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(exit_code[0])


if __name__ == "__main__":
    main()
