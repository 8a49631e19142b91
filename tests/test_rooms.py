"""What the import contracts cannot hold: names of modules, and rooms that only some may know."""

from __future__ import annotations

from collections import Counter

from tests.conftest import REPOSITORY


def test_no_two_modules_have_the_same_name() -> None:
    """A name that stands twice is opened twice: once in the wrong room."""
    names = Counter(path.name for path in (REPOSITORY / "llama_load").rglob("*.py") if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []
