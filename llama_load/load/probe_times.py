"""When probes are sent (--probe-rate): a pure function of their rate."""

from __future__ import annotations

import random
from collections.abc import Iterator


def probe_times_s(rate_rps: float, seed: int) -> Iterator[float]:
    """The scheduled times of probes, s, without end: one at a random place of each interval of 1 / rate.

    Rate 0.5/s: one between 0 and 2 s, one between 2 and 4 s, … The number of probes in a time is as even as with a fixed gap, and
    every moment is as likely as any other, so that probes see the load as it is on average: with a fixed gap they would meet a load
    of the same rhythm (--arrival constant) in the same phase again and again.
    """
    drawn = random.Random(f"probes {seed}")
    number = 0
    while True:
        yield (number + drawn.random()) / rate_rps
        number += 1
