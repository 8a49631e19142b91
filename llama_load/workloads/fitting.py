"""Texts brought to a wanted number of tokens, many at a time: counting may be a question to a server."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from llama_load.workloads.counting import TokenCounter

T = TypeVar("T")
# Texts that are counted together: a server's /tokenize answers several at a time.
BATCH = 32


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """The items in lists of 32, the last one shorter; what is not asked for is not drawn."""
    source = iter(items)
    while batch := list(islice(source, BATCH)):
        yield batch


def counted(texts: Iterable[str], counter: TokenCounter) -> Iterator[tuple[str, int]]:
    """Each text with its number of tokens, asked for in batches as they are needed."""
    for batch in batches(texts):
        yield from zip(batch, counter.count(batch), strict=True)


def settled(fittings: Sequence[Generator[str, int, T]], counter: TokenCounter) -> list[T]:
    """What these fittings return, in order. A fitting yields a text, is sent its number of tokens, and tries again or returns.

    All go on side by side, so that a round of them costs the counter a few batches and not a call each.
    """
    results: dict[int, T] = {}
    waiting = [(place, fitting, next(fitting)) for place, fitting in enumerate(fittings)]
    while waiting:
        following = []
        for batch in batches(waiting):
            counts = counter.count([text for _, _, text in batch])
            for (place, fitting, _), tokens in zip(batch, counts, strict=True):
                try:
                    following.append((place, fitting, fitting.send(tokens)))
                except StopIteration as done:
                    results[place] = done.value
        waiting = following
    return [results[place] for place in range(len(fittings))]
