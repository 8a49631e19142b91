"""The first token in which a prompt is no longer the one before it, by the chat template and the
tokenizer of the server that answers both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_load.record.token_blocks import ServerTokens
from llama_load.targets.apis.changed_prompts import common_length, excerpt


@dataclass(frozen=True, slots=True)
class DifferingToken:
    """`index`: from 0, so as many tokens are the same; `earlier` and `count`: the tokens of the
    prompt before and of this one.

    `before` and `now`: the prompts around the place in which they differ, as the chat template
    renders them; None where the server has tokens alone.
    """

    index: int
    earlier: int
    count: int
    before: str | None = None
    now: str | None = None

    @property
    def is_there(self) -> bool:
        """False: this prompt begins with all of the one before."""
        return self.index < self.earlier


def differing_token(
    server: ServerTokens, before: Mapping[str, Any], now: Mapping[str, Any]
) -> DifferingToken | None:
    """Of two prompts, in the layout of the chat API or of completions. None: the server cannot
    tell."""
    first = server.prompt(before)
    second = server.prompt(now)
    if first is None or second is None:
        return None

    index = _common_count(first.tokens, second.tokens)
    earlier = len(first.tokens)
    count = len(second.tokens)
    if first.text is None or second.text is None:
        return DifferingToken(index, earlier, count)

    common = common_length(first.text, second.text)
    before_text = excerpt(first.text, common)
    now_text = excerpt(second.text, common)
    return DifferingToken(index, earlier, count, before_text, now_text)


def _common_count(one: Sequence[Any], other: Sequence[Any]) -> int:
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        count += 1
    return count
