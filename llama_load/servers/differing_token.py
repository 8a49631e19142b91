"""The first token in which a prompt is no longer the one before it, by the chat template and the
tokenizer of the server that answers both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_load.ground.units import quantity
from llama_load.servers.apis.changed_prompts import common_length, excerpt
from llama_load.servers.block_tokens import BAILIAN_BLOCK
from llama_load.servers.token_blocks import ImageToken, ServerTokens


@dataclass(frozen=True, slots=True)
class TokenPlace:
    """Where two prompts begin to differ: `token`, from 0, is the first that differs, or one from
    there to `last`, the last one of its block, is. `images`: stand before it besides; their tokens
    are not counted."""

    token: int
    last: int | None = None
    images: int = 0

    def __str__(self) -> str:
        if self.last is not None:
            return f"in tokens {self.token} to {self.last}"
        if self.images:
            return f"after {self.same}"
        return f"at token {self.token}"

    @property
    def same(self) -> str:
        """How many tokens both prompts begin with: "6 tokens and 1 image", "16 to 31 tokens"."""
        text = quantity(self.token, "token")
        if self.last is not None:
            text = f"{self.token} to {quantity(self.last, 'token')}"
        if self.images:
            text += f" and {quantity(self.images, 'image')}"
        return text


@dataclass(frozen=True, slots=True)
class DifferingToken:
    """`place`: of the first token that differs; None: this prompt begins with all of the one
    before. `count`: the tokens of this one, None if it has images.

    `before` and `now`: the prompts around the place in which they differ, as the chat template
    renders them; None where the server has tokens alone.
    """

    place: TokenPlace | None
    count: int | None
    before: str | None = None
    now: str | None = None


def differing_token(
    server: ServerTokens, before: Mapping[str, Any], now: Mapping[str, Any]
) -> DifferingToken | None:
    """Of two prompts, in the layout of the chat API or of completions. None: the server cannot
    tell."""
    first = server.prompt(before)
    second = server.prompt(now)
    if first is None or second is None:
        return None

    place = _place_of(first.tokens, second.tokens)
    count = None
    if not _images_of(second.tokens):
        count = len(second.tokens)
    if first.text is None or second.text is None:
        return DifferingToken(place, count)

    common = common_length(first.text, second.text)
    before_text = excerpt(first.text, common)
    now_text = excerpt(second.text, common)
    return DifferingToken(place, count, before_text, now_text)


def differing_block(one: Sequence[int], other: Sequence[int]) -> TokenPlace | None:
    """The first block of a prompt that another one does not have in its place, by the numbers of
    their blocks. None: all are the same; a last one that is not whole has no number."""
    common = _common_count(one, other)
    if common == len(one):
        return None
    begin = common * BAILIAN_BLOCK
    return TokenPlace(begin, begin + BAILIAN_BLOCK - 1)


def _place_of(one: Sequence[Any], other: Sequence[Any]) -> TokenPlace | None:
    common = _common_count(one, other)
    if common == len(one):
        return None
    images = _images_of(one[:common])
    return TokenPlace(common - images, images=images)


def _images_of(tokens: Sequence[Any]) -> int:
    return sum(isinstance(token, ImageToken) for token in tokens)


def _common_count(one: Sequence[Any], other: Sequence[Any]) -> int:
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        count += 1
    return count
