"""The pages of the site are those of the repository, and their links lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import make_site
from scripts.make_site import FULL, collect, full_text, site_files
from tests.conftest import REPOSITORY


def test_every_page_is_on_the_site() -> None:
    """What the README leads to, and all of docs/."""
    files = set(site_files())
    pages = {
        page.relative_to(REPOSITORY).as_posix()
        for page in (REPOSITORY / "docs").rglob("*.md")
    }
    assert pages <= files
    assert {
        "README.md",
        "docs/SECURITY.md",
        "docker/README.md",
        "docs/llms.txt",
    } <= files


def test_links_to_folders_lead_to_pages(tmp_path: Path) -> None:
    site = tmp_path / "site"
    collect(site)
    index = (site / "docs" / "index.md").read_text(encoding="utf-8")
    assert "](decisions/README.md)" in index
    listed = (site / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert "(009-a-house-of-rooms.md)" in listed
    assert (site / FULL).read_text(encoding="utf-8") == full_text()


def test_llms_full_has_the_pages_of_llms() -> None:
    text = full_text()
    for page in ("docs/verdict.md", "docs/guide.md", "AGENTS.md"):
        assert f"\nFile: {page}\n" in text
        assert (REPOSITORY / page).read_text(encoding="utf-8") in text


def test_a_link_that_leads_nowhere_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_site, "REPOSITORY", tmp_path)
    (tmp_path / "README.md").write_text("[a page](docs/gone.md)")
    with pytest.raises(SystemExit, match=r"README\.md links to docs/gone\.md"):
        list(make_site.targets_of("README.md", (tmp_path / "README.md").read_text()))
