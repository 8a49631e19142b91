"""The newest samples of a run that is under way, for the web page: read from the sampler's file
when somebody asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

# Of one look at the file, so that it takes some 30 ms at most: a page that opens late catches up
# with its next looks.
MOST_BYTES_AT_ONCE = 2 << 20
# Of each series; with samples every second ten minutes.
MOST_POINTS = 600
MOST_SERIES = 1000


@dataclass(slots=True)
class LiveSeries:
    """A series and its newest points, (instant on the monotonic clock in ns, value); none where the
    value stays the same."""

    source: str
    metric: str
    labels: Mapping[str, str]
    points: deque[tuple[int, float]] = field(
        default_factory=lambda: deque(maxlen=MOST_POINTS)
    )

    @property
    def value(self) -> float | None:
        """The newest value."""
        return self.points[-1][1] if self.points else None


class LiveTelemetry:
    """Follows a file of samples. Its memory is bounded."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at = 0
        self._series: dict[int, LiveSeries] = {}

    def series(self) -> list[LiveSeries]:
        """All series with what has been sampled until now; empty without telemetry."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._at)
                data = file.read(MOST_BYTES_AT_ONCE)
        except OSError:  # not yet there, or the run has ended
            return list(self._series.values())
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            self._take(msgspec.json.decode(line, type=list))
        return list(self._series.values())

    def _take(self, line: list[object]) -> None:
        match line:
            case ["series", int(number), str(source), str(metric), dict(labels)]:
                if len(self._series) < MOST_SERIES and not metric.endswith("_bucket"):
                    self._series[number] = LiveSeries(source, metric, labels)
            case ["values", int(t_ns), list(pairs)]:
                for number, value in zip(pairs[::2], pairs[1::2], strict=True):
                    if number in self._series:
                        self._series[number].points.append((t_ns, value))
