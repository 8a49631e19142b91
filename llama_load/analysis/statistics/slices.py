"""Equal slices of a run's time, and what happened in each. By time, not by requests: a slow server
completes few of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.units import ns_to_s

Values = NDArray[np.float64]
Instants = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Slices:
    """`count` slices of equal length from `begin_ns` to `end_ns`."""

    begin_ns: int
    end_ns: int
    count: int

    @property
    def edges(self) -> Values:
        """The count + 1 edges, ns after `begin_ns`: float64 is exact there for 104 days."""
        return np.linspace(0.0, float(self.end_ns - self.begin_ns), self.count + 1)

    @property
    def seconds(self) -> float:
        """The length of a slice, s."""
        return ns_to_s(self.end_ns - self.begin_ns) / self.count

    def edge_ns(self, number: int) -> int:
        """The instant at which slice `number` begins."""
        return self.begin_ns + round(
            (self.end_ns - self.begin_ns) * number / self.count
        )

    def mean(self, values: Values, from_ns: Instants, to_ns: Instants) -> Values:
        """The mean of the values whose intervals overlap each slice, weighted by how long they do;
        NaN where none does."""
        weights = self._overlaps(from_ns, to_ns)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self._overlaps(from_ns, to_ns, values) / weights)

    def amount(self, amounts: Values, from_ns: Instants, to_ns: Instants) -> Values:
        """How much fell into each slice, if each amount is spread evenly over its interval."""
        lasted = np.maximum(to_ns - from_ns, 1).astype(np.float64)
        return self._overlaps(
            from_ns, from_ns + lasted.astype(np.int64), amounts / lasted
        )

    def number(self, instants_ns: Instants) -> Values:
        """How many instants fell into each slice."""
        return np.histogram(instants_ns - self.begin_ns, self.edges)[0].astype(
            np.float64
        )

    def _overlaps(
        self, from_ns: Instants, to_ns: Instants, factors: Values | float = 1.0
    ) -> Values:
        """Σ factor x overlap with each slice, ns.

        With F(t) = Σ factor x (t - from) over the intervals that began, less Σ factor x (t - to)
        over those that ended, a slice has F(its end) - F(its begin). F is found with sorted
        instants and cumulative sums: n log n, however many slices.
        """
        return np.diff(self._ramp(from_ns, factors) - self._ramp(to_ns, factors))

    def _ramp(self, instants_ns: Instants, factors: Values | float) -> Values:
        since = (instants_ns - self.begin_ns).astype(np.float64)
        place = np.searchsorted(
            self.edges, since, side="right"
        )  # number of edges at or before it
        factors = np.broadcast_to(factors, since.shape)
        count = np.cumsum(np.bincount(place, factors, self.count + 2))[: self.count + 2]
        total = np.cumsum(np.bincount(place, factors * since, self.count + 2))[
            : self.count + 2
        ]
        # An instant whose place is p counts for the edges with number >= p.
        return self.edges * count[: self.count + 1] - total[: self.count + 1]
