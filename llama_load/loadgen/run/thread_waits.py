"""How long threads of processes ran, and were ready to run but waited for a core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

NS = 1e-9


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds that threads ran, and seconds that they waited for a core."""

    ran_s: float
    waited_s: float


# By the ids of a process and of its thread: ran, waited.
Account = Mapping[tuple[int, int], Waits]


def account_of(pids: Iterable[int]) -> Account:
    """The kernel's account of every thread of these processes since it began.

    Empty where there is none (other systems, a kernel without CONFIG_SCHED_INFO), and without the
    processes of other users in other namespaces. One thread takes about 20 us.
    Source: Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
    """
    found = {}
    for pid in pids:
        for thread in _thread_ids(pid):
            waits = _waits_of(pid, thread)
            if waits is not None:
                found[pid, thread] = waits
    return found


def between(before: Account, after: Account) -> Waits | None:
    """What the threads of `after` did since `before`; a new one, since it began.

    None where no thread is known. The time of threads that have ended is lost.
    """
    if not after:
        return None

    ran_s = 0.0
    waited_s = 0.0
    none = Waits(0.0, 0.0)
    for thread, now in after.items():
        then = before.get(thread, none)
        ran_s += max(0.0, now.ran_s - then.ran_s)
        waited_s += max(0.0, now.waited_s - then.waited_s)
    return Waits(ran_s, waited_s)


def _thread_ids(pid: int) -> list[int]:
    try:
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    except (OSError, ValueError):
        return []


def _waits_of(pid: int, thread: int) -> Waits | None:
    with suppress(OSError, ValueError, IndexError):
        path = Path(f"/proc/{pid}/task/{thread}/schedstat")
        ran, waited, *_ = path.read_text(encoding="ascii").split()
        return Waits(int(ran) * NS, int(waited) * NS)
    return None
