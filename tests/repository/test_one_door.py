"""What bounds a stranger's work, size and reach stands in one place each: nothing else in the package
does the same by itself."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "llama_load"
# What is forbidden: a pattern, where it is allowed, and what to use instead.
ONE_DOOR: dict[str, tuple[str, frozenset[str], str]] = {
    "heads of requests": (
        r"^\s*(?:from|import) (?:http\.cookies|http\.cookiejar|cgi)\b",
        frozenset(),
        "llama_load.wire.request_heads: those take quadratic time, or have no bound",
    ),
    "patterns of texts": (
        r"\bre\.escape\(|\bpattern_of\(",
        frozenset(
            (
                "command_secrets.py",  # a word of our own command line
                "foreign_text.py",  # secrets of our own environment
                "lab/sweep/locustfile_flags.py",  # a flag of a plan that was asked about
                "record/request_gate.py",  # the recorder's own key
                "secret_forms.py",
                "targets/work_counts.py",  # names of counters in our code
            )
        ),
        "str.replace with llama_load.secret_forms.literal_forms: no pattern is made of the bytes "
        "of strangers",
    ),
}


@cache
def sources() -> dict[str, str]:
    """The modules of the package, by their path."""
    return {
        str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@pytest.mark.parametrize("kind", ONE_DOOR)
def test_there_is_one_door(kind: str) -> None:
    forbidden, allowed, instead = ONE_DOOR[kind]
    pattern = re.compile(forbidden, re.MULTILINE)
    found = {path for path, text in sources().items() if pattern.search(text)}
    assert found == allowed, f"use {instead}"
