"""Fits texts to a target number of tokens, many at a time, because each count may be a request to a server."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from llama_load.workloads.counting import TokenCounter

T = TypeVar("T")
# Texts counted in one batch: a server's /tokenize is called for several at a time.
BATCH = 32


def batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """The items in lists of `size`, the last one shorter; reads the source lazily."""
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


def counted(texts: Iterable[str], counter: TokenCounter) -> Iterator[tuple[str, int]]:
    """Each text with its number of tokens, counted in batches on demand."""
    for batch in batches(texts):
        yield from zip(batch, counter.count(batch), strict=True)


def settled(fittings: Sequence[Generator[str, int, T]], counter: TokenCounter) -> list[T]:
    """The results of these fittings, in order. A fitting yields a text, is sent its number of tokens, and retries or returns.

    All advance in rounds, so that a round costs the counter a few batches and not a call per text.
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
