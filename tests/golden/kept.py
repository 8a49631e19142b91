"""golden.json: the digests of all outputs, by run and output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden.json"
Digests = Mapping[str, Mapping[str, str]]


def read_golden() -> dict[str, dict[str, str]]:
    """What is kept; nothing before the first time."""
    if not GOLDEN.exists():
        return {}
    kept: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return kept


def write_golden(digests: Digests) -> None:
    """Keep these."""
    GOLDEN.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
