"""How tests are written: they wait for a condition (`tests.waiting`) or say why they sleep; heavy
ones say what they are for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import REPOSITORY

TESTS = REPOSITORY / "tests"
VIRTUAL = ("simulation", "virtual_run.py")  # their time passes by computing
CATCHES = "Catches"
HEAVY = "pytest.mark.heavy"


def unexplained_sleeps(file: Path) -> Iterator[str]:
    """Calls of sleep without a comment in their line."""
    source = file.read_text("utf-8")
    if "sleep(" not in source:
        return
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "sleep" and "#" not in lines[node.end_lineno - 1]:
            yield f"{file.relative_to(REPOSITORY)}:{node.lineno}"


def test_a_sleep_says_why_no_condition_can_be_waited_for() -> None:
    found = [
        place
        for file in sorted(TESTS.rglob("*.py"))
        if file.relative_to(TESTS).parts[0] not in VIRTUAL
        for place in unexplained_sleeps(file)
    ]
    assert not found


def heavy_tests(file: Path) -> Iterator[ast.FunctionDef]:
    """Those of a file that never run in `make test`; not those with a quick case, too."""
    source = file.read_text("utf-8")
    are_all = file.parent.name == "heavy"
    if not are_all and HEAVY not in source:
        return
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = {ast.unparse(mark) for mark in node.decorator_list}
            if are_all or HEAVY in marks:
                yield node


def test_a_heavy_test_says_what_no_quick_one_catches() -> None:
    silent = [
        f"{file.name}::{test.name}"
        for file in sorted(TESTS.rglob("test_*.py"))
        for test in heavy_tests(file)
        if CATCHES not in (ast.get_docstring(test) or "")
    ]
    assert not silent
