"""Names that a search finds."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "llama_load"
# Of a program: what `python -m` calls.
ENTRY = "main"
ONE_WORD = re.compile(r"^(?:async )?def (_?[a-z0-9]+)\(", re.MULTILINE)
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def test_a_function_name_of_one_word_is_not_shared_by_three_modules() -> None:
    """What `_rows` or `_text` are of is in their names, so that a search finds the right one."""
    modules = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in set(ONE_WORD.findall(path.read_text(encoding="utf-8"))):
            modules[name].append(str(path.relative_to(PACKAGE)))

    shared = {name: paths for name, paths in modules.items() if len(paths) > 2}
    assert list(shared) == [ENTRY], shared


def test_names_of_tests_end_at_70_characters() -> None:
    """So that a line of a report names the file and the test; what else is claimed stands in the
    docstring."""
    too_long = []
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        for name in TEST.findall(path.read_text(encoding="utf-8")):
            if len(name) > 70:
                too_long.append(f"{path.relative_to(REPOSITORY)}::{name}")

    assert too_long == []
