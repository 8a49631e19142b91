"""Time series sampled during a run: GPUs, hosts, server processes, counters of servers. Instants are on the master's monotonic
clock, as those of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from llama_load.observed.window import Window
from llama_load.units import NS_PER_S

# A busy server may answer a few seconds late: so much of a window may be without samples at each end.
EDGE_NS, EDGE_RATIO = 2 * NS_PER_S, 0.05
# A counter that falls by less than this was not started again: sums over CPUs or processes, and values that are read while they
# change, dip by a little. One that was started again would have to win back 90 % between two samples.
LEAST_RESET = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One series: `values` (float64) at the instants `t_ns` (int64, ascending); at least one sample.

    `source`: "host", "gpus", "server", "telemetry" on the master's machine, "power", or the URL that was scraped. A value that
    stays the same has samples only where that begins and ends, so that lines between samples are right.
    """

    source: str
    metric: str
    labels: Mapping[str, str]
    t_ns: NDArray[np.int64]
    values: NDArray[np.float64]

    def at(self, t_ns: int) -> float:
        """The value at an instant, on the line between its two samples; before the first and after the last sample theirs."""
        return _at(self.t_ns, self.values, t_ns)

    def mean(self, window: Window) -> float | None:
        """The mean of a gauge over a window: area under the line between samples / length. None where it was not sampled (see
        `covers`).

        0 at 0 s, 10 at 10 s, window 5 to 10 s: 7.5.
        """
        if not self.covers(window):
            return None
        if window.ended_ns <= window.begun_ns:
            return self.at(window.begun_ns)
        instants, values = self._cut(window)
        steps = np.diff(instants).astype(np.float64)
        return float((steps * (values[1:] + values[:-1]) / 2).sum() / steps.sum())

    def peak(self, window: Window) -> float | None:
        """The largest value of a gauge in a window, its interpolated edges included. None as for `mean`."""
        return float(self._cut(window)[1].max()) if self.covers(window) else None

    def increase(self, window: Window, *, around: bool = False) -> float | None:
        """How much a counter grew in a window. A drop by a tenth or more is a reset: the counter began again at 0. After a smaller
        one the counter has not grown until it is back where it was.

        At the edges it is interpolated between the two samples there. `around`: from the last sample before the window to the
        first after it; exact for what only happens within the window, such as requests. None as for `mean`.
        10 at 0 s, 20 at 10 s, 4 at 20 s, window 5 to 20 s: 5 + 4 = 9.
        """
        if not self.covers(window):
            return None
        grown = np.concatenate(([0.0], np.cumsum(_growth(self.values))))
        begun_ns, ended_ns = window.begun_ns, window.ended_ns
        if around:
            before = int(np.searchsorted(self.t_ns, begun_ns, "right")) - 1
            after = int(np.searchsorted(self.t_ns, ended_ns, "left"))
            begun_ns = int(self.t_ns[max(0, before)])
            ended_ns = int(self.t_ns[min(len(self.t_ns) - 1, after)])
        return max(0.0, _at(self.t_ns, grown, ended_ns) - _at(self.t_ns, grown, begun_ns))

    def resets(self, window: Window) -> int:
        """How often a counter began again at 0 in a window (see `increase`). 10, 20, 4 within it: 1."""
        drops = self.values[1:] < (1 - LEAST_RESET) * self.values[:-1]
        inside = (self.t_ns[1:] > window.begun_ns) & (self.t_ns[1:] <= window.ended_ns)
        return int((drops & inside).sum())

    def integral(self, window: Window) -> float | None:
        """Area under a gauge in a window, unit x s: watts give joules. None as for `mean`."""
        mean = self.mean(window)
        return None if mean is None else mean * window.seconds

    def covers(self, window: Window) -> bool:
        """Whether samples reach from its begin to its end, but for `EDGE_NS` or `EDGE_RATIO` of it. Samples of a part say nothing
        about the whole."""
        edge_ns = max(EDGE_NS, EDGE_RATIO * (window.ended_ns - window.begun_ns))
        if self.t_ns[0] > window.ended_ns or self.t_ns[-1] < window.begun_ns:
            return False
        return bool(self.t_ns[0] - window.begun_ns <= edge_ns and window.ended_ns - self.t_ns[-1] <= edge_ns)

    def _cut(self, window: Window) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The samples within the window, with interpolated ones at its edges."""
        inside = (self.t_ns > window.begun_ns) & (self.t_ns < window.ended_ns)
        instants = np.concatenate(([window.begun_ns], self.t_ns[inside], [window.ended_ns])).astype(np.int64)
        values = np.concatenate(([self.at(window.begun_ns)], self.values[inside], [self.at(window.ended_ns)]))
        return instants, values


@dataclass(frozen=True, slots=True)
class Telemetry:
    """All series of a run. `notes`: sentences about what could not be sampled."""

    series: Sequence[Series] = ()
    notes: Sequence[str] = ()
    _of_metric: dict[str, list[Series]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for series in self.series:
            self._of_metric.setdefault(series.metric, []).append(series)

    def find(self, metric: str, source: str | None = None, **labels: str) -> list[Series]:
        """The series of a metric, of this source and with these labels."""
        return [
            series
            for series in self._of_metric.get(metric, ())
            if source in (None, series.source) and all(series.labels.get(name) == value for name, value in labels.items())
        ]


def _at(t_ns: NDArray[np.int64], values: NDArray[np.float64], at_ns: int) -> float:
    # Relative to the instant, because one over 2^53 ns would be rounded as a float.
    return float(np.interp(0.0, (t_ns - at_ns).astype(np.float64), values))


def _growth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The increase of a counter from sample to sample. 10, 20, 19.9, 21, 4: 10, 0, 1, 4."""
    resets = np.flatnonzero(values[1:] < (1 - LEAST_RESET) * values[:-1]) + 1
    growth = np.concatenate([
        np.diff(np.maximum.accumulate(part), prepend=0.0 if number else part[0])
        for number, part in enumerate(np.split(values, resets))
    ])  # fmt: skip
    return growth[1:]
