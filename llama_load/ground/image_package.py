"""The extra `images`: whether Pillow is installed."""

from __future__ import annotations

from importlib.util import find_spec

from llama_load.ground.errors import UsageError


def has_pillow() -> bool:
    """Whether images can be read and drawn."""
    return find_spec("PIL") is not None


def need_pillow(what: str) -> None:
    """UsageError: it is missing. `what`: the singular subject of the sentence."""
    if not has_pillow():
        raise UsageError(f"{what} needs the package pillow: pip install pillow")
