"""The recipes of docs/architecture.md, and how they are followed: in a copy of the package."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "architecture.md"
OF_PACKAGE = r"`((?:llama_load|locustfiles)/[\w/]+\.py)`"
RECIPES = (
    "A new metric",
    "A new topic",
    "A new workload",
    "A new flag",
    "A new server",
    "A new API",
    "A new format of another program",
    "A new check",
    "A new table",
    "A new command",
)
METRIC, TOPIC, WORKLOAD, FLAG, NEW_SERVER, NEW_API, EXPORT, CHECK, TABLE, COMMAND = (
    RECIPES
)


def copy_of_package(folder: Path) -> Path:
    """A copy of the package, in a folder that goes before the installed one on PYTHONPATH. Bytecode
    is copied with its sources: to compile takes 3 s."""
    copy = folder / "copy"
    shutil.copytree(REPOSITORY / "llama_load", copy / "llama_load")
    for folder in ("locustfiles", "datasets"):
        shutil.copytree(REPOSITORY / folder, copy / folder)
    return copy


def files_of_recipe(text: str, folder: Path) -> Path:
    """A copy of the files that a recipe names, with their folders."""
    for name in re.findall(OF_PACKAGE, text):
        source = REPOSITORY / name
        if source.parent.is_dir():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            shutil.copy(source, folder / name)
    return folder


def recipe(title: str) -> str:
    """The section of the page under this title."""
    return (
        PAGE.read_text(encoding="utf-8")
        .partition(f"## {title}\n")[2]
        .partition("\n## ")[0]
    )


def follow(text: str, package: Path) -> list[str]:
    """Apply a recipe: a ```python block is a new file and a ```diff block a change; the file is the
    last one named before it."""
    files = []
    for before, kind, code in re.findall(
        r"((?:(?!```).)*)```(\w+)\n(.*?)```", text, re.DOTALL
    ):
        files += re.findall(OF_PACKAGE, before)[-1:]
        path = package / files[-1]
        if kind == "python":
            path.write_text(code, encoding="utf-8")
        elif kind == "diff":
            old = "".join(
                f"{line[1:]}\n" for line in code.splitlines() if line[0] in " -"
            )
            new = "".join(
                f"{line[1:]}\n" for line in code.splitlines() if line[0] in " +"
            )
            source = path.read_text(encoding="utf-8")
            assert source.count(old) == 1, (
                f"{PAGE.name}: {files[-1]} has no such lines:\n{old}"
            )
            path.write_text(source.replace(old, new), encoding="utf-8")
    return list(dict.fromkeys(files))
