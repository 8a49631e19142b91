"""The priority of the thread that reads and sends: tokens that arrive while it waits for a core
share one timestamp.

Where it may, the thread takes the lowest real-time priority (SCHED_RR 1), which every other
real-time program still precedes; else the best nice value that it may have. SCHED_RESET_ON_FORK
keeps helper threads and child processes at normal priority.

A real-time thread that never sleeps would starve the machine, so the priority is given back while
the thread uses over half a core (`adapt`, once a second), and at once when it runs for SPIN_US
without a pause (RLIMIT_RTTIME and SIGXCPU).

It is also given back while a core is idle. At normal priority a thread that wakes up takes the idle
core, at real-time priority the core that it used last, and a server that runs there waits: with 400
streams 1 % of the first tokens were sent 1 to 5 ms late, at normal priority 0.1 ms.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # without it nothing ends a thread that spins at real-time priority
    resource = None  # type: ignore[assignment]

REAL_TIME = "real-time"
NORMAL = "normal"
# Why it is normal for now.
BUSY = "it used over half a core"
IDLE = "a core was idle"

# Above this share of a core, other programs need the priority's absence more than the client needs
# its presence.
MOST_BUSY = 0.5
# Ten times the longest turn of the event loop that a run with 800 streams was seen to take.
SPIN_US = 200_000
BEST_NICE = -20
# Three counters of 20 digits.
ACCOUNT_BYTES = 100
# A core counts as idle if this much of all cores together was.
IDLE_CORES = 0.75
# A thread at normal priority that waits for a core for more of the time than this (the verdict's
# limit) needs the priority for the next KEEP_S, although cores are idle on average: the server
# works in bursts.
MOST_WAITING = 0.05
KEEP_S = 10.0


def idle_s() -> float | None:
    """How long cores have been idle since the machine started, added up; None where this cannot be
    read (no descriptor may be left) or the process may not use all cores."""
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) != os.cpu_count():
        return None
    with suppress(OSError, ValueError, IndexError):
        return float(Path("/proc/uptime").read_text().split()[1])
    return None


class WaitAccount:
    """The kernel's account of how long a thread of this process (None: the main one) was ready to
    run but waited for a core.

    Its file stays open: it is read 50 times a second, and to open it takes three times as long again."""

    def __init__(self, thread_id: int | None = None) -> None:
        own = "/proc/self"
        of_thread = own if thread_id is None else f"{own}/task/{thread_id}"
        self._path = f"{of_thread}/schedstat"
        self._descriptor: int | None = None

    def waited_s(self) -> float | None:
        """In all, s; None where the kernel keeps no account, or no descriptor is left to read it.

        Not 0 there: the account only grows, and the next reading would count all of it as one wait.
        """
        with suppress(OSError, ValueError, IndexError):
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                weakref.finalize(self, os.close, self._descriptor)
            account = os.pread(self._descriptor, ACCOUNT_BYTES, 0)
            account_ns = int(account.split()[1])
            # Every thread has waited for some time.
            return account_ns / 1e9 if account_ns else None
        return None


def _rise(last: float | None, now: float | None) -> float:
    """By how much an account has grown; 0 where either reading is missing."""
    if last is None or now is None:
        return 0.0
    return now - last


@dataclass(frozen=True, slots=True)
class _Account:
    """The clock and the kernel's accounts at one instant, s."""

    now: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.thread_time)
    idle: float | None = field(default_factory=idle_s)
    waited: float | None = field(default_factory=lambda: WaitAccount().waited_s())


