"""Random words with exact token lengths, like `vllm bench serve --dataset-name random` and its
prefix repetition."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.prompt_plan import (
    ANSWER_TOKENS,
    DataFacts,
    Plan,
    PlanRequest,
)
from llama_load.servers.counting import TokenCounter, counted, settled
from llama_load.servers.prompt import Prompt

# Prompts generated for a run by time; then they repeat.
MOST_TOKENS = 1_000_000
INPUT_TOKENS = 1024
# A prompt is counted and corrected until exact; usually the second count is exact, the last one
# within a token or two.
TRIES = 8
# Short ones get more tries: few texts have their length, and one token too many is half as much
# again.
SHORT_TOKENS = 16
TRIES_OF_SHORT = 40
# Draws of lengths before the shortest is taken.
DRAWS = 1000

WARM_UP = "warm-up"
MEASURED = "measured"

ENGLISH = """
the of and to in is that for it as was with on be by at this have from or one had not but what all
were when we there can an your which their said if do will each about how up out them then she
many some so these would other into has more her two like him see time could no make than first
been its who now people my made over did down only way find use may water long little very after
words called just where most know get through back much before go good new write our used me man
too any day same right look think also around another came come work three must because does part
even place well such here take why things help put years different away again off went old number
great tell men say small every found still between name should home big give air line set own
under read last never us left end along while might next sound below saw something thought both
few those always looked show large often together asked house world going want school important
until form food keep children feet land side without boy once animals life enough took sometimes
four head above kind began almost live page got earth need far hand high year mother light parts
country father let night following picture being study second eyes soon times story boys since
white days ever paper hard near sentence better best across during today others
"""
CHINESE = (
    "今天 我们 时间 问题 可以 因为 什么 学习 世界 朋友 如果 语言 城市 喜欢 已经 服务器"
)
CODE = (
    "x_1 get_item() i+=1 0x7f a[i] self.size /usr/bin <div> snake_case camelCase != ==> {id} "
    "#42 v2.1 foo::bar"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WordFacts(DataFacts):
    """Random words: the range of lengths."""

    input_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    prefix_tokens: int
    prefixes: int


class Synthetic:
    """Random words: prompts of `input_len` tokens (default 1024), answers of `output_len` (default
    128). Counts include the special tokens that the tokenizer adds (BOS), not the chat template.

    With `range_ratio` r, both are uniform in len·(1 - r) to len·(1 + r); `inputs` and `outputs` are
    ranges in place of the flags. `prefix_len` more tokens precede them: one prefix for all prompts,
    or `num_prefixes` different ones in turn. Warm-up prompts use them too.
    """

    name = "synthetic"

    def __init__(
        self,
        inputs: tuple[int, int] | None = None,
        outputs: tuple[int, int] | None = None,
    ) -> None:
        """The fewest and the most tokens of prompts and of answers; None: by the flags."""
        self._inputs = inputs
        self._outputs = outputs

    def plan(self, request: PlanRequest) -> Plan:
        """Generate the prompts of a run. UsageError: no such length fits a slot, a length is below
        1, or no text is that short."""
        traffic = request.traffic
        lengths = _Lengths(
            inputs=self._inputs
            or _range(traffic.input_len or INPUT_TOKENS, traffic.range_ratio),
            outputs=self._outputs
            or _range(request.output_len or ANSWER_TOKENS, traffic.range_ratio),
            prefix=traffic.prefix_len,
        )
        lengths.refuse_if_none_fits(request)
        # the number of requests is unknown: do not count for minutes before the first
        if not request.fill:
            request = replace(
                request,
                num_prompts=min(
                    request.num_prompts, max(1, MOST_TOKENS // sum(lengths.inputs))
                ),
            )
        vocabulary = Vocabulary(request.counter)
        _refuse_too_short(lengths, vocabulary, request.counter)
        texts_so_far: set[str] = set()
        prefixes = [("", vocabulary.overhead)]
        if traffic.prefix_len:
            draws = [
                random.Random(f"prefix {request.content_seed} {number}")
                for number in range(max(1, traffic.num_prefixes))
            ]
            fittings = [
                vocabulary.fitting(
                    draw, traffic.prefix_len, ("", vocabulary.overhead), texts_so_far
                )
                for draw in draws
            ]
            prefixes = [
                (text + " ", tokens)
                for text, tokens in settled(fittings, request.counter)
            ]
        replaced = 0
        targets = []
        outputs = []
        fittings = []
        # Warm-up prompts first: where short texts run out, measured ones are repeated.
        places = [(WARM_UP, place) for place in range(request.warmup)] + [
            (MEASURED, place) for place in range(request.num_prompts)
        ]
        for kind, place in places:
            draw = random.Random(f"{kind} {request.seed} {place}")
            input_tokens, output_tokens, redrawn = lengths.drawn(draw, request)
            replaced += redrawn and kind == MEASURED
            outputs.append(output_tokens)
            targets.append(lengths.prefix + input_tokens)
            words = (
                random.Random(f"{kind} {request.content_seed} {place}")
                if request.renews
                else draw
            )
            fittings.append(
                vocabulary.fitting(
                    words, targets[-1], prefixes[place % len(prefixes)], texts_so_far
                )
            )
        made = settled(fittings, request.counter)
        new = request.renews
        prompts = [
            Prompt(text, tokens, output, is_new=new)
            for (text, tokens), output in zip(made, outputs, strict=True)
        ]
        warmup = prompts[: request.warmup]
        # Where short texts run out, they repeat.
        candidates = [
            prompt
            for prompt, target in zip(
                prompts[request.warmup :], targets[request.warmup :], strict=True
            )
            if target > SHORT_TOKENS or prompt.prompt_tokens == target
        ]
        warming = {prompt.text for prompt in warmup}
        measured = list(
            {
                prompt.text: prompt
                for prompt in candidates
                if prompt.text not in warming
            }.values()
        )
        if not measured:
            raise UsageError(
                "prompts this short are all the same; make them longer with --input-len"
            )
        data = WordFacts(
            path="random words",
            input_tokens=lengths.inputs,
            output_tokens=lengths.outputs,
            prefix_tokens=lengths.prefix,
            prefixes=len(prefixes) if lengths.prefix else 0,
        )
        return request.plan(
            measured, warmup, data, replaced=replaced, shared_tokens=lengths.prefix
        )


def _refuse_too_short(
    lengths: _Lengths, vocabulary: Vocabulary, counter: TokenCounter
) -> None:
    for flag, tokens in (
        ("--prefix-len", lengths.prefix),
        ("--input-len", 0 if lengths.prefix else lengths.inputs[0]),
    ):
        if 0 < tokens <= SHORT_TOKENS and tokens < (
            shortest := vocabulary.shortest(counter)
        ):
            raise UsageError(
                f"{flag} {tokens}: the shortest text has {shortest} tokens with this tokenizer, "
                "whose special tokens (BOS) count; "
                f"give {flag} {shortest} or more"
            )


def _range(tokens: int, ratio: float) -> tuple[int, int]:
    """The range of lengths within a ratio of this one; like vLLM, the lower bound rounded down, the
    upper one up."""
    if not 0 <= ratio < 1:
        raise UsageError(f"--range-ratio must be 0 or more and below 1, got {ratio:g}")
    shortest = max(1, math.floor(tokens * (1 - ratio)))
    longest = math.ceil(tokens * (1 + ratio))
    return shortest, longest


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Ranges of lengths in tokens: of prompts without their prefix, and of answers."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    prefix: int

    def refuse_if_none_fits(self, request: PlanRequest) -> None:
        shortest = self.prefix + self.inputs[0]
        answer = self.outputs[0]
        if request.fits is None or request.fits(shortest, answer):
            return
        room = request.room(answer)
        has = (
            "has too little room"
            if room is None
            else f"has room for {room} prompt tokens with an answer of {answer}"
        )
        raise UsageError(
            f"a slot of the server {has}, and the shortest prompt requested has {shortest}; "
            "lower --input-len, or start the "
            "server with a larger context or fewer slots"
        )

    def drawn(self, draw: random.Random, request: PlanRequest) -> tuple[int, int, bool]:
        """The lengths of a prompt and its answer that fit a slot, and whether longer ones were
        drawn first."""
        for attempt in range(DRAWS):
            input_tokens = draw.randint(*self.inputs)
            output_tokens = draw.randint(*self.outputs)
            if request.fits is None or request.fits(
                self.prefix + input_tokens, output_tokens
            ):
                return input_tokens, output_tokens, attempt > 0
        return self.inputs[0], self.outputs[0], True


class Vocabulary:
    """Words with the tokens that each adds to a text; `overhead` is the number added to any
    text."""

    def __init__(
        self, counter: TokenCounter, words_of: str = f"{ENGLISH} {CHINESE} {CODE}"
    ) -> None:
        """Count each word once."""
        words = list(dict.fromkeys(words_of.split()))
        anchor = words[0]
        (_, alone), *rest = counted(
            [anchor, *(f"{anchor} {word}" for word in words)], counter
        )
        self.cost = {
            word: max(1, tokens - alone)
            for word, (_, tokens) in zip(words, rest, strict=True)
        }
        self.overhead = max(0, alone - self.cost[anchor])
        self._by_cost = sorted(words, key=self.cost.__getitem__)
        self._dearest = self.cost[self._by_cost[-1]]
        self._cheapest = self.cost[self._by_cost[0]]

    def shortest(self, counter: TokenCounter) -> int:
        """The tokens of the shortest text: one word."""
        return min(tokens for _, tokens in counted(self._by_cost, counter))

    def fitting(
        self,
        draw: random.Random,
        target: int,
        prefix: tuple[str, int],
        texts_so_far: set[str],
    ) -> Generator[str, int, tuple[str, int]]:
        """A new text of `target` tokens that begins with the prefix."""
        start, start_tokens = prefix
        words: list[str] = []
        missing = target - start_tokens
        tried = []
        for _ in range(TRIES if target > SHORT_TOKENS else TRIES_OF_SHORT):
            self.correct(words, missing, draw)
            text = start + " ".join(words)
            tokens = yield text
            missing = target - tokens
            taken = text in texts_so_far
            # Keep the best: not longer than the target, new, and nearest to it.
            tried.append((missing < 0, taken, abs(missing), text, tokens))
            if taken:
                words = []
                missing = target - start_tokens
            elif not missing:
                break
        *_, text, tokens = min(tried)
        texts_so_far.add(text)
        return text, tokens

    def correct(self, words: list[str], missing: int, draw: random.Random) -> None:
        """Drop words from the end while there are too many tokens, then add words with the missing
        number in all."""
        while missing < 0 and words:
            missing += self.cost[words.pop()]
        while missing >= self._dearest:
            more = draw.choices(self._by_cost, k=missing // self._dearest)
            missing -= sum(map(self.cost.__getitem__, more))
            words += more
        while missing >= self._cheapest:
            word = draw.choice(self._affordable(missing))
            missing -= self.cost[word]
            words.append(word)
        if not words:
            words.append(draw.choice(self._affordable(self._cheapest)))

    def _affordable(self, tokens: int) -> Sequence[str]:
        return [word for word in self._by_cost if self.cost[word] <= tokens]
