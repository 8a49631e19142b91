"""llama-server's /slots: how many work, and on how many tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from llama_load.telemetry.page_source import PageSource
from llama_load.telemetry.source import SourceError, Value

MOST_SLOTS = 10_000
# Of so many slots there is a series each.
MOST_SINGLE_SLOTS = 64
MOST_DIGITS = 10


class Slots(PageSource):
    """One server's slots."""

    def sample(self) -> Iterator[Value]:
        """The number of slots, of those that work, and of their requests' tokens so far; and
        what single slots have."""
        try:
            slots = json.loads(self.page())
        except (ValueError, RecursionError):
            slots = None
        if not isinstance(slots, list):
            raise SourceError("sends no list of slots")

        slots = [slot for slot in slots if isinstance(slot, dict)][:MOST_SLOTS]
        working = [slot for slot in slots if slot.get("is_processing") is True]
        prompt_tokens = 0.0
        output_tokens = 0.0
        for slot in working:
            prompt_tokens += _count(slot.get("n_prompt_tokens"))
            output_tokens += _output_tokens(slot)

        yield Value("slots", float(len(slots)))
        yield Value("slots_processing", float(len(working)))
        yield Value("slots_prompt_tokens", prompt_tokens)
        yield Value("slots_output_tokens", output_tokens)
        for slot in slots[:MOST_SINGLE_SLOTS]:
            yield from _single(slot)


def _single(slot: dict[str, Any]) -> Iterator[Value]:
    """The task of a slot, which is its last one while it is idle; the tokens of its prompt as far
    as it is processed, 0 while it is idle; those that it holds, answer included."""
    number = slot.get("id")
    if not isinstance(number, int):
        return
    labels = (("slot", str(number)[:MOST_DIGITS]),)
    prompt = _count(slot.get("n_prompt_tokens_processed"))
    prompt += _count(slot.get("n_prompt_tokens_cache"))
    yield Value("slot_task", _count(slot.get("id_task")), labels)
    yield Value("slot_prompt_tokens", prompt, labels)
    yield Value("slot_held_tokens", _count(slot.get("n_prompt_tokens")), labels)


def _output_tokens(slot: dict[str, Any]) -> float:
    """Output tokens so far; newer servers have a list of one."""
    token = slot.get("next_token")
    if isinstance(token, list) and token:
        token = token[0]
    if not isinstance(token, dict):
        return 0.0
    return _count(token.get("n_decoded"))


def _count(value: Any) -> float:
    return float(value) if isinstance(value, int) and 0 <= value < 2**53 else 0.0