class SenderPriority:
    """The priority of the calling thread, which must be the main one. `name`: "real-time", "nice
    -10" or "normal"; `taken`: the same since `take`, with a remark if it was lowered meanwhile.
    `may_be_real_time`: else it takes a nice value alone."""

    def __init__(self, *, may_be_real_time: bool = True) -> None:
        self._may_be_real_time = may_be_real_time
        self.name = self.taken = NORMAL
        self._nice: int | None = None  # the nice value before
        self._limits: tuple[int, int] | None = None  # of RLIMIT_RTTIME before
        self._spun = False
        self._wanted = False
        self._last = _Account()
        self._kept_until = 0.0

    def take(self) -> str:
        """Raise the priority as far as allowed, until `give_back`; returns its name."""
        self._wanted = True
        self._last = _Account()
        self.taken = self._raise()
        return self.taken

    def give_back(self) -> None:
        """Return to the priority before `take`."""
        self._wanted = False
        self._lower()

    def adapt(self) -> None:
        """About once a second: lower the priority while the thread uses over half a core or a core
        is idle, else raise it."""
        last = self._last
        self._last = _Account()
        elapsed = self._last.now - last.now
        if not self._wanted or elapsed <= 0:
            return
        waiting_share = _rise(last.waited, self._last.waited) / elapsed
        idle_cores = _rise(last.idle, self._last.idle) / elapsed
        if waiting_share > MOST_WAITING:
            self._kept_until = self._last.now + KEEP_S
        if self._spun or (self._last.used - last.used) / elapsed > MOST_BUSY:
            self._spun = False
            self._lower_for_now(BUSY)
        elif idle_cores > IDLE_CORES and self._last.now > self._kept_until:
            self._lower_for_now(IDLE)
        elif self.name == NORMAL:
            self._raise()

    def _raise(self) -> str:
        # A greenlet is a dummy thread for `threading`, so the ids are compared. Only the main
        # thread may handle signals.
        if (
            sys.platform == "linux"
            and threading.get_native_id() == os.getpid()
            and self.name == NORMAL
        ):
            is_real_time = self._may_be_real_time and _is_real_time_allowed(keep=True)
            self.name = REAL_TIME if is_real_time else self._take_nice()
            if self.name == REAL_TIME:
                self._limit_spinning()
        return self.name

    def _limit_spinning(self) -> None:
        signal.signal(signal.SIGXCPU, self._on_spin)
        _, most = self._limits = resource.getrlimit(resource.RLIMIT_RTTIME)
        resource.setrlimit(
            resource.RLIMIT_RTTIME,
            (SPIN_US if most == resource.RLIM_INFINITY else min(SPIN_US, most), most),
        )

    def _take_nice(self) -> str:
        now = os.getpriority(os.PRIO_PROCESS, 0)
        for value in range(BEST_NICE, min(now, 0)):
            with suppress(OSError):
                # First the flag, so that no helper thread ever inherits the nice value.
                os.sched_setscheduler(
                    0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0)
                )
                os.setpriority(os.PRIO_PROCESS, 0, value)
                self._nice = now
                return f"nice {value}"
        return NORMAL

    def _lower(self) -> None:
        if self.name == REAL_TIME:
            _end_real_time()
            if (
                self._limits is not None
            ):  # the kernel has raised the soft limit if it signalled
                resource.setrlimit(resource.RLIMIT_RTTIME, self._limits)
        elif self._nice is not None:
            os.setpriority(os.PRIO_PROCESS, 0, self._nice)
            self._nice = None
        self.name = NORMAL

    def _on_spin(self, *_: Any) -> None:
        self._spun = True
        self._lower_for_now(BUSY)

    def _lower_for_now(self, reason: str) -> None:
        if self.name != NORMAL:
            self.taken = f"{self.name}, {NORMAL} while {reason}"
        self._lower()


def may_be_real_time() -> bool:
    """Whether the system allows real-time priority; the calling thread takes it for a moment."""
    return sys.platform == "linux" and _is_real_time_allowed(keep=False)


def _is_real_time_allowed(*, keep: bool) -> bool:
    if resource is None:
        return False
    try:
        os.sched_setscheduler(
            0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1)
        )
    except (
        OSError
    ):  # neither CAP_SYS_NICE nor RLIMIT_RTPRIO, or a cgroup without real-time budget
        return False
    if not keep:
        _end_real_time()
    return True


def _end_real_time() -> None:
    # With the flag: without CAP_SYS_NICE it cannot be cleared, and at normal priority it has no
    # effect.
    os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
