"""The figures of a stage: of the requests that lived entirely in it."""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.metrics.summary import Totals
from llama_load.metrics.table import Records


@dataclass(frozen=True, slots=True)
class StageFigures:
    """A stage and its figures. `crossing` requests of it ended after it and are in none of them; `dropped` were never sent.

    `users` requests were in flight, or `rate_rps` arrived a second. `is_whole`: it came to its end.
    """

    name: str
    users: int | None
    rate_rps: float | None
    figures: Totals
    crossing: int = 0
    dropped: int = 0
    is_whole: bool = True

    @property
    def is_comparable(self) -> bool:
        """Whether its figures may be ranked: all requests were answered, and none was dropped."""
        return self.is_whole and self.figures.completed > 0 and not self.figures.failed and not self.dropped

    @property
    def crossing_ratio(self) -> float:
        """The share of its requests that ended after it, 0 to 1."""
        inside = self.figures.completed + self.figures.failed
        return self.crossing / (self.crossing + inside) if self.crossing else 0.0

    @property
    def tok_per_s_per_user(self) -> float | None:
        """How fast a user sees tokens come, tokens/s: 1000 / mean TPOT in ms. Mean TPOT 20 ms: 50.0."""
        mean = self.figures.distributions["tpot"].mean
        return 1000 / mean if mean else None


def inside(records: Records, stage: int, ended_mono_ns: int | None) -> tuple[Records, int]:
    """The records of a stage that ended in it, and how many others there are. None: it had no end, so all ended in it."""
    own = records.where(records.equals("stage", stage))
    if ended_mono_ns is None:
        return own, 0
    ended = own.where(own.instants("ended_mono_ns") <= ended_mono_ns)
    return ended, len(own) - len(ended)
