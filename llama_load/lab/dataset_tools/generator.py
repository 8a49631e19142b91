"""Generated data sets: readable nonsense in English and Chinese, for trials without a data set."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.sharegpt import MIN_TOKENS
from llama_load.servers.counting import CHARS_PER_TOKEN, DENSE_TOKENS_PER_CHAR

# Spread of the lengths: at 0.7, nine texts in ten have between a quarter and two and a half times
# the mean.
SIGMA = 0.7
# One conversation in this many is in Chinese.
CHINESE_EVERY = 3


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to generate.

    A turn is a question and its answer. The lengths are means, in estimated tokens.
    """

    conversations: int = 200
    turns: int = 1
    input_len: int = 200
    output_len: int = 200
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Language:
    chars_per_token: float
    space: str
    full_stop: str
    questions: tuple[str, ...]
    parts: tuple[tuple[str, ...], ...]  # a sentence has one of each


_ENGLISH = _Language(
    CHARS_PER_TOKEN,
    " ",
    ".",
    (
        "What follows from this?",
        "Explain this to a child.",
        "Is that so?",
        "Please go on with this story.",
        "How would you say it?",
    ),
    (
        (
            "Yesterday",
            "Once a week",
            "Without a word",
            "Near the end of winter",
            "By mistake",
            "As the manual says,",
            "Every night",
        ),
        (
            "the lighthouse keeper",
            "a patient librarian",
            "my old bicycle",
            "the night train",
            "an honest robot",
            "the choir of frogs",
        ),
        (
            "repairs",
            "paints",
            "borrows",
            "counts",
            "forgets",
            "explains",
            "sells",
            "hides",
            "weighs",
            "translates",
        ),
        (
            "seven umbrellas",
            "a green telescope",
            "the longest river",
            "a bowl of soup",
            "two clouds",
            "the town's only clock",
        ),
        (
            "behind the station",
            "under the bridge",
            "for the mayor",
            "with great care",
            "in the rain",
            "until the bell rings",
        ),
    ),
)
_CHINESE = _Language(
    1 / DENSE_TOKENS_PER_CHAR,
    "",
    "。",
    (
        "这说明了什么？",
        "请用简单的话解释一下。",
        "真的是这样吗？",
        "请把这个故事讲下去。",
        "你会怎么说？",
    ),
    (
        ("昨天", "每周一次", "冬天快结束的时候", "一不小心", "按照说明书", "每天晚上"),
        (
            "灯塔看守人",
            "耐心的图书管理员",
            "我的旧自行车",
            "夜班火车",
            "诚实的机器人",
            "青蛙合唱团",
        ),
        ("在车站后面", "在桥下", "为市长", "小心地", "在雨中", "悄悄地"),
        ("修好了", "画了", "借走了", "数了数", "忘记了", "卖掉了", "称了称", "翻译了"),
        ("七把雨伞", "一台绿色望远镜", "最长的河", "一碗汤", "两朵云", "镇上唯一的钟"),
    ),
)


def make(file: Path, recipe: Recipe) -> int:
    """Write such a data set and return its number of entries.

    The layout is ShareGPT's, or custom lines if the file ends in .jsonl. UsageError: the file
    exists or cannot be written, or a length or number is invalid.
    """
    is_lines = file.suffix.lower() == ".jsonl"
    if not is_lines and file.suffix.lower() != ".json":
        raise UsageError(
            f"{file} must end in .json (ShareGPT's layout) or .jsonl (one prompt per line)"
        )
    if recipe.conversations < 1 or recipe.turns < 1:
        raise UsageError("--conversations and --turns must be 1 or more")
    if is_lines and recipe.turns > 1:
        raise UsageError(
            f"a .jsonl file has one prompt per line; conversations of {recipe.turns} turns "
            "need a .json file"
        )
    if min(recipe.input_len, recipe.output_len) < MIN_TOKENS:
        raise UsageError(
            f"--input-len and --output-len must be {MIN_TOKENS} tokens or more: "
            "shorter texts are left out of a run"
        )

    text = _custom_lines(recipe) if is_lines else _share_gpt(recipe)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UsageError(
            f"{file} exists and is not overwritten; choose another name"
        ) from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None

    return recipe.conversations


def _custom_lines(recipe: Recipe) -> str:
    """One prompt per line."""
    lines = []
    for draw, language in _draws(recipe):
        line = {
            "prompt": _question(draw, language, recipe.input_len),
            "output_tokens": _length(draw, recipe.output_len),
        }
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines)


def _share_gpt(recipe: Recipe) -> str:
    """ShareGPT's layout: a list of conversations."""
    conversations = list(_generated_conversations(recipe))
    return json.dumps(conversations, ensure_ascii=False, indent=1) + "\n"


def _generated_conversations(recipe: Recipe) -> Iterator[dict[str, Any]]:
    for number, (draw, language) in enumerate(_draws(recipe), 1):
        turns = []

        for _ in range(recipe.turns):
            question = _question(draw, language, recipe.input_len)
            answer = _sentences(draw, language, _length(draw, recipe.output_len))
            turns.append({"from": "human", "value": question})
            turns.append({"from": "gpt", "value": answer})

        yield {"id": f"made-up-{number}", "conversations": turns}


def _draws(recipe: Recipe) -> Iterator[tuple[random.Random, _Language]]:
    """The random generator of all conversations, and the language of each."""
    draw = random.Random(recipe.seed)
    for number in range(recipe.conversations):
        is_chinese = number % CHINESE_EVERY == CHINESE_EVERY - 1
        yield draw, _CHINESE if is_chinese else _ENGLISH


def _length(draw: random.Random, mean: int) -> int:
    """A log-normal length with this mean: mu = ln(mean) - sigma²/2."""
    mu = math.log(mean) - SIGMA**2 / 2
    length = draw.lognormvariate(mu, SIGMA)
    return max(MIN_TOKENS, round(length))


def _question(draw: random.Random, language: _Language, mean: int) -> str:
    """A story and a question about it, if both fit."""
    tokens = _length(draw, mean)
    question = language.space + draw.choice(language.questions)

    left = tokens - round(len(question) / language.chars_per_token)
    if left < MIN_TOKENS:
        return _sentences(draw, language, tokens)
    return _sentences(draw, language, left) + question


def _sentences(draw: random.Random, language: _Language, tokens: int) -> str:
    """Sentences with about this many estimated tokens; the last one is cut at the limit."""
    most_chars = (tokens - 1) * language.chars_per_token

    text = ""
    while len(text) < most_chars:
        if text:
            text += language.space
        words = [draw.choice(part) for part in language.parts]
        text += language.space.join(words) + language.full_stop

    end = max(1, round(most_chars) - len(language.full_stop))
    if language.space:
        # English is cut after the word at the limit: shorter texts would fail vLLM's rule.
        end = text.find(language.space, end)

    cut = text if end < 0 else text[:end]
    return cut.rstrip(" ,.。") + language.full_stop
