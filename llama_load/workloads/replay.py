"""Prompts for recorded traffic: as long as the trace's, with the same shared prefixes.

A trace has lengths but no texts. Mooncake's also has `hash_ids`: one id for every 512 tokens of a prompt, the last block
may be shorter. Prompts that begin with the same ids get the same text, so a prefix cache has the same hits.
Source: https://github.com/kvcache-ai/Mooncake, FAST25-release/traces.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, count
from statistics import median_low

from llama_load.errors import UsageError
from llama_load.workloads.counting import TokenCounter
from llama_load.workloads.facts import DataFacts, PlanFacts
from llama_load.workloads.fitting import counted, settled
from llama_load.workloads.prompt import ANSWER_TOKENS, Plan, PlanRequest, Prompt
from llama_load.workloads.synthetic import CODE, ENGLISH, INPUT_TOKENS, Vocabulary

BLOCK_TOKENS = 512
# Only these passages are counted, 16 thousand tokens in all, for a trace of any length: blocks are assembled from them.
PASSAGE_TOKENS = 64
PASSAGES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts(DataFacts):
    """A trace: its requests, and how many of the sent ones had no recorded length."""

    requests: int
    without_lengths: int


class Replay:
    """Generated text in the lengths of a recorded trace: request i has arrival i's prompt tokens and requests its answer tokens.

    Where the trace has no length, `input_len` (default 1024) and `output_len` (default 128) apply. Prompts too long for a slot are
    shortened. The text of a block depends on its id and the seed alone; text without an id is unique, warm-up included.
    Lengths are sums of counted passages: exact if the tokenizer splits words independently.
    """

    name = "replay"

    def plan(self, wanted: PlanRequest) -> Plan:
        """Generate the prompts of a trace's first requests. UsageError: no trace, or a request that fits no slot."""
        if not wanted.trace:
            raise UsageError("replay.py needs a trace: give it with --trace FILE")
        arrivals = wanted.trace[: wanted.num_prompts]
        text = _Text(wanted.content_seed, wanted.counter)
        default_input = _default("--input-len", wanted.traffic.input_len, INPUT_TOKENS)
        default_output = _default("--output-len", wanted.output_len or wanted.traffic.output_len, ANSWER_TOKENS)
        measured, shortened = [], 0
        for place, arrival in enumerate(arrivals):
            recorded = max(text.least, default_input if arrival.input_tokens is None else arrival.input_tokens)
            # Servers refuse a request for 0 tokens.
            output = max(1, default_output if arrival.output_tokens is None else arrival.output_tokens)
            tokens = _fitting(recorded, output, text.least, wanted)
            shortened += tokens < recorded
            names = _names([f"id {hash_id}" for hash_id in arrival.hash_ids], f"request {place}")
            measured.append(Prompt(*text.prompt(names, tokens), output, is_new=wanted.renews))
        output = median_low(prompt.max_tokens or 0 for prompt in measured)
        tokens = _fitting(median_low(prompt.prompt_tokens or 0 for prompt in measured), output, text.least, wanted)
        warm = (text.prompt(_names([], f"warm-up {place}"), tokens) for place in range(wanted.warmup))
        warmup = [Prompt(*each, output, is_new=wanted.renews) for each in warm]
        first_ids = [arrival.hash_ids[0] for arrival in arrivals if arrival.hash_ids]
        lengths = TraceFacts(
            path="a trace",
            requests=len(wanted.trace),
            without_lengths=sum(None in (arrival.input_tokens, arrival.output_tokens) for arrival in arrivals),
        )
        facts = PlanFacts(
            dataset=lengths,
            counted_by=wanted.counter.source,
            distinct=len({prompt.text for prompt in measured}),
            repeated=0,  # the trace repeated it too
            replaced=0,
            shortened=shortened,
            shared_tokens=None if len(set(first_ids)) < len(first_ids) else 0,
        )
        return Plan(measured, warmup, facts)


def _default(flag: str, given: int | None, default: int) -> int:
    tokens = default if given is None else given
    if tokens < 1:
        raise UsageError(f"{flag} must be 1 token or more, got {tokens}")
    return tokens


