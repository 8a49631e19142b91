"""How much of a run's prompts begins as other prompts of the run: what a prefix cache can reuse,
however different the prompts are."""

from __future__ import annotations

from dataclasses import dataclass

# A shorter beginning, of about 128 tokens, is not worth a word of its own: many questions begin
# alike.
LONG_CHARS = 512


@dataclass(slots=True)
class CommonBeginnings:
    """Of the prompts looked at (first turns, each text once), beyond what their workload shares by
    design."""

    prompts: int = 0
    # characters that another prompt begins with as well / all characters, 0 to 1
    ratio: float = 0.0
    # share of the prompts of which more than half is such a beginning
    mostly: float = 0.0
    sharing: int = 0  # prompts with such a beginning
