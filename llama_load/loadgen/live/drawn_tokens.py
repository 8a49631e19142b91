"""Tokens that are drawn as they arrive, before the records of their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from llama_load.ground.units import NS_PER_MS
from llama_load.loadgen.live.live_series import TimeSeries
from llama_load.loadgen.live.sketch import Floats, Integers, bucket_of
from llama_load.run_folder.observed.new_tokens import NewTokens


class DrawnTokens:
    """Draws tokens into a series, and knows how many events of each request it has drawn.

    `is_used`: whether tokens come before their records in this run.
    """

    def __init__(self, series: TimeSeries) -> None:
        self._series = series
        self._events: dict[int, int] = {}  # by the request's number in the plan
        self.is_used = False

    def take(self, number: int | None) -> int:
        """How many events of this request were drawn; its record has come."""
        if number is None:
            return 0
        return self._events.pop(number, 0)

    def add(self, arrived: Sequence[NewTokens], now_ns: int) -> None:
        """Draw these, each event as one token.

        What does not follow on what was drawn of its request waits for the record.
        """
        self.is_used = True
        fitting = []
        for answer in arrived:
            drawn = self._events.get(answer.number, 0)
            if answer.before == drawn:
                self._events[answer.number] = drawn + len(answer.new_ns)
                fitting.append(answer)

        if fitting:
            self._draw(fitting, now_ns)

    def _draw(self, answers: Sequence[NewTokens], now_ns: int) -> None:
        every_ns = []
        every_end_ns = []
        every_gap_ns = []
        for answer in answers:
            every_ns.append(answer.new_ns)
            every_end_ns.append(answer.token_ns[1:])
            gaps_ns = np.diff(answer.token_ns)
            every_gap_ns.append(gaps_ns)

        new_ns = np.concatenate(every_ns)
        steps = self._series.steps_of(new_ns, now_ns)
        self._series.add_tokens(steps, np.ones(len(steps)))

        ends_ns = np.concatenate(every_end_ns)
        gap_steps = self._series.steps_of(ends_ns, now_ns)
        gaps_ms = np.concatenate(every_gap_ns) / NS_PER_MS
        gap_buckets = bucket_of(gaps_ms)
        self._series.add_latencies("itl", gap_steps, gap_buckets)

        self._draw_first(answers, now_ns)

    def _draw_first(self, answers: Sequence[NewTokens], now_ns: int) -> None:
        """The first tokens of those that have begun."""
        instants_ns = []
        ttft_ms = []
        for answer in answers:
            if answer.before:
                continue

            first_ns = answer.new_ns[0]
            since_ns = first_ns - answer.started_ns
            instants_ns.append(first_ns)
            ttft_ms.append(since_ns / NS_PER_MS)

        if not instants_ns:
            return

        at_ns = np.array(instants_ns)
        values_ms = np.array(ttft_ms)
        steps = self._series.steps_of(at_ns, now_ns)
        buckets = bucket_of(values_ms)
        self._series.add_latencies("ttft", steps, buckets)
        self._series.add_first_tokens(at_ns, values_ms)


def places_in(lengths: Integers) -> Integers:
    """The place of each gap in its answer. Lengths 2 and 3: 0, 1, 0, 1, 2."""
    begins = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) - np.repeat(begins, lengths)


def token_instants_ns(
    numbers: Mapping[str, Floats], gaps_ms: Sequence[Floats]
) -> tuple[Floats, Floats, Integers]:
    """When answers' first tokens came, when those after each gap came, ns.

    And the number of gaps of each answer. Started at 0 s, TTFT 500 ms, gaps 100 and 200 ms: 0.5 s;
    0.6 and 0.8 s. Without a TTFT (whole answers) all came at the end.
    """
    ended_ns = numbers["ended_mono_ns"]
    ttft_ns = numbers["ttft_ms"] * NS_PER_MS
    first_ns = numbers["started_mono_ns"] + ttft_ns
    is_streamed = np.isfinite(first_ns)
    first_ns = np.where(is_streamed, np.minimum(first_ns, ended_ns), ended_ns)

    lengths = np.array([len(gaps) for gaps in gaps_ms])
    known_gaps_ms = np.nan_to_num(np.concatenate(gaps_ms))
    sums_ms = np.cumsum(known_gaps_ms)

    # The sum before each answer's first gap.
    first_gaps = np.cumsum(lengths) - lengths
    before_ms = np.concatenate([[0.0], sums_ms])
    before_ms = before_ms[first_gaps]

    since_first_ms = sums_ms - np.repeat(before_ms, lengths)
    since_first_ns = since_first_ms * NS_PER_MS
    came_ns = np.repeat(first_ns, lengths) + since_first_ns
    latest_ns = np.repeat(ended_ns, lengths)
    came_ns = np.minimum(came_ns, latest_ns)

    return first_ns, came_ns, lengths
