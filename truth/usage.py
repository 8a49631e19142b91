"""What a client costs: CPU time and memory of all its processes while it runs.

Control groups (version 1 or 2) count all processes, also those that a client leaves to themselves.
Where they cannot be made (not root), the client's descendants are counted by /proc. Without /proc
nothing is.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from truth.log import Log
from truth.units import NS_PER_S

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
SAMPLE_S = 0.1
NS_PER_US = 1_000
US_PER_S = 1_000_000
KIB_PER_MIB = 1024
# Fields of /proc/PID/stat after the name, which may have blanks and parentheses.
PARENT, USER_TICKS, SYSTEM_TICKS = 1, 11, 12
# user, nice, system, irq, softirq in the first line of /proc/stat, and steal.
BUSY_FIELDS = (1, 2, 3, 6, 7)
STEAL_FIELD = 8
Sample = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run. `cpu_us_per_token`: CPU time while the server had requests, divided by the tokens
    that it sent. `cpu_s`: from start to end. `memory_mib`: the most memory of all processes
    together. `other_cores`: how many cores programs used that are neither client nor server, nor
    belong to the case. `stolen_cores`: how many the hypervisor gave to others. `wait_ratio`: the
    share of the time in which at least one program of the machine, the client among them, waited
    for a core; None where the kernel does not tell (PSI)."""

    cpu_us_per_token: float
    cpu_s: float
    memory_mib: float
    other_cores: float
    stolen_cores: float = 0.0
    wait_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """Of all programs, s: CPU time used, CPU time stolen, and time in which one waited for a core
    (None: unknown). `children_s`: CPU time of what this process has started and waited for."""

    busy_s: float = 0.0
    stolen_s: float = 0.0
    waited_s: float | None = None
    children_s: float = 0.0

    def since(self, before: Machine) -> Machine:
        """What was added."""
        waited_s = None
        if self.waited_s is not None and before.waited_s is not None:
            waited_s = self.waited_s - before.waited_s
        return Machine(
            busy_s=self.busy_s - before.busy_s,
            stolen_s=self.stolen_s - before.stolen_s,
            waited_s=waited_s,
            children_s=self.children_s - before.children_s,
        )


@dataclass
class Usage:
    """`cpu`: samples of CPU time, (monotonic ns, CPU ns since the start). `memory_mib`: the most
    memory of all processes together, without files (RssAnon); pages that processes share after a
    fork are counted in each. `machine`: of all programs in that time."""

    cpu: list[Sample] = field(default_factory=list)
    memory_mib: float = 0.0
    machine: Machine = Machine()

    def cpu_s(self, begin_ns: int, end_ns: int) -> float:
        """CPU seconds between two instants, interpolated between samples."""
        return (_at(self.cpu, end_ns) - _at(self.cpu, begin_ns)) / NS_PER_S

    def cost(self, log: Log) -> Cost | None:
        """Of a run with this log. None: nothing could be counted, or the server sent no token."""
        tokens = sum(entry.output_tokens for entry in log.entries)
        if not tokens or not self.cpu or not self.cpu[-1][1]:
            return None

        begin_ns = min(entry.received_ns for entry in log.entries)
        end_ns = max(entry.ended_ns for entry in log.entries)
        first_ns = self.cpu[0][0]
        last_ns = self.cpu[-1][0]
        cpu_s = self.cpu_s(first_ns, last_ns)
        seconds = (last_ns - first_ns) / NS_PER_S
        machine = self.machine
        # Samples miss the ends of processes; children are also those that keep the machine busy.
        own_s = max(cpu_s, machine.children_s) + log.server.get("cpu_s", 0.0)
        waited_s = machine.waited_s
        return Cost(
            cpu_us_per_token=self.cpu_s(begin_ns, end_ns) * US_PER_S / tokens,
            cpu_s=cpu_s,
            memory_mib=self.memory_mib,
            other_cores=max(0.0, machine.busy_s - own_s) / seconds,
            stolen_cores=machine.stolen_s / seconds,
            wait_ratio=None if waited_s is None else min(1.0, waited_s / seconds),
        )


def _at(samples: Sequence[Sample], instant_ns: int) -> float:
    """CPU ns used until an instant; before the first sample and after the last as in these."""
    place = bisect_right(samples, instant_ns, key=lambda sample: sample[0])
    if place == 0:
        return samples[0][1]
    if place == len(samples):
        return samples[-1][1]
    earlier_ns, used_before = samples[place - 1]
    later_ns, used_after = samples[place]
    part = (instant_ns - earlier_ns) / (later_ns - earlier_ns)
    return used_before + (used_after - used_before) * part


