"""The sources of the package, parsed once for all tests of a process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "llama_load"


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def package_files() -> tuple[Path, ...]:
    """All modules of the package, in the order of their names."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes directly below one; `ast.iter_child_nodes` takes longer."""
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            yield value
        elif isinstance(value, list):
            yield from (part for part in value if isinstance(part, ast.AST))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a file."""
    nodes: list[ast.AST] = [tree_of(path)]
    for node in nodes:  # grows while it is walked over
        nodes.extend(children(node))
    return nodes


def name_in_package(path: Path) -> str:
    """`room/module.py`."""
    return path.relative_to(PACKAGE).as_posix()


@cache
def written(node: ast.AST) -> str:
    """A name with its dots as it is written; what is no such name as the standard library prints
    it."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{written(node.value)}.{node.attr}"
    return ast.unparse(node)


@cache
def functions(path: Path) -> frozenset[str]:
    """The names of all functions and methods of a file."""
    return frozenset(
        node.name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
