"""Each limit in SECURITY.md names a test that there is."""

from __future__ import annotations

import re

from tests.conftest import REPOSITORY

_TEST = re.compile(r"`(test_\w+)`")


def test_each_limit_names_its_test() -> None:
    page = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
    table = page.partition("## Limits")[2].partition("\n\nKnown limits")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    sources = "\n".join(file.read_text(encoding="utf-8") for file in (REPOSITORY / "tests").rglob("test_*.py"))
    known = set(re.findall(r"^(?:async )?def (test_\w+)", sources, re.MULTILINE))
    assert len(rows) > 15
    for row in rows:
        named = _TEST.findall(row)
        assert named, f"this limit names no test: {row}"
        assert set(named) <= known, f"there is no such test: {row}"