class ProcessGroup:
    """Put a process into it before it execs (`join`), then `measure` while it runs. At its end what
    is left of it is killed."""

    def __init__(self) -> None:
        self._folder = _control_group()
        self._descendants: dict[int, int] = {}

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def counted(self) -> bool:
        """Whether a control group counts, which misses no process."""
        return self._folder is not None

    def join(self) -> None:
        """In the child process, before it execs. A group that it may not join counts nothing."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    @contextmanager
    def measure(self, client: int) -> Iterator[Usage]:
        """Sample CPU time and memory in a thread until the block ends."""
        usage = Usage()
        ended = threading.Event()
        arguments = (client, usage, ended)
        thread = threading.Thread(target=self._sample, args=arguments)
        before = machine_now()
        thread.start()
        try:
            yield usage
        finally:
            ended.set()
            thread.join()
            usage.machine = machine_now().since(before)

    def _sample(self, client: int, usage: Usage, ended: threading.Event) -> None:
        has_ended = False
        while True:
            usage.cpu.append((time.monotonic_ns(), self._cpu_ns(client)))
            if has_ended:
                return
            memory_mib = sum(_anonymous_mib(pid) for pid in self.pids(client))
            usage.memory_mib = max(usage.memory_mib, memory_mib)
            has_ended = ended.wait(SAMPLE_S)

    def pids(self, client: int) -> list[int]:
        """Its processes now."""
        if self._folder is not None:
            text = (self._folder / "cgroup.procs").read_text()
            return [int(line) for line in text.split()]
        return _descendants(client)

    def _cpu_ns(self, client: int) -> int:
        """CPU time of all its processes so far."""
        if self._folder is not None:
            return _group_cpu_ns(self._folder)
        for pid in self.pids(client):
            self._descendants[pid] = _process_cpu_ns(pid)
        return sum(self._descendants.values())

    def close(self) -> None:
        """Kill what is left of it, and remove it."""
        if self._folder is None:
            return
        for _ in range(50):
            for pid in self.pids(0):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.1)


def _control_group() -> Path | None:
    """The folder of a new group; None where none can be made."""
    is_unified = (GROUPS / "cgroup.controllers").exists()
    parent = GROUPS if is_unified else GROUPS / "cpuacct"
    folder = parent / f"truth-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError:
        return None
    return folder


def _group_cpu_ns(folder: Path) -> int:
    """Of version 1 in ns, of version 2 in us, in the line `usage_usec` of its file."""
    of_version_1 = folder / "cpuacct.usage"
    if of_version_1.exists():
        return int(of_version_1.read_text())
    words = (folder / "cpu.stat").read_text().split()
    return int(words[words.index("usage_usec") + 1]) * NS_PER_US


def _descendants(client: int) -> list[int]:
    """The process and those that it has started, and they."""
    parents: dict[int, int] = {}
    for folder in PROC.glob("[0-9]*"):
        fields = _fields_of(int(folder.name))
        if fields:
            parents[int(folder.name)] = int(fields[PARENT])

    found = [client] if client in parents else []
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _process_cpu_ns(pid: int) -> int:
    fields = _fields_of(pid)
    if not fields:
        return 0
    ticks = int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])
    return ticks * NS_PER_S // os.sysconf("SC_CLK_TCK")


def _fields_of(pid: int) -> list[str]:
    """The fields after the name; empty if there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    _, _, rest = text.rpartition(")")
    return rest.split()


def _anonymous_mib(pid: int) -> float:
    try:
        lines = (PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return 0.0
    for line in lines:
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / KIB_PER_MIB
    return 0.0


def machine_now() -> Machine:
    """Since the machine started; without /proc only what this process has started."""
    of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
    children_s = of_children.ru_utime + of_children.ru_stime
    try:
        words = (PROC / "stat").read_text().split()
    except OSError:
        return Machine(children_s=children_s)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return Machine(
        busy_s=sum(int(words[place]) for place in BUSY_FIELDS) * tick_s,
        stolen_s=int(words[STEAL_FIELD]) * tick_s,
        waited_s=_waited_s(),
        children_s=children_s,
    )


def _waited_s() -> float | None:
    """The line `some … total=US` of the kernel's pressure stall information; None without it."""
    try:
        line = (PROC / "pressure" / "cpu").read_text().splitlines()[0]
        return int(line.rpartition("total=")[2]) / US_PER_S
    except (OSError, ValueError, IndexError):
        return None
