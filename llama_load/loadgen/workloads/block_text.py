"""Generated text in blocks that are named by ids: prompts that begin with the same ids begin with
the same text."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.synthetic import CODE, ENGLISH, Vocabulary
from llama_load.outside.budget import Budget, TooMuchWork
from llama_load.servers.counting import TokenCounter, counted, settled

BLOCK_TOKENS = 512  # of Mooncake's traces
# Only these passages are counted, 16 thousand tokens in all, for a trace of any length: blocks are
# assembled from them.
PASSAGE_TOKENS = 64
PASSAGES = 256
# A word has one token or more.
MOST_WORDS_A_TOKEN = 4
# A gigabyte of text. A trace of 3 kB can ask for 400 million tokens.
MOST_TOKENS = 250_000_000


@dataclass(frozen=True, slots=True)
class _Passage:
    """Some words, and their number of tokens inside a text."""

    text: str
    tokens: int

    def shuffled(self, draw: random.Random) -> _Passage:
        """The same words in another order."""
        # Nearly twice as fast as shuffle(); most of a plan's time is spent here.
        words = sorted(self.text.split(" "), key=lambda _: draw.random())
        return _Passage(" ".join(words), self.tokens)


def _refuse_too_few_tokens(passage: _Passage, counter: TokenCounter) -> None:
    """UsageError: a prompt of so many tokens would have no end, or fill the memory. The counter may
    be a server's."""
    words = passage.text.count(" ") + 1
    if passage.tokens * MOST_WORDS_A_TOKEN < words:
        raise UsageError(
            f"the tokenizer ({counter.source}) counts {passage.tokens} tokens for {words} words, "
            "so that no prompt of a known length can be made; give --tokenizer"
        )


class BlockText:
    """Generated text in named blocks of equal length: seed and name determine the words.

    A block is one or several of 256 counted passages, the first with its words shuffled, so that no
    two blocks begin the same way.
    """

    def __init__(
        self, seed: str, counter: TokenCounter, block_tokens: int = BLOCK_TOKENS
    ) -> None:
        self.block_tokens = block_tokens
        most = max(1, block_tokens // PASSAGE_TOKENS)
        self._in_block = next(
            count for count in range(most, 0, -1) if block_tokens % count == 0
        )
        passage_tokens = block_tokens // self._in_block
        self._seed = seed
        self._budget = Budget(MOST_TOKENS)
        # No Chinese: one such character would make Python store the prompt at two bytes per
        # character.
        vocabulary = self._vocabulary = Vocabulary(counter, f"{ENGLISH} {CODE}")
        # A prompt's first word, without a space before it, may have another number of tokens than
        # inside a text.
        self._first = {
            word: tokens - vocabulary.overhead
            for word, tokens in counted(vocabulary.cost, counter)
        }
        self._shortest = min(self._first, key=self._first.__getitem__)
        # tokens of the shortest prompt
        self.least = vocabulary.overhead + self._first[self._shortest]
        anchor = next(iter(vocabulary.cost))
        start = f"{anchor} "
        start_tokens = vocabulary.overhead + vocabulary.cost[anchor]
        so_far: set[str] = set()
        draws = [
            random.Random(f"passage {seed} {number}") for number in range(PASSAGES)
        ]
        fittings = [
            vocabulary.fitting(
                draw, start_tokens + passage_tokens, (start, start_tokens), so_far
            )
            for draw in draws
        ]
        made = settled(fittings, counter)
        self._passages = [
            _Passage(text.removeprefix(start), tokens - start_tokens)
            for text, tokens in made
        ]
        for passage in self._passages:
            _refuse_too_few_tokens(passage, counter)

    def prompt(self, names: Iterator[str], tokens: int) -> tuple[str, int]:
        """The text of these blocks, concatenated, up to `tokens` tokens; and its number of tokens.
        UsageError: all texts together have more than `MOST_TOKENS`."""
        try:
            self._budget.spend(tokens)
        except TooMuchWork:
            raise UsageError(
                f"the prompts have more than {MOST_TOKENS // 10**6} million tokens in all; send "
                "fewer with --num-prompts, or a "
                "part of the trace"
            ) from None
        parts: list[str] = []
        missing = tokens - self._vocabulary.overhead
        for passage in chain.from_iterable(map(self._block, names)):
            if not parts:
                word = passage.text.partition(" ")[0]
                missing -= self._first[word] - self._vocabulary.cost[word]
            if missing < passage.tokens:
                words, missing = self._cut(
                    passage, missing, random.Random(f"end {self._seed} {tokens}")
                )
                parts += words
                break
            parts.append(passage.text)
            missing -= passage.tokens
        return (
            (" ".join(parts), tokens - missing)
            if parts
            else (self._shortest, self.least)
        )

    def _block(self, name: str) -> list[_Passage]:
        draw = random.Random(f"{name} {self._seed}")
        first, *rest = draw.choices(self._passages, k=self._in_block)
        return [first.shuffled(draw), *rest]

    def _cut(
        self, passage: _Passage, tokens: int, draw: random.Random
    ) -> tuple[list[str], int]:
        """The passage's first words, up to `missing` tokens, other words where its own do not fit;
        and how many are missing."""
        cost = self._vocabulary.cost
        words = passage.text.split(" ")
        # 1 for a tokenizer. Estimates are rounded per word.
        scale = passage.tokens / sum(map(cost.__getitem__, words))
        used = [scale * so_far for so_far in accumulate(map(cost.__getitem__, words))]
        kept = bisect_right(used, tokens)
        missing = tokens - (round(used[kept - 1]) if kept else 0)
        others: list[str] = []
        if missing >= min(cost.values()):
            self._vocabulary.correct(others, missing, draw)
        return words[:kept] + others, missing - sum(map(cost.__getitem__, others))
