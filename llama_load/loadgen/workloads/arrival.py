"""A request of a trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """A recorded request: its arrival in s, and its lengths in tokens if known.

    `hash_ids` name the blocks of its prompt (512 tokens each in Mooncake's traces): requests with
    the same first ids begin with the same text.
    """

    at_s: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    hash_ids: tuple[int, ...] = ()
