"""A worker's health while it measures: the lag of its event loop, the load of its core, and who
uses the rest of the CPU."""

from __future__ import annotations

import heapq
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gevent
import numpy as np
import numpy.ma

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.run.client_cpu import ClientCpu
from llama_load.loadgen.run.core_wait import CoreWait
from llama_load.loadgen.run.present_health import PresentHealth
from llama_load.loadgen.run.server_cpu import ServerCpu, machine_cpu_s
from llama_load.loadgen.wire.priority import WaitAccount
from llama_load.run_folder.observed.worker_health import LAG_EVERY_NS, WorkerHealth
from llama_load.servers.address import Address

BUSY_WINDOW_S = 1.0
# After so many windows engines behind a gateway are looked for.
LOOK_BEHIND_AT = (1, 4)
# Lags above LATE_MS are kept with their instants: shorter ones exceed no limit (see
# `analysis.figures.check`). At most MOST_LATE of them, to keep run.json small.
LATE_MS = 5.0
MOST_LATE = 1000
# Below this a difference between the two clocks is the time between reading them, not a suspension.
SUSPENDED_AT_LEAST_NS = NS_PER_S // 20


def _asleep_ns() -> int | None:
    """How long this machine has been suspended since boot, because CLOCK_MONOTONIC stands still
    then; None if unknown."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return None
    return time.clock_gettime_ns(clock) - time.monotonic_ns()


@dataclass(slots=True)
class _Counters:
    """Readings of clocks and CPU counters at one instant."""

    asleep_ns: int | None = field(default_factory=_asleep_ns)
    own_s: float = field(default_factory=time.process_time)
    machine_s: tuple[float, float, float] = field(default_factory=machine_cpu_s)


class HealthMonitor:
    """Samples from `start` to `stop`: the lag every 20 ms, the CPU share every second. `servers`
    are the addresses under test; `master_port`: where the swarm's master listens on this machine.

    What takes over 0.1 ms to read is read in a thread (`in_thread`), else a sample is itself a lag.
    """

    def __init__(
        self,
        worker: str,
        servers: Sequence[Address] = (),
        master_port: int | None = None,
    ) -> None:
        self._health = WorkerHealth(worker)
        self._servers = ServerCpu(servers)
        self._client = ClientCpu(master_port)
        self._created_s = machine_cpu_s()[1]
        self._core_wait = CoreWait()
        self._lags_ms = array("d")
        self._late: list[tuple[float, int]] = []  # a heap: the shortest lag first
        self._busy = array("d")
        # Calls the loop itself: to switch to a greenlet and back would take as long again.
        self._timer: Any = None
        self._window = (0.0, 0.0)
        self._begin = _Counters()
        self._present = PresentHealth()
        self._woke_ns = 0  # when the loop was last seen to run

    def judge_thread(self, thread_id: int | None) -> None:
        """Whose waits for a core count: those of the thread that receives (None: of the main
        thread)."""
        self._core_wait = CoreWait(WaitAccount(thread_id).waited_s)

    def start(self) -> None:
        """Begin sampling (again), at each measurement: what was seen before is kept, warm-ups are
        not sampled."""
        self.stop()
        self._window = (time.monotonic(), time.thread_time())
        self._begin = _Counters()
        self._servers.start()
        self._client.start()
        self._core_wait.start()
        self._present = PresentHealth()
        self._woke_ns = time.monotonic_ns()
        every_s = LAG_EVERY_NS / NS_PER_S
        self._timer = gevent.get_hub().loop.timer(every_s, every_s)
        self._timer.start(self._sample)

    def stop(self) -> None:
        """Stop sampling. A shorter CPU window counts if there is no whole one."""
        if self._timer is None:
            return
        self._timer.close()
        self._timer = None
        if (
            time.monotonic_ns() - self._woke_ns > LAG_EVERY_NS
        ):  # the loop is late at this moment
            self._note_lag()
        if not self._busy:
            self._close_window(0.2)
        self._core_wait.sample()
        self._compare(self._begin, _Counters())

    def health(self) -> WorkerHealth:
        """Event loop lag in ms (p99 and maximum), CPU share of the event loop's core (p95 of the
        seconds), and the differences from `stop`."""
        health = self._health
        if self._lags_ms:
            health.loop_lag_p99_ms = float(np.percentile(self._lags_ms, 99))
        health.loop_lag_max_ms = max(self._lags_ms, default=None)
        health.late_wakeups = sorted(
            (since_ns, lag_ms) for lag_ms, since_ns in self._late
        )
        health.core_busy = float(np.percentile(self._busy, 95)) if self._busy else None
        waited = self._core_wait
        health.core_wait_ms = waited.total_ms
        health.core_wait_longest_ms = waited.longest_ms
        health.core_wait_ratio = waited.share
        return health

    def gauges(self) -> dict[str, float]:
        """See `PresentHealth.gauges`; empty while nothing is measured."""
        return self._present.gauges() if self._timer is not None else {}

    def _sample(self) -> None:
        self._timer.stop()
        self._note_lag()
        self._close_window(BUSY_WINDOW_S)
        # From now on, not on a grid, in which a lag would take from the next one.
        self._timer.again(self._sample)

    def _note_lag(self) -> None:
        since_ns = self._woke_ns
        self._woke_ns = time.monotonic_ns()
        self._core_wait.sample()
        lag_ms = max(0, self._woke_ns - since_ns - LAG_EVERY_NS) / 1e6
        self._lags_ms.append(lag_ms)
        self._present.lag(lag_ms)
        if lag_ms > LATE_MS:
            keep = heapq.heappush if len(self._late) < MOST_LATE else heapq.heappushpop
            keep(self._late, (lag_ms, since_ns + LAG_EVERY_NS))
        if lag_ms > (self._health.longest_pause_ms or 0.0):
            self._health.longest_pause_ms = lag_ms
            self._health.longest_pause_mono_ns = since_ns + LAG_EVERY_NS

    def _close_window(self, at_least_s: float) -> None:
        # Of the event loop's thread: one that receives apart does not keep it from its work.
        now = time.monotonic()
        cpu = time.thread_time()
        since, cpu_then = self._window
        if now - since >= at_least_s:
            self._busy.append((cpu - cpu_then) / (now - since))
            self._window = (now, cpu)
            if len(self._busy) in LOOK_BEHIND_AT:
                self._servers.look_behind()
            idle_s, all_s, _ = machine_cpu_s()
            used = {"own_s": time.process_time(), "server_s": self._servers.used_s()}
            self._present.window(
                now_s=now,
                waited_ms=self._core_wait.present_ms,
                all_s=all_s,
                idle_s=idle_s,
                **used,
            )

    def _compare(self, begin: _Counters, end: _Counters) -> None:
        """Compute suspension and CPU shares from the readings at `begin` and `end`."""
        health = self._health
        if begin.asleep_ns is not None and end.asleep_ns is not None:
            asleep_ns = end.asleep_ns - begin.asleep_ns
            health.suspended_ms = (
                asleep_ns / 1e6 if asleep_ns >= SUSPENDED_AT_LEAST_NS else 0.0
            )

        idle_before_s, total_before_s, stolen_before_s = begin.machine_s
        idle_after_s, total_after_s, stolen_after_s = end.machine_s
        total_s = total_after_s - total_before_s
        if total_s > 0:
            health.stolen_ratio = (stolen_after_s - stolen_before_s) / total_s
        # in a short run on a busy machine its own processes may not be found in time
        if total_s > 0 and self._client.is_known:
            idle_s = idle_after_s - idle_before_s
            health.machine_busy = min(1.0, max(0.0, 1 - idle_s / total_s))
            health.own_share = min(1.0, (end.own_s - begin.own_s) / total_s)
            servers = self._servers.pids
            health.client_share = min(1.0, self._client.used_s(servers) / total_s)
            health.busiest_others = self._client.busiest_others(
                end.machine_s[1] - self._created_s, servers
            )
        health.server_share = self._servers.share()
        waits = self._servers.waits()
        if waits is not None:
            health.server_ran_s = waits.ran_s
            health.server_waited_s = waits.waited_s
            health.server_seen_s = self._servers.seen_s
            health.machine_s = self._servers.machine_s
        health.is_server_here = self._servers.is_here
