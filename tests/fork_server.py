"""Python programs as forks of a process that has imported what a run needs: a start then takes a third of the CPU time.

Arguments, working folder, environment and streams are those of a start. The parent is another, and modules are imported before the
program begins: tests of signals, parents and imports start their processes with `subprocess`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, reload
from pathlib import Path
from tempfile import TemporaryFile

# Locust patches before ours is imported, as in a run; what ours does only beside locust.main it does in the fork (`main`).
PRELOADED = (
    *("locust", "pyarrow.compute", "pyarrow.parquet", "rich._emoji_codes"),
    *("llama_load.swarm.lifecycle", "llama_load.users.user", "llama_load.reports.write", "llama_load.cli.main"),
    "locust.main",
)
# The variables that a fork can have otherwise than the server, but for those that imports read.
VARIABLES = ("LLAMA_LOAD_", "LOCUST_")
READ_BY_IMPORTS = ("LLAMA_LOAD_LOST_AFTER_S", "LLAMA_LOAD_PORTABLE")
PR_SET_PDEATHSIG = 1  # linux/prctl.h
JOB_BYTES = 1 << 20
fork, waitpid = os.fork, os.waitpid  # Locust's import puts gevent's into their places


@dataclass
class ForkServer:
    """A server process, which runs one program at a time."""

    process: subprocess.Popen[bytes]
    channel: socket.socket

    @classmethod
    def start(cls, environment: Mapping[str, str]) -> ForkServer:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())]
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

    def run(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """`python -m` with these arguments, to its end; then its process group is killed. TimeoutError, and the group is killed."""
        job = json.dumps([list(arguments), str(cwd), dict(environment)])
        with TemporaryFile("w+", encoding="utf-8") as out, TemporaryFile("w+", encoding="utf-8") as err:
            socket.send_fds(self.channel, [job.encode()], [out.fileno(), err.fileno()])
            self.channel.settimeout(60)  # the server may still be importing
            pid = int(self.channel.recv(32))
            self.channel.settimeout(timeout_s)
            try:
                code = int(self.channel.recv(32))
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            for stream in (out, err):
                stream.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def imports_alike(environment: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether programs with these two environments import the same."""
    changed = {name for name, _ in environment.items() ^ other.items()}
    return all(name.startswith(VARIABLES) and name not in READ_BY_IMPORTS for name in changed)


def next_program(channel: socket.socket) -> list[str] | None:
    """Serve until the channel ends (None). In a fork: the program's arguments, when all else is as they want it."""
    while True:
        job, descriptors, _, _ = socket.recv_fds(channel, JOB_BYTES, 2)
        if not job:
            return None
        arguments, cwd, environment = json.loads(job)
        if pid := fork():
            for descriptor in descriptors:
                os.close(descriptor)
            channel.send(b"%d" % pid)
            channel.send(b"%d" % os.waitstatus_to_exitcode(waitpid(pid, 0)[1]))
            continue
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        for number, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        channel.close()
        os.chdir(cwd)
        sys.path[0] = cwd
        os.environ.clear()
        os.environ.update(environment)
        return arguments


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    for module in PRELOADED:
        import_module(module)
    gc.freeze()
    program = next_program(channel)
    if program is not None:
        sys.argv[1:] = program[1:]
        reload(import_module("llama_load"))
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
