"""What a worker measured of itself: lag of its event loop, CPU time, pauses, its clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from llama_load.ground.units import NS_PER_S
from llama_load.run_folder.observed.other_requests import OtherTraffic


@dataclass(slots=True)
class WorkerHealth:
    """A worker's measurements of itself during the run. None: not known."""

    worker: str
    loop_lag_p99_ms: float | None = None
    loop_lag_max_ms: float | None = None
    # CPU time of its event loop's thread, 0 to 1 of one core
    core_busy: float | None = None
    # share of CPU time that the hypervisor gave to others
    stolen_ratio: float | None = None
    # added to its instants to convert them to the master's clock; None in one process
    clock_offset_ms: float | None = None
    clock_uncertainty_ms: float | None = None  # the largest possible error of that
    # for which the event loop did not run, less the 20 ms between two samples
    longest_pause_ms: float | None = None
    longest_pause_mono_ns: int | None = None  # when that began, by the master's clock
    # lags over 5 ms as (start, ms), the 1000 longest at most
    late_wakeups: list[tuple[int, float]] = field(default_factory=list)
    suspended_ms: float | None = None  # how long the machine was suspended
    machine_busy: float | None = None  # used share of all cores' time, 0 to 1
    own_share: float | None = None  # of it, by this process
    # of it, by the servers under test; None where they do not run on this machine
    server_share: float | None = None
    # of it, by all processes of the client on its machine: workers, master, telemetry
    client_share: float | None = None
    # Of the threads of these servers: CPU seconds, and seconds in which they were ready to run but
    # waited for a core, by the kernel's account; with the seconds of the clock, and the CPU seconds
    # of all cores, in which that was.
    server_ran_s: float | None = None
    server_waited_s: float | None = None
    server_seen_s: float | None = None
    machine_s: float | None = None
    # whether a server under test runs on its machine
    is_server_here: bool | None = None
    # other programs with their shares: `yes 48%`
    busiest_others: list[str] = field(default_factory=list)
    # the thread that receives was ready to run but waited for a core, by the kernel's account
    core_wait_ms: float | None = None
    core_wait_longest_ms: float | None = None  # between two samples
    core_wait_ratio: float | None = None  # share of the time
    priority: str | None = None  # of that thread
    # "compiled": a thread apart, in C; "python": the event loop
    receiver: str | None = None
    # what its users did besides LLM requests, warm-ups included
    others: OtherTraffic = field(default_factory=OtherTraffic)


# How often the lag of an event loop is sampled.
LAG_EVERY_NS = NS_PER_S // 50


def within(health: WorkerHealth, begun_ns: int, ended_ns: int) -> WorkerHealth:
    """A worker's event loop lag between two instants: p99 and longest; 0 where it is below 5 ms."""
    lags = []
    for since_ns, lag_ms in health.late_wakeups:
        if begun_ns <= since_ns < ended_ns:
            lags.append(lag_ms)
    lags.sort(reverse=True)
    # samples above p99; in a short stage the longest alone
    samples = (ended_ns - begun_ns) // LAG_EVERY_NS
    beyond = max(1, samples // 100)
    p99 = 0.0
    if beyond < len(lags):
        p99 = lags[beyond]
    longest = lags[0] if lags else 0.0
    return WorkerHealth(health.worker, p99, longest, longest_pause_ms=longest)
