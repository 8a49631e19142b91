"""Nothing ranks without `analysis.comparison.reasons`: every module that marks a best figure, or judges
differences, asks for the reasons."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tests.repository.source import name_in_package, nodes_of, package_files

# A module that ranks imports one of these: the reasons themselves, or what is built on them.
SOURCES = {
    "llama_load.analysis.comparison.reasons",
    "llama_load.analysis.comparison.compare",
    "llama_load.lab.sweep.ranking",
}
# Modules that mark or judge, but rank no set-ups.
OTHERS = {
    "analysis/reports/check_lines.py": "statements in bold",
    "analysis/reports/stage_table.py": "the loads of one run, of which none is a set-up",
    "lab/tune/race.py": "takes the reasons as a function, which run_tune gives it",
    "analysis/comparison/change_intervals.py": "the arithmetic alone",
}


def ranks(nodes: Sequence[ast.AST]) -> bool:
    """Whether a cell is marked as the best, or p values of differences are judged together."""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = (
            node.func.id
            if isinstance(node.func, ast.Name)
            else getattr(node.func, "attr", "")
        )
        marks = [keyword.value for keyword in node.keywords if keyword.arg == "is_best"]
        if (
            name == "Cell"
            and len(node.args) > 3
            and "llama_load.tables" in imported(nodes)
        ):
            marks.append(node.args[3])
        if name == "holm" or any(
            not (isinstance(mark, ast.Constant) and mark.value is False)
            for mark in marks
        ):
            return True
    return False


def imported(nodes: Sequence[ast.AST]) -> set[str]:
    return {
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module
    }


def test_nothing_ranks_without_the_reasons() -> None:
    """By the syntax of every module. A planted module without the import is found."""
    found = set()
    for file in package_files():
        nodes = nodes_of(file)
        if ranks(nodes):
            name = name_in_package(file)
            found.add(name)
            assert name in OTHERS or imported(nodes) & SOURCES, (
                f"{name} ranks, but asks for no reasons against it"
            )
    assert found >= {
        "lab/sweep/effects.py",
        "lab/sweep/column_cells.py",
        "lab/tune/run_tune.py",
        *OTHERS,
    } - {"analysis/comparison/change_intervals.py"}
    planted = nodes_in("cells = [Cell(text, 1.0, is_best=value == top)]")
    assert ranks(planted) and not imported(planted) & SOURCES
    assert ranks(
        nodes_in("from llama_load.tables import Cell; Cell(a, b, c, place in best)")
    )
    assert not ranks(nodes_in("replace(cell, is_best=False)"))


def nodes_in(code: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(code)))
