"""Lines of a trace without texts, in Qwen-Bailian's layout, which replay.py reads.

`wait_s`, `roles` and `cached_tokens` are ours: the wait since the answer before, the roles of the
added messages, and what the server reported as cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llama_load.ground.units import ns_to_s
from llama_load.record.joined_conversations import Turn
from llama_load.record.read_exchange import SeenRequest
from llama_load.servers.token_blocks import Blocks, PromptTokens

NO_PARENT = -1


# Fields from which tokens of a prompt may be made, besides messages and tools.
BESIDE_MESSAGES = ("tool_choice", "chat_template_kwargs")


def prompt_body(seen: SeenRequest) -> dict[str, Any]:
    """What the tokens of a request are made of."""
    if seen.messages is None:
        return {"prompt": seen.prompt}
    more = {name: seen.body[name] for name in BESIDE_MESSAGES if name in seen.body}
    return {
        "model": seen.model,
        "messages": seen.messages,
        "tools": seen.tools or None,
        **more,
    }


@dataclass(frozen=True, slots=True)
class PromptBlocks:
    """A prompt's length in tokens, the numbers of its blocks, and what the tokens come from."""

    length: int
    numbers: list[int]
    source: str = ""


class DigestLines:
    """Makes the lines. Texts go in and do not come out."""

    def __init__(self, tokens: PromptTokens, origin_ns: int) -> None:
        self._tokens = tokens
        self._blocks = Blocks()
        self.origin_ns = origin_ns

    @property
    def source(self) -> str:
        """What the tokens come from."""
        return self._tokens.source

    def blocks(self, seen: SeenRequest) -> PromptBlocks:
        """Those of a request. The length is what the server reported, else counted."""
        found = None
        if seen.messages is not None or seen.prompt is not None:
            found = self._tokens.tokens(prompt_body(seen), seen.prompt_tokens)
        if found is None:
            return PromptBlocks(seen.prompt_tokens or 0, [])
        length = seen.prompt_tokens
        if length is None:
            length = len(found.tokens)
        return PromptBlocks(length, self._blocks.of(found.tokens), found.source)

    def line(
        self, seen: SeenRequest, turn: Turn | None, blocks: PromptBlocks
    ) -> dict[str, Any]:
        """A request's line; `turn`: its place, of a request with messages."""
        line: dict[str, Any] = {
            "chat_id": seen.number,
            "parent_chat_id": NO_PARENT,
            "timestamp": round(ns_to_s(seen.started_ns - self.origin_ns), 6),
            "input_length": blocks.length,
            "output_length": seen.output_tokens or 0,
            "type": seen.api,
            "turn": 1,
            "hash_ids": blocks.numbers,
        }
        if turn is not None:
            line["turn"] = turn.number
            line["roles"] = turn.roles
            if turn.after is not None:
                line["parent_chat_id"] = turn.after
            if turn.wait_s is not None:
                line["wait_s"] = round(turn.wait_s, 3)
        if seen.cached_tokens is not None:
            line["cached_tokens"] = seen.cached_tokens
        return line
