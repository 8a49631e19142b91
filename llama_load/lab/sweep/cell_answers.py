"""Which requests of a row were answered, and how fast: rows that lost others are held against each other by these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from llama_load.observed.records import Records

LATENCIES = ("ttft", "tpot", "e2el")
MOST_REQUESTS = 20_000  # of a row


@dataclass(frozen=True, slots=True)
class Answers:
    """Which prompts of the plan a row sent, and of the answered ones, by their place in the plan, the latencies (ms) and tokens."""

    asked: frozenset[int]
    answered: Mapping[int, Mapping[str, float]]


def answers_of(records: Records) -> Answers | None:
    """The answers in these records; None where places in the plan are unknown, sent twice, or too many."""
    places = records.numbers("prompt_index")
    if not 0 < len(places) <= MOST_REQUESTS or np.isnan(places).any():
        return None
    asked = frozenset(int(place) for place in places)
    if len(asked) != len(places):
        return None
    ok = records.ok()
    columns = {latency: ok.numbers(f"{latency}_ms") for latency in LATENCIES}
    columns |= {"input": ok.numbers("prompt_tokens"), "output": ok.numbers("output_tokens")}
    answered = {}
    for number, place in enumerate(ok.numbers("prompt_index")):
        answered[int(place)] = {name: float(values[number]) for name, values in columns.items()}
    return Answers(asked, answered)
