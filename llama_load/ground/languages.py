"""The languages of headings in reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping

ENGLISH = "en"
CHINESE = "zh"
LANGUAGES = (ENGLISH, CHINESE)

# A heading in English to the same in the reader's language.
Translate = Callable[[str], str]


class Translator:
    """Headings in one language by their English. What `chinese` lacks stays English."""

    def __init__(self, language: str, chinese: Mapping[str, str]) -> None:
        self._words = chinese if language == CHINESE else {}
        self._language = language

    def __call__(self, text: str) -> str:
        """The heading in this language."""
        return self._words.get(text, text)

    def with_words(self, chinese: Mapping[str, str]) -> Translator:
        """One that prefers these: those of a topic, which change no heading outside it."""
        return Translator(self._language, {**self._words, **chinese})


IN_ENGLISH = Translator(ENGLISH, {})
