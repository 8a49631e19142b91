"""The headings and labels of report.md and report.html in other languages: one table, English to Chinese.

Sentences of the verdict, names of metrics in the block and what people wrote themselves stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

ENGLISH, CHINESE = LANGUAGES = ("en", "zh")

Translate = Callable[[str], str]

ZH: dict[str, str] = {}


def translator(language: str) -> Translate:
    """A function from an English heading to the same in this language; what the table lacks stays English."""
    return (lambda text: ZH.get(text, text)) if language == CHINESE else (lambda text: text)
