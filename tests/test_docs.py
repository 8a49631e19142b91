"""Documentation that quotes the code says what the code says."""

from __future__ import annotations

import os
import subprocess
import sys

from llama_load.options.flags import FLAGS
from scripts.make_docs import flags_page
from tests.conftest import REPOSITORY


def test_the_page_of_flags_is_up_to_date() -> None:
    """After a change of flags: python -m scripts.make_docs"""
    assert (REPOSITORY / "docs" / "flags.md").read_text(encoding="utf-8") == flags_page()


def test_links_in_the_documentation_lead_somewhere() -> None:
    import re

    for page in (REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page}: {link}"


def test_the_flags_are_listed_at_80_columns() -> None:
    environment = os.environ | {"COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", "llama_load.cli", "flags"], capture_output=True, text=True, check=True, env=environment
    )
    assert all(flag.name in done.stdout for flag in FLAGS)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_help_names_every_command() -> None:
    done = subprocess.run([sys.executable, "-m", "llama_load.cli", "--help"], capture_output=True, text=True, check=True)
    for command in ("demo", "serve", "flags", "report"):
        assert command in done.stdout
