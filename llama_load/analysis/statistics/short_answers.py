"""Answers that are short and alike, where others to the same kind of prompts are long: refusals and
error texts, however late they come and whatever finish_reason they have.

Short is less than half the median of the workload's answers; a workload whose answers are all short
(a classification) has none. Alike are equal answers to different prompts; where texts were saved,
answers with the same first words, too, because a refusal often repeats what it refuses.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.observed.records import Records

# Of so many different prompts at least; short against this part of the median answer.
LEAST_PROMPTS = 3
SHORT = 0.5
# Fewer answers of a workload have no usual length.
LEAST_ANSWERS = 10
# Words at the beginning of a refusal.
FIRST_WORDS = 4


@dataclass(frozen=True, slots=True)
class ShortAlike:
    """How many answers of how many are short and alike; the length of the most frequent one, and
    the usual one, tokens."""

    count: int
    of: int
    most_frequent: int
    tokens: float
    usual: float


def short_alike(free: Records) -> ShortAlike | None:
    """Those among answers that were not forced into a form; None where there are none.

    200 answers of 60 tokens, 12 of them the same 11 words: 12 of 200.
    """
    tokens = free.numbers("output_tokens")
    usual = _usual(free, tokens)
    is_short = tokens < SHORT * usual
    beginnings = _beginnings(free)
    prompts = free.strings("prompt_sha256")
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row in np.flatnonzero(is_short).tolist():
        beginning = beginnings[row]
        if beginning is not None and prompts[row] is not None:
            rows_of[beginning].append(row)

    alike = []
    for rows in rows_of.values():
        different = {prompts[row] for row in rows}
        if len(different) >= LEAST_PROMPTS:
            alike.append(rows)
    if not alike:
        return None
    most = max(alike, key=len)
    return ShortAlike(
        sum(map(len, alike)),
        len(free),
        len(most),
        float(np.median(tokens[most])),
        float(np.median(usual[most])),
    )


def _usual(free: Records, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median answer of each request's workload; NaN of workloads with few."""
    workloads = np.array(free.strings("workload"), dtype=object)
    usual = np.full(len(free), np.nan)
    for name in dict.fromkeys(workloads.tolist()):
        own = (workloads == name) & ~np.isnan(tokens)
        if own.sum() >= LEAST_ANSWERS:
            usual[own] = float(np.median(tokens[own]))
    return usual


def _beginnings(free: Records) -> list[str | None]:
    """What makes two answers alike: their first words, or their hash where texts were not saved."""
    texts = free.strings("output_text")
    hashes = free.strings("output_sha256")
    return [
        digest if text is None else " ".join(text.lower().split()[:FIRST_WORDS])
        for text, digest in zip(texts, hashes, strict=True)
    ]
