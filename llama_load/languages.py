"""The languages of headings in reports."""

from __future__ import annotations

ENGLISH, CHINESE = LANGUAGES = ("en", "zh")
