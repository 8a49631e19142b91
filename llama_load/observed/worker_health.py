"""What a worker measured of itself: lag of its event loop, CPU time, pauses, its clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from llama_load.observed.other_requests import OtherTraffic
from llama_load.units import NS_PER_S


@dataclass(slots=True)
class WorkerHealth:
    """A worker's measurements of itself during the run. None: not known."""

    worker: str
    loop_lag_p99_ms: float | None = None
    loop_lag_max_ms: float | None = None
    core_busy: float | None = None  # CPU time of its event loop's thread, 0 to 1 of one core
    stolen_ratio: float | None = None  # share of CPU time that the hypervisor gave to others
    clock_offset_ms: float | None = None  # added to its instants to convert them to the master's clock; None in one process
    clock_uncertainty_ms: float | None = None  # the largest possible error of that
    longest_pause_ms: float | None = None  # for which the event loop did not run, less the 20 ms between two samples
    longest_pause_mono_ns: int | None = None  # when that began, by the master's clock
    late_wakeups: list[tuple[int, float]] = field(default_factory=list)  # lags over 5 ms as (start, ms), the 1000 longest at most
    suspended_ms: float | None = None  # how long the machine was suspended
    machine_busy: float | None = None  # used share of all cores' time, 0 to 1
    own_share: float | None = None  # of it, by this process
    server_share: float | None = None  # of it, by the servers under test; None where they do not run on this machine
    client_share: float | None = None  # of it, by all processes of the client on its machine: workers, master, telemetry
    is_server_here: bool | None = None  # whether a server under test runs on its machine
    busiest_others: list[str] = field(default_factory=list)  # other programs with their shares: `yes 48%`
    core_wait_ms: float | None = None  # the thread that receives was ready to run but waited for a core, by the kernel's account
    core_wait_longest_ms: float | None = None  # between two samples
    core_wait_ratio: float | None = None  # share of the time
    priority: str | None = None  # of that thread
    receiver: str | None = None  # "compiled": a thread apart, in C; "python": the event loop
    others: OtherTraffic = field(default_factory=OtherTraffic)  # what its users did besides LLM requests, warm-ups included


# How often the lag of an event loop is sampled.
LAG_EVERY_NS = NS_PER_S // 50


def within(health: WorkerHealth, begun_ns: int, ended_ns: int) -> WorkerHealth:
    """A worker's event loop lag between two instants: p99 and longest; 0 where it is below 5 ms."""
    lags = sorted((ms for since_ns, ms in health.late_wakeups if begun_ns <= since_ns < ended_ns), reverse=True)
    beyond = max(1, (ended_ns - begun_ns) // LAG_EVERY_NS // 100)  # samples above p99; in a short stage the longest alone
    p99 = lags[beyond] if beyond < len(lags) else 0.0
    longest = lags[0] if lags else 0.0
    return WorkerHealth(health.worker, p99, longest, longest_pause_ms=longest)
