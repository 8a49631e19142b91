"""Tokens that a text has by its length: the second source of a count where no tokenizer and no
event confirms it.

Tokenizers put 3.5 to 4.8 characters of English into a token, 2 to 3.5 of code, 1 to 2 of Chinese, a
half of a rare emoji. So a text bounds its tokens from below: no language has `LONG` times the
characters of English in a token. It does not bound them from above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.arithmetic.token_span import CHARS_PER_TOKEN, LONG_EVENT
from llama_load.run_folder.observed.records import Records

# Prompts of this many tokens together give their characters per token.
LEAST_TOKENS = 200
# Characters of several bytes in a token: 1.3 to 2 of Chinese.
WIDE_PER_TOKEN = 2.0
# Bytes of such a character beyond the first: 2 in Chinese. (Cyrillic and Greek have 1, and more
# characters in a token.)
WIDE_BYTES = 2.0
# A single text may be a row of dashes or blanks, which tokenizers put together: it shows a factor
# of three and more.
LONG = LONG_EVENT
LONG_TEXT = 3.0
# Single texts of fewer tokens by their length are not judged.
LEAST_TEXT_TOKENS = 32
# Later turns of conversations that show whether their history is counted.
LEAST_TURNS = 8


@dataclass(frozen=True, slots=True)
class Shortage:
    """Texts whose counts are too small for their length: `tokens` counted, `expected` by the
    length, of the rows that are wrong."""

    rows: NDArray[np.bool_]
    tokens: float
    expected: float
    of_all: float  # tokens of all texts that were judged, with `expected` for those that are wrong

    @property
    def ratio(self) -> float:
        """The share of all tokens that were not counted."""
        return (
            max(0.0, self.expected - self.tokens) / self.of_all if self.of_all else 0.0
        )


def usual_chars(records: Records, rows: NDArray[np.bool_]) -> float:
    """Characters per token of the prompts of these requests, by the reported counts; of English
    text where they are too few."""
    counted = (
        rows
        & ~np.isnan(records.numbers("prompt_tokens"))
        & np.isnan(records.numbers("images"))
    )
    sent = records.numbers("prompt_chars")[counted].sum()
    of = records.numbers("prompt_tokens")[counted].sum()
    return float(sent / of) if of >= LEAST_TOKENS and sent else CHARS_PER_TOKEN


def expected_tokens(
    chars: NDArray[np.float64], size: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Tokens of texts of so many characters and bytes: English characters / 4 + others / 2. 400
    characters of one byte: 100; 200 Chinese ones: 100."""
    wide = np.clip((size - chars) / WIDE_BYTES, 0.0, chars)
    return (chars - wide) / CHARS_PER_TOKEN + wide / WIDE_PER_TOKEN


def shortage(
    tokens: NDArray[np.float64], chars: NDArray[np.float64], size: NDArray[np.float64]
) -> Shortage:
    """The texts that are too long for their counted tokens: all together by `LONG`, or single ones
    by `LONG_TEXT`. All arguments are known. A run's characters per token differ from 4 by a factor
    of 1.2 (a standard deviation of the logarithm of 0.17), those of its answers by 1.3: a clean run
    is named in at most 0.5 % of cases, and counts of a third in 99 %.

    480 tokens of 9,600 characters: 2,400 expected, and 80 % were not counted."""
    expected = expected_tokens(chars, size)
    every = np.ones(len(tokens), dtype=np.bool_)
    together = (
        len(tokens) > 0
        and expected.sum() >= LONG * tokens.sum()
        and expected.sum() >= LEAST_TEXT_TOKENS
    )
    rows = (
        every
        if together
        else (expected >= LONG_TEXT * tokens) & (expected >= LEAST_TEXT_TOKENS)
    )
    of_all = float(np.where(rows, expected, tokens).sum())
    return Shortage(
        rows, float(tokens[rows].sum()), float(expected[rows].sum()), of_all
    )


def shortage_of_turns(
    conversations: Sequence[str | None],
    turns: NDArray[np.float64],
    tokens: NDArray[np.float64],
    chars: NDArray[np.float64],
    size: NDArray[np.float64],
) -> Shortage | None:
    """The later turns, if what they add to the first of their conversation is too long, all
    together, for the tokens that they have more; None otherwise. What a template adds to every
    prompt is in neither.

    First turns of 400 tokens and 1,600 characters, second ones of 410 tokens and 3,300 characters:
    1,700 characters more are no 10 tokens; the history was not counted, or was dropped.
    """
    is_later = turns > 1
    if is_later.sum() < LEAST_TURNS:
        return None
    first = _first_turns(conversations, turns)
    rows = is_later & (first >= 0)
    if rows.sum() < LEAST_TURNS:
        return None
    expected = expected_tokens(chars, size)
    more = float((expected[rows] - expected[first[rows]]).sum())
    counted = float((tokens[rows] - tokens[first[rows]]).sum())
    if more < LEAST_TEXT_TOKENS or more < LONG * counted:
        return None
    own = float(tokens[rows].sum())
    right = own - counted + more
    return Shortage(rows, own, right, float(tokens[~rows].sum()) + right)


def _first_turns(
    conversations: Sequence[str | None], turns: NDArray[np.float64]
) -> NDArray[np.int64]:
    """For each row that of the first turn of its conversation; -1: there is none."""
    rows: dict[str | None, int] = {}
    for row, (conversation, turn) in enumerate(zip(conversations, turns, strict=True)):
        if turn == 1:
            rows[conversation] = row
    found = [rows.get(conversation, -1) for conversation in conversations]
    return np.array(found, dtype=np.int64)
