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

from llama_load.languages import CHINESE, Translate
from llama_load.topics import topics

CHINESE_WORDS = Path(__file__).with_name("chinese.json")


def translator(language: str) -> Translate:
    """A function from an English heading to the same in this language.

    What the table lacks stays English.
    """
    if language != CHINESE:
        return str
    words = chinese_words()
    return lambda text: words.get(text, text)


@cache
def chinese_words() -> Mapping[str, str]:
    """The words of the reports and of all topics."""
    words: dict[str, str] = json.loads(CHINESE_WORDS.read_text(encoding="utf-8"))
    for topic in topics():
        words.update(topic.chinese)
    return words
