"""The process that starts Locust runs one after the other: `python -m llama_load.lab.run_forker`.

It imports once what every run imports, and forks for each run, which saves a second of CPU time. It
reads an `Order` per run as a line of JSON from stdin, and writes an `End` per run to stdout. It
ends when stdin does; a run that goes on then is ended first.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.ground.blas_threads import load_numpy_without_threads

if TYPE_CHECKING:
    from llama_load.lab.sweep.run_cell import Order

# What a run imports, also for its report. Locust first: it must patch the standard library before
# others import it.
IMPORTED = (
    "locust.main",
    "llama_load.loadgen.users.user",
    "llama_load.analysis.reports.html.page",
    "pyarrow.parquet",
    "rich.console",
)
STDIN = 0
LOOKS_EVERY_S = 0.05  # how often it looks whether the run has ended


def main() -> None:
    """Serve orders; in a forked process, run Locust."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what an import prints is no answer
    load_numpy_without_threads()
    for name in IMPORTED:
        import_module(name)
    from llama_load import LlamaUser  # noqa: F401 (registers our listeners)

    order = _serve(answers)
    if order is not None:
        _become_locust(order)


def _serve(answers: int) -> Order | None:
    """Fork for each order. The order, in a forked process; None when there are no more."""
    import msgspec
    from gevent.os import fork_gevent

    from llama_load.ground.processes import end_with_parent
    from llama_load.lab.sweep.run_cell import ENDS_WITHIN_S, End, Order

    own = os.getpid()
    for line in _lines_of_stdin():
        order = msgspec.json.decode(line, type=Order)
        sys.stdout.flush()  # what an import printed would be in the log of every run
        pid = fork_gevent()
        if not pid:
            os.close(answers)
            os.setsid()
            end_with_parent(signal.SIGKILL, own)
            return order

        # No order comes meanwhile: stdin is readable when it was closed, which ends the run, too.
        code = _code_of(pid, order.limit_s, STDIN)
        is_late = code is None
        if code is None:
            os.kill(pid, signal.SIGINT)
            code = _code_of(pid, ENDS_WITHIN_S)

        with suppress(ProcessLookupError):
            # the run, if it goes on, and processes that it has left behind
            os.killpg(pid, signal.SIGKILL)
        if code is None:
            code = _code_of(pid, ENDS_WITHIN_S)
        if code is None:
            code = -signal.SIGKILL

        os.write(answers, msgspec.json.encode(End(code, is_late)) + b"\n")
    return None


def _code_of(pid: int, within_s: float, *interrupting: int) -> int | None:
    """The exit code of a run.

    None if it goes on after this time, or when one of these descriptors is readable.
    """
    from gevent.monkey import get_original

    # Locust patches the functions that wait: ours must not start gevent's event loop in the process
    # that forks.
    select = get_original("select", "select")
    waitpid = get_original("os", "waitpid")

    deadline = time.monotonic() + within_s
    while True:
        ended, status = waitpid(pid, os.WNOHANG)
        if ended != 0:
            return int(os.waitstatus_to_exitcode(status))
        if time.monotonic() > deadline:
            return None
        readable, _, _ = select(interrupting, [], [], LOOKS_EVERY_S)
        if readable:
            return None


def _lines_of_stdin() -> Iterator[bytes]:
    """The lines of stdin."""
    pending = b""
    while data := os.read(STDIN, 65536):
        *lines, pending = (pending + data).split(b"\n")
        yield from lines


def _become_locust(order: Order) -> None:
    """What `python -m locust` does, in a forked process."""
    import locust.main
    import numpy as np

    from llama_load.loadgen.swarm.signals import SIGNALS
    from llama_load.outside.terminal import make_output_safe

    _redirect(STDIN, os.devnull, os.O_RDONLY)
    _redirect(1, order.log, os.O_WRONLY | os.O_APPEND)
    os.dup2(1, 2)

    # locustfiles may draw from it; Python's own generator is seeded anew at a fork
    np.random.seed()
    SIGNALS.take()
    make_output_safe()

    program = Path(locust.__file__).with_name("__main__.py")
    sys.argv = [str(program), *order.words]
    locust.main.main()


def _redirect(descriptor: int, path: str, flags: int) -> None:
    """Open a file in the place of a descriptor."""
    opened = os.open(path, flags)
    os.dup2(opened, descriptor)
    os.close(opened)


if __name__ == "__main__":
    main()
