"""The figures of a stage: latencies of the requests that began and ended in it, throughputs of its
time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.conversation_figures import ConversationFigures
from llama_load.analysis.figures.spoiled import are_whole
from llama_load.analysis.figures.summary import Summary, window_rates
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.run_folder.observed.window import Window
from llama_load.run_folder.vocabulary.slo import Slo


@dataclass(frozen=True, slots=True)
class StageFigures:
    """A stage and its figures."""

    name: str
    users: int | None  # its concurrency
    rate_rps: float | None  # or its arrival rate
    figures: Summary
    # requests that began in it and ended after it, which are left out
    crossing: int = 0
    dropped: int = 0  # arrivals never sent
    # at its begin, with more load than its own: no part of its rates
    unsettled_s: float = 0.0
    is_whole: bool = True  # it ran to its end
    # conversations (or single requests) that began in it, crossing ones included, alive at once
    peak: int = 0
    lost: int = 0  # workers lost during it
    unsent: int = 0  # arrivals not sent before its end
    bad: Sequence[Check] = ()  # its checks that are not ok
    main: Sequence[
        Check
    ] = ()  # its main checks, whatever they found (see `Check.is_main`)
    counters: ServerCounters | None = None  # what the servers counted in it
    conversations: ConversationFigures | None = None  # those that began in it

    @property
    def is_reached(self) -> bool:
        """Whether its concurrency was reached; not judged with fewer than twice as many
        requests."""
        count = self.figures.completed + self.figures.failed + self.crossing
        return self.users is None or count < 2 * self.users or self.peak >= self.users

    @property
    def is_comparable(self) -> bool:
        """Whether its figures may be ranked: its load was reached, all requests were answered, none
        was dropped, and no check that failed spoils the stage as a whole. (Single figures may be
        spoiled: see `is_usable`.)"""
        return (
            self.is_measured
            and not self.figures.failed
            and not self.dropped
            and not self.unsent
            and self.is_usable()
        )

    @property
    def is_measured(self) -> bool:
        """Whether it ran to its end at its load."""
        return (
            self.is_whole
            and self.is_reached
            and not self.lost
            and self.figures.completed > 0
        )

    def is_usable(self, *figures: str) -> bool:
        """Whether no check that failed spoils the stage as a whole, or one of these figures (see
        `analysis.figures.spoiled`)."""
        return not self.spoiling(*figures)

    def spoiling(self, *figures: str) -> list[Check]:
        """The failed checks that spoil the stage as a whole, or one of these figures."""
        return [
            check
            for check in self.bad
            if are_whole(check.spoils) or set(figures) & set(check.spoils)
        ]

    @property
    def crossing_ratio(self) -> float:
        """The share of its requests that ended after it, 0 to 1."""
        inside = self.figures.completed + self.figures.failed
        return self.crossing / (self.crossing + inside) if self.crossing else 0.0

    @property
    def load(self) -> float:
        """Its arrival rate, else its concurrency."""
        return (self.users or 0) if self.rate_rps is None else self.rate_rps

    @property
    def mean_lengths(self) -> tuple[float | None, float | None]:
        """Mean prompt and output tokens per successful request; None where a request's are
        unknown."""
        return self._each(self.figures.total_input_tokens), self._each(
            self.figures.total_output_tokens
        )

    def _each(self, total: int | None) -> float | None:
        return (
            total / self.figures.completed
            if total is not None and self.figures.completed
            else None
        )


def completed_within(
    records: Records, stage: int, ended_mono_ns: int | None
) -> tuple[Records, int]:
    """The records of a stage that ended in it, or failed at any time, and the number of its other
    records.

    `ended_mono_ns` None: the stage has no end. Late failures count because a stage must not look
    better for requests that time out after it."""
    ended = records.where(completed_within_mask(records, stage, ended_mono_ns))
    return ended, int(records.equals("stage", stage).sum()) - len(ended)


def completed_within_mask(
    records: Records, stage: int, ended_mono_ns: int | None
) -> NDArray[np.bool_]:
    """One bool per row: whether `completed_within` has it."""
    own = records.equals("stage", stage)
    if ended_mono_ns is None:
        return own
    return own & (
        (records.instants("ended_mono_ns") <= ended_mono_ns) | records.is_failed()
    )


def with_window_rates(
    figures: Summary, measured: Records, window: Window, slos: tuple[Slo, ...]
) -> Summary:
    """The figures of a part of the time, with the rates of all requests within it, whichever stage
    they belong to.

    From the requests that began and ended in it alone, throughput would be too low: at its ends the
    server also works on others. 8 in flight, each for 1 s, in a stage of 8 s: 8 of 64 would be
    missing. Of a timed stage see `window_at_own_load`.
    """
    return replace(figures, **asdict(window_rates(measured, window, slos)))


def window_at_own_load(
    records: Records, stage: int, timed: Window, users: int | None
) -> Window:
    """The part of a timed stage in which its own load was on the server: its rates are those of
    this part.

    A stage begins with the requests that earlier stages left in flight. Where they are more than
    its own load, the server still works on the load before, and their tokens are no throughput of
    this stage. With `users` it begins when at most this many of them are left; in an open loop
    (None) when the last one has ended, unless the stage before left no more than the stage itself
    leaves to the next. Empty if that is never so.

    8 users, then 1, from 60 to 90 s; the last but one of the 8 requests ends at 64 s: 64 to 90 s.
    From 1 user to 8, or from 8 to 8: all of its time.
    """
    started_ns = records.instants("started_mono_ns")
    ended_ns = records.instants("ended_mono_ns")
    is_own = records.equals("stage", stage)
    is_left = ~is_own & (started_ns < timed.begun_ns) & (ended_ns > timed.begun_ns)
    ends_ns = np.sort(ended_ns[is_left])

    if users is None:
        left_by_it = int((is_own & (ended_ns > timed.ended_ns)).sum())
        surplus = len(ends_ns) if len(ends_ns) > _most_by_chance(left_by_it) else 0
    else:
        surplus = max(0, len(ends_ns) - users)

    if not surplus:
        return timed
    begun_ns = int(ends_ns[surplus - 1]) + 1
    return replace(timed, begun_ns=min(begun_ns, timed.ended_ns))


def _most_by_chance(expected: int) -> float:
    """Numbers in flight in an open loop are about Poisson distributed: two at the same load differ
    by sqrt(2 n), the standard deviation, or less in most cases. 8: 12. To leave out too much costs
    a part of the time and moves no rate."""
    return expected + math.sqrt(2 * max(1, expected))


def repeated_prompts(measured: Records, stages: int) -> int:
    """How many requests had the prompt of a request of an earlier stage."""
    seen: set[str] = set()
    again = 0
    for stage in range(stages):
        own = measured.where(measured.equals("stage", stage)).strings("prompt_sha256")
        again += sum(digest in seen for digest in own)
        seen.update(own)
    return again
