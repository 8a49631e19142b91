"""How much context a llama.cpp server has: its slots, what each can hold, and whether they share
one KV cache.

Without --kv-unified each slot has a part of -c of its own. With it (llama-server without -np
implies it) each slot may fill the whole of -c, and all slots together, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.ground.units import quantity
from llama_load.run_folder.observed.server_description import ServerDescription

# llama.cpp rounds a slot's context up to a multiple of this.
CONTEXT_STEP = 256


@dataclass(frozen=True, slots=True)
class SlotContext:
    """Of one server; None where unknown. `per_slot`: tokens that a slot can hold; `is_shared`: all
    slots share one pool of them."""

    slots: int | None = None
    per_slot: int | None = None
    is_shared: bool | None = None

    @property
    def shared_pool(self) -> int | None:
        """The tokens that all slots can hold together, where they share them; None where they do
        not, or that is unknown."""
        return self.per_slot if self.is_shared else None

    def enough(self, tokens: int) -> str:
        """The -c that lets one request have so many tokens: `-c 5376 or more (shared by 4
        slots)`."""
        steps = -(-tokens // CONTEXT_STEP)
        size = steps * CONTEXT_STEP
        slots = quantity(self.slots or 1, "slot")
        if self.slots in (None, 1):
            return f"-c {size} or more"
        if self.is_shared:
            return f"-c {size} or more ({slots} share it)"
        of_all = size * (self.slots or 1)
        divided = f"-c {of_all} or more ({slots} x {size})"
        if self.is_shared is False:
            return divided
        return f"{divided}; with --kv-unified {size} is enough"


def slot_context_of(server: ServerDescription) -> SlotContext:
    """By the server's log, and what it reports."""
    per_slot = server.context if server.kv_unified else server.context_per_slot
    return SlotContext(server.slots, per_slot, server.kv_unified)
