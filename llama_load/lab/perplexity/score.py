"""What a score is, and the windows of tokens that it is made of.

A model predicts each token from those before it. Over the scored tokens, with natural logarithms of
their probabilities:

    perplexity    = exp(-sum(log p) / tokens)
    bits per byte = -sum(log p) / ln 2 / bytes

Perplexity depends on the vocabulary (longer tokens are harder to guess), bits per byte does not:
compare different models by bits per byte, quantizations of one model by either. Two tokens with p =
1/4 and 1/2 that stand for 3 bytes: perplexity sqrt(8) = 2.83, 1 bit per byte.

The text is cut into windows, because contexts are limited. Each window has up to `context` tokens,
begins with the BOS token where the model has one, and scores only its last `stride` tokens, so that
all but those of the first window have at least context - stride tokens (with BOS) before them.
Every token is scored once, except the first one where nothing stands before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """The sum of -log p (nats) of the scored tokens.

    With their number, and the bytes of text that they stand for.
    """

    nats: float
    tokens: int
    bytes: int

    @property
    def perplexity(self) -> float:
        """exp(nats / tokens)."""
        return math.exp(min(self.nats / self.tokens, 700.0))

    @property
    def bits_per_byte(self) -> float | None:
        """nats / ln 2 / bytes; None where nothing is scored."""
        if not self.bytes:
            return None
        return self.nats / math.log(2) / self.bytes


@dataclass(frozen=True, slots=True)
class Window:
    """Items begin…end are sent; those from `scored` on are scored."""

    begin: int
    scored: int
    end: int


def windows(count: int, context: int, stride: int) -> Iterator[Window]:
    """Windows over `count` items.

    10 items, context 4, stride 2: 0-4 (all scored), 2-6 (from 4), 4-8 (from 6), 6-10 (from 8).
    """
    end = min(context, count)
    yield Window(0, 0, end)

    while end < count:
        scored = end
        end = min(end + stride, count)
        yield Window(max(0, end - context), scored, end)


def total(parts: Sequence[Score]) -> Score:
    """The sums of several windows."""
    nats = math.fsum(part.nats for part in parts)
    tokens = 0
    size = 0
    for part in parts:
        tokens += part.tokens
        size += part.bytes

    return Score(nats, tokens, size)
