"""Counts the tokens of texts, and fits texts to a number of tokens, many at a time: each count may
be a request to a server.

Counters are a local tokenizer.json, or an estimate, named as such. A server's tokenizer is counted
by its target.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from llama_load.ground.errors import UsageError

T = TypeVar("T")
# Texts counted in one batch: a server's /tokenize is called for several at a time.
BATCH = 32
# CJK ideographs, kana, hangul and full-width forms: modern tokenizers spend about three tokens on
# four characters.
_DENSE = re.compile(r"[\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]")
DENSE_TOKENS_PER_CHAR = 0.75
CHARS_PER_TOKEN = 4.2


class TokenCounter(Protocol):
    """Counts the tokens of texts, including the special tokens that the tokenizer adds."""

    @property
    def source(self) -> str:
        """The counter's name for reports; read after counting."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, in order."""


class EstimatedCounter:
    """About one token per 4.2 characters and three tokens per four CJK characters. Error: 20 % and
    more."""

    source = "estimate"

    def count(self, texts: Sequence[str]) -> list[int]:
        """See `TokenCounter.count`."""
        return [self._one(text) for text in texts]

    @staticmethod
    def _one(text: str) -> int:
        dense = len(_DENSE.findall(text))
        return (
            round(dense * DENSE_TOKENS_PER_CHAR + (len(text) - dense) / CHARS_PER_TOKEN)
            + 1
            if text
            else 0
        )


class LocalCounter:
    """A Hugging Face `tokenizer.json`, read with the `tokenizers` package."""

    def __init__(self, path: Path) -> None:
        """Raise UsageError if the package is missing or the file is not a tokenizer.json."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UsageError(
                "--tokenizer needs the package tokenizers: pip install tokenizers"
            ) from None
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise UsageError(
                f"there is no tokenizer.json at {path}; --tokenizer takes the file or its folder"
            )
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(file))
        except Exception as error:  # the package raises bare Exception
            raise UsageError(f"{file} is not a tokenizer.json: {error}") from None
        self.source = f"tokenizer {file.name}"

    def count(self, texts: Sequence[str]) -> list[int]:
        """See `TokenCounter.count`."""
        return [
            len(encoding.ids) for encoding in self._tokenizer.encode_batch(list(texts))
        ]

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        found: list[int] = self._tokenizer.encode(text).ids
        return found


@cache
def tokenizer_at(path: str) -> LocalCounter:
    """The tokenizer at this path, read once. UsageError: see `LocalCounter`."""
    return LocalCounter(Path(path))


def batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """The items in lists of `size`, the last one shorter; reads the source lazily."""
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


def counted(texts: Iterable[str], counter: TokenCounter) -> Iterator[tuple[str, int]]:
    """Each text with its number of tokens, counted in batches on demand."""
    for batch in batches(texts):
        yield from zip(batch, counter.count(batch), strict=True)


def settled(
    fittings: Sequence[Generator[str, int, T]], counter: TokenCounter
) -> list[T]:
    """The results of these fittings, in order. A fitting yields a text, is sent its number of
    tokens, and retries or returns.

    All advance in rounds, so that a round costs the counter a few batches and not a call per text.
    """
    results: dict[int, T] = {}
    waiting = [
        (place, fitting, next(fitting)) for place, fitting in enumerate(fittings)
    ]
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
