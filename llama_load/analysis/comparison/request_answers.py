"""Which requests of a run were answered, and how fast.

Runs that lost others are held against each other by these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LATENCIES = ("ttft", "tpot", "e2el")
# Columns of the table of requests.
COLUMNS = (
    "prompt_index",
    "status",
    "ttft_ms",
    "tpot_ms",
    "e2el_ms",
    "prompt_tokens",
    "output_tokens",
)
MOST_REQUESTS = 20_000
Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answer:
    """Latencies (ms) and tokens of an answered request; NaN where not known."""

    latencies_ms: Mapping[str, float]
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class Answers:
    """The prompts of the plan that were sent, and the answers, by their places in the plan."""

    asked: frozenset[int]
    answered: Mapping[int, Answer]

    def of(self, places: frozenset[int]) -> Iterator[Answer]:
        """The answers at these places."""
        for place in sorted(places):
            yield self.answered[place]


def answers_in(
    numbers: Mapping[str, Column], is_ok: NDArray[np.bool_]
) -> Answers | None:
    """The answers in these columns, of which `is_ok` succeeded.

    None where places in the plan are unknown, sent twice, or too many.
    """
    places = numbers["prompt_index"]
    if not 0 < len(places) <= MOST_REQUESTS or np.isnan(places).any():
        return None
    asked = frozenset(map(int, places))
    if len(asked) != len(places):
        return None

    answered: dict[int, Answer] = {}
    for row in np.flatnonzero(is_ok):
        latencies_ms = {}
        for latency in LATENCIES:
            latencies_ms[latency] = float(numbers[f"{latency}_ms"][row])
        answered[int(places[row])] = Answer(
            latencies_ms,
            float(numbers["prompt_tokens"][row]),
            float(numbers["output_tokens"][row]),
        )
    return Answers(asked, answered)
