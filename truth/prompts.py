"""The file of prompts of a case, and its digests."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path

from truth.cases import Load
from truth.tokenizer import WORDS


def prompts_of(load: Load) -> list[str]:
    """The texts, all different; each has as many tokens as the load asks for."""
    draw = random.Random(load.requests)
    texts: list[str] = []
    for _ in range(load.requests):
        words = [f"w{draw.randrange(WORDS)}" for _ in range(load.prompt_tokens)]
        texts.append(" ".join(words))
    return texts


def write_prompts(path: Path, load: Load) -> Path:
    """An object per line, with the text as `prompt`. Returns `path`."""
    lines = [json.dumps({"prompt": text}) for text in prompts_of(load)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read_prompts(path: Path) -> list[str]:
    """The texts of such a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["prompt"] for line in lines]


def digest(texts: Sequence[str]) -> str:
    """SHA-256 of all texts of a prompt, joined by newlines, without blanks at both ends, which chat
    templates of clients add."""
    whole = "\n".join(texts).strip()
    return hashlib.sha256(whole.encode()).hexdigest()
