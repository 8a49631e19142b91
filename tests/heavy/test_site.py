"""The site is built with strict links."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.make_site import collect
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.heavy


@pytest.mark.real
def test_no_link_and_no_anchor_leads_nowhere(tmp_path: Path) -> None:
    """Catches an anchor that MkDocs makes otherwise than GitHub."""
    collect(tmp_path / "build" / "pages")
    (tmp_path / "scripts").mkdir()
    shutil.copy(REPOSITORY / "scripts" / "mkdocs.yaml", tmp_path / "scripts")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", "scripts/mkdocs.yaml"],
        cwd=tmp_path,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "build" / "site"
    assert "llama-load" in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "llms-full.txt").stat().st_size > 100_000
