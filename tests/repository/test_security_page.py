"""Each promise in SECURITY.md names a test that there is."""

from __future__ import annotations

import re

import pytest

from tests.conftest import REPOSITORY
from tests.repository.source import functions

TESTS = REPOSITORY / "tests"
PAGE = (REPOSITORY / "docs" / "SECURITY.md").read_text(encoding="utf-8")
# Limits to a place or a form.
NO_NUMBER = [
    "field of a head that we send",
    "file named in a data set or in its README",
    "file of a run folder or of a sweep's",
]
# `test_name`, `tests/room/test_file.py` or `tests/room/test_file.py::test_name`
_TEST = re.compile(r"`(?:(tests/[\w/]+\.py)(?:::)?)?(test_\w+)?`")


def named_in(text: str) -> list[tuple[str, str]]:
    """The tests that a text names: file and function, one of which may be empty."""
    return [(file, name) for file, name in _TEST.findall(text) if file or name]


def section(title: str) -> str:
    _, found, text = PAGE.partition(f"\n## {title}\n")
    assert found, title
    return text.partition("\n## ")[0]


def test_every_test_that_the_page_names_exists() -> None:
    files = {str(file.relative_to(REPOSITORY)) for file in TESTS.rglob("test_*.py")}
    defined = re.compile(r"def (test_\w+)")
    everywhere: set[str] = set()
    for file in files:
        everywhere |= {*defined.findall((REPOSITORY / file).read_text("utf-8"))}
    named = named_in(PAGE)
    assert len(named) > 40
    for file, name in named:
        assert not file or file in files, file
        known = functions(REPOSITORY / file) if file else everywhere
        assert not name or name in known, f"{file} {name}"


def test_each_limit_names_its_test() -> None:
    table = section("Limits").partition("\n\nKnown limits")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        assert named_in(row), f"this limit names no test: {row}"


def test_each_limit_is_a_number_or_a_list() -> None:
    """What has no bound in numbers says what is allowed, or what is refused."""
    table = section("Limits").partition("\n\nKnown limits")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    without = [
        row.split("|")[1].strip()
        for row in rows
        if not re.search(r"\d", row.split("|")[2])
    ]
    assert sorted(without) == sorted(NO_NUMBER)


def test_each_promise_about_what_travels_names_its_test() -> None:
    promises = section("What travels where").strip().split("\n- ")
    assert len(promises) > 5
    for promise in promises:
        assert named_in(promise), f"this promise names no test: {promise}"


@pytest.mark.parametrize(
    "title",
    [
        "What is trusted, and what is not",
        "The swarm",
        "The web UI",
        "Dependencies and images",
    ],
)
def test_each_section_of_promises_names_its_tests(title: str) -> None:
    assert named_in(section(title))
