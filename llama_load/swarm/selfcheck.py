"""What a worker notices of itself while it measures: how late its event loop runs, how busy its core is."""

from __future__ import annotations

import time
from array import array

import gevent
import numpy as np
import numpy.ma
import psutil

from llama_load.metrics.verdict import WorkerHealth

LAG_EVERY_S = 0.02
BUSY_WINDOW_S = 1.0


class SelfCheck:
    """Samples from `start` to `stop`. One lag every 20 ms, one CPU share a second."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self._lags_ms = array("d")
        self._busy = array("d")
        self._greenlet: gevent.Greenlet | None = None
        self._window = (0.0, 0.0)
        self._since = (0.0, 0.0)
        self._stolen: float | None = None

    def start(self) -> None:
        """Begin sampling (again)."""
        self.stop()
        self._window = (time.monotonic(), time.process_time())
        self._since = _stolen_of_all_s()
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Stop sampling; a last, shorter window counts if there is no whole one."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
            self._greenlet = None
            (stolen, total), (stolen_then, total_then) = _stolen_of_all_s(), self._since
            self._stolen = (stolen - stolen_then) / (total - total_then) if total > total_then else None
            if not self._busy:
                self._close_window(0.2)

    def health(self) -> WorkerHealth:
        """The loop's lag in ms (p99 and maximum) and the core's share in its busiest seconds (95 % quantile)."""
        return WorkerHealth(
            self.worker,
            float(np.percentile(self._lags_ms, 99)) if self._lags_ms else None,
            max(self._lags_ms, default=None),
            float(np.percentile(self._busy, 95)) if self._busy else None,
            self._stolen,
        )

    def _run(self) -> None:
        while True:
            before = time.monotonic()
            gevent.sleep(LAG_EVERY_S)
            self._lags_ms.append(max(0.0, (time.monotonic() - before - LAG_EVERY_S) * 1e3))
            self._close_window(BUSY_WINDOW_S)

    def _close_window(self, at_least_s: float) -> None:
        now, cpu = time.monotonic(), time.process_time()
        since, cpu_then = self._window
        if now - since >= at_least_s:
            self._busy.append((cpu - cpu_then) / (now - since))
            self._window = (now, cpu)


def _stolen_of_all_s() -> tuple[float, float]:
    """CPU seconds of this machine since its start: (taken by the hypervisor for others, all together)."""
    times = psutil.cpu_times()
    return float(getattr(times, "steal", 0.0)), float(sum(times))
