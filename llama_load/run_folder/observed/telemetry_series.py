"""Time series sampled during a run: GPUs, hosts, server processes, counters of servers. Instants
are on the master's monotonic clock, as those of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.units import NS_PER_S
from llama_load.run_folder.observed.window import Window

Instants = NDArray[np.int64]
Values = NDArray[np.float64]

# A busy server may answer a few seconds late: so much of a window may be without samples at each
# end.
EDGE_NS = 2 * NS_PER_S
EDGE_RATIO = 0.05
# A counter that falls by less than this was not started again: sums over CPUs or processes, and
# values that are read while they change, dip by a little. One that was started again would have to
# win back 90 % between two samples.
LEAST_RESET = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One series: `values` (float64) at the instants `t_ns` (int64, ascending); at least one
    sample.

    `source`: "host", "gpus", "server", "telemetry" on the master's machine, "power", or the URL
    that was scraped. A value that stays the same has samples only where that begins and ends, so
    that lines between samples are right.
    """

    source: str
    metric: str
    labels: Mapping[str, str]
    t_ns: Instants
    values: Values

    def at(self, t_ns: int) -> float:
        """The value at an instant, on the line between its two samples; before the first and after
        the last sample theirs."""
        return _at(self.t_ns, self.values, t_ns)

    def mean(self, window: Window) -> float | None:
        """The mean of a gauge over a window: area under the line between samples / length. None
        where it was not sampled (see `covers`).

        0 at 0 s, 10 at 10 s, window 5 to 10 s: 7.5.
        """
        if not self.covers(window):
            return None
        if window.ended_ns <= window.begun_ns:
            return self.at(window.begun_ns)
        instants, values = self._cut(window)
        steps = np.diff(instants).astype(np.float64)
        means = (values[1:] + values[:-1]) / 2  # of the lines between two samples
        area = (steps * means).sum()
        return float(area / steps.sum())

    def peak(self, window: Window) -> float | None:
        """The largest value of a gauge in a window, its interpolated edges included. None as for
        `mean`."""
        if not self.covers(window):
            return None
        _, values = self._cut(window)
        return float(values.max())

    def increase(self, window: Window, *, around: bool = False) -> float | None:
        """How much a counter grew in a window. A drop by a tenth or more is a reset: the counter
        began again at 0. After a smaller one the counter has not grown until it is back where it
        was.

        At the edges it is interpolated between the two samples there. `around`: from the last
        sample before the window to the first after it; exact for what only happens within the
        window, such as requests. None as for `mean`. 10 at 0 s, 20 at 10 s, 4 at 20 s, window 5 to
        20 s: 5 + 4 = 9.
        """
        if not self.covers(window):
            return None

        begun_ns = window.begun_ns
        ended_ns = window.ended_ns
        if around:
            before = int(np.searchsorted(self.t_ns, begun_ns, "right")) - 1
            after = int(np.searchsorted(self.t_ns, ended_ns, "left"))
            last = len(self.t_ns) - 1
            begun_ns = int(self.t_ns[max(0, before)])
            ended_ns = int(self.t_ns[min(last, after)])

        sums = np.cumsum(_growth(self.values))
        grown = np.concatenate(([0.0], sums))
        at_begin = _at(self.t_ns, grown, begun_ns)
        at_end = _at(self.t_ns, grown, ended_ns)
        return max(0.0, at_end - at_begin)

    def resets(self, window: Window) -> int:
        """How often a counter began again at 0 in a window (see `increase`). 10, 20, 4 within it:
        1."""
        reset_ns = self.t_ns[_resets(self.values)]
        inside = (reset_ns > window.begun_ns) & (reset_ns <= window.ended_ns)
        return int(inside.sum())

    def integral(self, window: Window) -> float | None:
        """Area under a gauge in a window, unit x s: watts give joules. None as for `mean`."""
        mean = self.mean(window)
        return None if mean is None else mean * window.seconds

    def covers(self, window: Window) -> bool:
        """Whether samples reach from its begin to its end, but for `EDGE_NS` or `EDGE_RATIO` of it.
        Samples of a part say nothing about the whole."""
        first_ns = int(self.t_ns[0])
        last_ns = int(self.t_ns[-1])
        if first_ns > window.ended_ns or last_ns < window.begun_ns:
            return False

        edge_ns = max(EDGE_NS, EDGE_RATIO * (window.ended_ns - window.begun_ns))
        missing_before_ns = first_ns - window.begun_ns
        missing_after_ns = window.ended_ns - last_ns
        return missing_before_ns <= edge_ns and missing_after_ns <= edge_ns

    def _cut(self, window: Window) -> tuple[Instants, Values]:
        """The samples within the window, with interpolated ones at its edges."""
        inside = (self.t_ns > window.begun_ns) & (self.t_ns < window.ended_ns)
        instants = np.concatenate(
            ([window.begun_ns], self.t_ns[inside], [window.ended_ns])
        )
        at_begin = self.at(window.begun_ns)
        at_end = self.at(window.ended_ns)
        values = np.concatenate(([at_begin], self.values[inside], [at_end]))
        return instants.astype(np.int64), values


@dataclass(frozen=True, slots=True)
class Telemetry:
    """All series of a run. `notes`: sentences about what could not be sampled."""

    series: Sequence[Series] = ()
    notes: Sequence[str] = ()
    _of_metric: dict[str, list[Series]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for series in self.series:
            self._of_metric.setdefault(series.metric, []).append(series)

    def find(
        self, metric: str, source: str | None = None, **labels: str
    ) -> list[Series]:
        """The series of a metric, of this source and with these labels."""
        found = []
        for series in self._of_metric.get(metric, ()):
            if source is not None and source != series.source:
                continue
            if labels.items() <= series.labels.items():
                found.append(series)
        return found

    def of_server(self, url: str) -> list[Series]:
        """What the pages of the server at this URL had."""
        return [each for each in self.series if each.source.startswith(f"{url}/")]


def _at(t_ns: Instants, values: Values, at_ns: int) -> float:
    # Relative to the instant, because one over 2^53 ns would be rounded as a float.
    relative_ns = (t_ns - at_ns).astype(np.float64)
    return float(np.interp(0.0, relative_ns, values))


def _growth(values: Values) -> Values:
    """The increase of a counter from sample to sample. 10, 20, 19.9, 21, 4: 10, 0, 1, 4."""
    growths = []
    for part in np.split(values, _resets(values)):
        # a part begins at 0, but for the first one, whose first sample is left out below
        highest = np.maximum.accumulate(part)
        growths.append(np.diff(highest, prepend=0.0))
    return np.concatenate(growths)[1:]


def _resets(values: Values) -> NDArray[np.intp]:
    """The places of the samples at which a counter had begun again."""
    before = values[:-1]
    is_reset = values[1:] < (1 - LEAST_RESET) * before
    return np.flatnonzero(is_reset) + 1
