"""Collects the pages of the site: `make site` builds it from them with mkdocs.

    python -m scripts.make_site FOLDER

Pages of the repository link to each other, to files and to folders. The site has all of them at
the places that they have in the repository, so that only links to folders are rewritten. It also
has llms.txt, and llms-full.txt: every page of llms.txt in one file, for agents that read all at
once.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

REPOSITORY = Path(__file__).resolve().parent.parent
HOME = "README.md"
INDEX = "docs/llms.txt"
FULL = "llms-full.txt"
# A link of Markdown with its target, without an anchor.
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# What stands in generated lists of folders.
MOST_FILES = 100


def targets_of(page: str, text: str) -> Iterator[str]:
    """The files and folders that a page links to, by their paths in the repository."""
    folder = PurePosixPath(page).parent
    for target in LINK.findall(CODE.sub("", text)):
        path = (REPOSITORY / folder / target).resolve()
        if not path.is_relative_to(REPOSITORY):
            raise SystemExit(f"{page} links to {target}, which is outside")
        if not path.exists():
            raise SystemExit(f"{page} links to {target}, which is not there")
        yield path.relative_to(REPOSITORY).as_posix()


def site_files() -> list[str]:
    """All that can be reached from the README, pages and other files, and the other readmes of
    folders that are linked."""
    waiting = [HOME, INDEX, "docs/index.md"]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        path = REPOSITORY / name
        if name in found:
            continue

        found.add(name)
        if path.is_dir():
            waiting += [f"{name}/{page.name}" for page in path.glob("*.md")]
        elif path.suffix in (".md", ".txt"):
            waiting += targets_of(name, path.read_text(encoding="utf-8"))

    return sorted(found)


def folder_page(name: str) -> str:
    """A list of the files of a folder that has no README."""
    lines = [f"# {name}", ""]
    for path in sorted((REPOSITORY / name).iterdir())[:MOST_FILES]:
        if path.suffix == ".md":
            lines.append(f"- [{path.stem}]({path.name})")
        elif path.is_file():
            lines.append(f"- `{path.name}`")

    return "\n".join(lines) + "\n"


def full_text() -> str:
    """Every page of llms.txt, one after the other, each under its path."""
    index = (REPOSITORY / INDEX).read_text(encoding="utf-8")
    parts = [index]
    for name in dict.fromkeys(targets_of(INDEX, index)):
        path = REPOSITORY / name
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            parts.append(f"\n---\n\nFile: {name}\n\n{text}")

    return "".join(parts)


def collect(folder: Path) -> None:
    """Copy the files of the site into this folder, which must not exist."""
    names = site_files()
    folders = [name for name in names if (REPOSITORY / name).is_dir()]
    for name in names:
        source = REPOSITORY / name
        if not source.is_dir():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    for name in folders:
        if not (REPOSITORY / name / HOME).exists():
            page = folder / name / HOME
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(folder_page(name), encoding="utf-8")

    for page in folder.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(_with_folder_pages(text), encoding="utf-8")

    # Agents look for it at the root of the site.
    index = (REPOSITORY / INDEX).read_text(encoding="utf-8")
    (folder / Path(INDEX).name).write_text(_from_root(index), encoding="utf-8")
    (folder / FULL).write_text(full_text(), encoding="utf-8")


def _from_root(index: str) -> str:
    """The index with its links as from the root of the site."""

    def rooted(link: re.Match[str]) -> str:
        path = posixpath.join(posixpath.dirname(INDEX), link[1])
        return f"]({posixpath.normpath(path)}"

    return LINK.sub(rooted, index)


def _with_folder_pages(text: str) -> str:
    """Links to folders lead to their pages."""
    return re.sub(r"(\]\((?!https?:)[^)#\s]*/)\)", rf"\1{HOME})", text)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    collect(target)
