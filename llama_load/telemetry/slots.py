"""llama-server's /slots: how many work, and on how many tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from llama_load.telemetry.page_source import PageSource
from llama_load.telemetry.source import SourceError, Value

MOST_SLOTS = 10_000


class Slots(PageSource):
    """One server's slots."""

    def sample(self) -> Iterator[Value]:
        """The number of slots, of those that work, and of the prompt and output tokens of their present requests."""
        try:
            slots = json.loads(self.page())
        except (ValueError, RecursionError):
            slots = None
        if not isinstance(slots, list):
            raise SourceError("sends no list of slots")
        slots = [slot for slot in slots if isinstance(slot, dict)][:MOST_SLOTS]
        working = [slot for slot in slots if slot.get("is_processing") is True]
        yield Value("slots", float(len(slots)))
        yield Value("slots_processing", float(len(working)))
        yield Value("slots_prompt_tokens", sum(_count(slot.get("n_prompt_tokens")) for slot in working))
        yield Value("slots_output_tokens", sum(_decoded(slot) for slot in working))


def _decoded(slot: dict[str, Any]) -> float:
    """Output tokens so far; newer servers have a list of one."""
    token = slot.get("next_token")
    token = token[0] if isinstance(token, list) and token else token
    return _count(token.get("n_decoded")) if isinstance(token, dict) else 0.0


def _count(value: Any) -> float:
    return float(value) if isinstance(value, int) and 0 <= value < 2**53 else 0.0
