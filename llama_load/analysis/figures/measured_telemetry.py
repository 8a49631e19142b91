"""What telemetry measured in the windows of a run, and sums over these windows: the input of every
figure of telemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from llama_load.run_folder.observed.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured, and when: the input of every figure here. Tokens and requests: of the
    windows; None where unknown."""

    telemetry: Telemetry
    windows: Sequence[
        Window
    ]  # of the measurement, or of each stage; warm-ups are outside
    idle_ns: int  # the start of the run's first request, warm-up included
    input_tokens: float | None = None
    output_tokens: float | None = None
    requests: float | None = None
    # part of the servers' time for these requests that was prefill, 0 to 1
    prefill_share: float | None = None
    price_per_hour: float | None = None
    gpus: int | None = None  # of the whole set-up, as declared
    # buffers by device in the servers' logs, without host memory
    logged_mib: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length of the windows, s."""
        return sum(window.seconds for window in self.windows)


def mean(series: Series, measured: Measured) -> float | None:
    """Mean of a gauge over all windows, weighted by their lengths."""
    means = [
        (value, window.seconds)
        for window in measured.windows
        if (value := series.mean(window)) is not None
    ]
    seconds = sum(length for _, length in means)
    if seconds <= 0:
        return means[0][0] if means else None
    return sum(value * length for value, length in means) / seconds


def peak(series: Series, measured: Measured) -> float | None:
    """Largest value of a gauge in all windows."""
    return max(
        (
            value
            for window in measured.windows
            if (value := series.peak(window)) is not None
        ),
        default=None,
    )


def increase(series: Series, measured: Measured) -> float | None:
    """Growth of a counter within all windows, interpolated at their edges. None where it was not
    sampled in one of them."""
    return total_if_known([series.increase(window) for window in measured.windows])


def area(series: Series, measured: Measured) -> float | None:
    """Area under a gauge in all windows, unit x s."""
    return total_if_known([series.integral(window) for window in measured.windows])


def total_if_known(values: Sequence[float | None]) -> float | None:
    """Their sum; None where one is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def ratio(
    above: float | None, below: float | None, factor: float = 1.0
) -> float | None:
    """above x factor / below; None where one is not known, or `below` is 0."""
    return None if above is None or not below else above * factor / below
