"""How many tokens have a hash together, in traces of Bailian and in recordings."""

from __future__ import annotations

BAILIAN_BLOCK = 16  # tokens
