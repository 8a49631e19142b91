"""The time window of rates: of a run, or of a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.units import ns_to_s
from llama_load.run_folder.observed.records import Records


@dataclass(frozen=True, slots=True)
class Window:
    """A time on the master's monotonic clock."""

    begun_ns: int
    ended_ns: int
    # the load ended it, with requests in flight: rates count what happened within it, of all
    # requests
    is_cut: bool = False

    @property
    def seconds(self) -> float:
        """Its length, s."""
        return ns_to_s(self.ended_ns - self.begun_ns)

    def holds(self, instants_ns: NDArray[Any]) -> NDArray[np.bool_]:
        """One bool per instant: whether it is within the window."""
        return np.asarray(
            (instants_ns >= self.begun_ns) & (instants_ns < self.ended_ns)
        )


def window_of(records: Records, cut_ns: int | None = None) -> Window:
    """The window of these requests: from the first start to the last end, failed ones included, or
    to `cut_ns`, when the load was ended by time or by hand.

    Two requests, 0 to 3 s and 2 to 10 s: 10 s. Source: vLLM benchmarks/serve.py.
    """
    if not len(records):
        return Window(0, 0)
    begun_ns = int(records.instants("started_mono_ns").min())
    ended_ns = int(records.instants("ended_mono_ns").max())
    if cut_ns is None:
        return Window(begun_ns, ended_ns)
    last_ns = max(begun_ns, min(cut_ns, ended_ns))
    return Window(begun_ns, last_ns, is_cut=True)
