"""The headings and labels of report.md and report.html in other languages: chinese.json, by their
English.

Sentences of the verdict, names of metrics in the block and what people wrote themselves stay as
they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from llama_load.ground.languages import Translator

CHINESE_WORDS = Path(__file__).with_name("chinese.json")


def translator(language: str) -> Translator:
    """Of headings in this language, without those of topics."""
    return Translator(language, chinese_words())


@cache
def chinese_words() -> Mapping[str, str]:
    """The words of the reports; topics have their own."""
    words: dict[str, str] = json.loads(CHINESE_WORDS.read_text(encoding="utf-8"))
    return words