def _fitting(input_tokens: int, output_tokens: int, least: int, wanted: PlanRequest) -> int:
    """The prompt's tokens that fit a slot. UsageError: not even one word fits."""
    if wanted.fits is None or wanted.fits(input_tokens, output_tokens):
        return input_tokens
    room = wanted.room(output_tokens)
    if room is None or room < least:
        raise UsageError(
            f"a slot of the server has no room for a prompt with an answer of {wanted.answer_len or output_tokens} tokens, as a "
            "request of the trace needs; set shorter answers with --max-tokens, or start the server with a larger context or "
            "fewer slots"
        )
    return min(input_tokens, room)


def _names(blocks: list[str], own: str) -> Iterator[str]:
    """Names of blocks: these, then unique ones without end."""
    yield from blocks
    yield from (f"{own} {number}" for number in count())


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


class _Text:
    """Generated text in named blocks of 512 tokens: seed and name determine the words.

    A block is eight of 256 counted passages, the first with its words shuffled, so that no two blocks begin the same way.
    """

    def __init__(self, seed: str, counter: TokenCounter) -> None:
        self._seed = seed
        # No Chinese: one such character would make Python store the prompt at two bytes per character.
        vocabulary = self._vocabulary = Vocabulary(counter, f"{ENGLISH} {CODE}")
        # A prompt's first word, without a space before it, may have another number of tokens than inside a text.
        self._first = {word: tokens - vocabulary.overhead for word, tokens in counted(vocabulary.cost, counter)}
        self._shortest = min(self._first, key=self._first.__getitem__)
        self.least = vocabulary.overhead + self._first[self._shortest]  # tokens of the shortest prompt
        anchor = next(iter(vocabulary.cost))
        start, start_tokens = f"{anchor} ", vocabulary.overhead + vocabulary.cost[anchor]
        so_far: set[str] = set()
        draws = [random.Random(f"passage {seed} {number}") for number in range(PASSAGES)]
        fittings = [vocabulary.fitting(draw, start_tokens + PASSAGE_TOKENS, (start, start_tokens), so_far) for draw in draws]
        made = settled(fittings, counter)
        self._passages = [_Passage(text.removeprefix(start), tokens - start_tokens) for text, tokens in made]

    def prompt(self, names: Iterator[str], tokens: int) -> tuple[str, int]:
        """The text of these blocks, concatenated, up to `tokens` tokens; and its number of tokens."""
        parts: list[str] = []
        missing = tokens - self._vocabulary.overhead
        for passage in chain.from_iterable(map(self._block, names)):
            if not parts:
                word = passage.text.partition(" ")[0]
                missing -= self._first[word] - self._vocabulary.cost[word]
            if missing < passage.tokens:
                words, missing = self._cut(passage, missing, random.Random(f"end {self._seed} {tokens}"))
                parts += words
                break
            parts.append(passage.text)
            missing -= passage.tokens
        return (" ".join(parts), tokens - missing) if parts else (self._shortest, self.least)

    def _block(self, name: str) -> list[_Passage]:
        draw = random.Random(f"{name} {self._seed}")
        first, *rest = draw.choices(self._passages, k=BLOCK_TOKENS // PASSAGE_TOKENS)
        return [first.shuffled(draw), *rest]

    def _cut(self, passage: _Passage, tokens: int, draw: random.Random) -> tuple[list[str], int]:
        """The passage's first words, up to `missing` tokens, other words where its own do not fit; and how many are missing."""
        cost, words = self._vocabulary.cost, passage.text.split(" ")
        # 1 for a tokenizer. Estimates are rounded per word.
        scale = passage.tokens / sum(map(cost.__getitem__, words))
        used = [scale * so_far for so_far in accumulate(map(cost.__getitem__, words))]
        kept = bisect_right(used, tokens)
        missing = tokens - (round(used[kept - 1]) if kept else 0)
        others: list[str] = []
        if missing >= min(cost.values()):
            self._vocabulary.correct(others, missing, draw)
        return words[:kept] + others, missing - sum(map(cost.__getitem__, others))
