"""The languages of headings in reports."""

from __future__ import annotations

from collections.abc import Callable

ENGLISH = "en"
CHINESE = "zh"
LANGUAGES = (ENGLISH, CHINESE)

# A heading in English to the same in the reader's language.
Translate = Callable[[str], str]
