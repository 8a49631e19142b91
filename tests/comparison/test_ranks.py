"""Nothing ranks without `comparison.reasons`: every module that marks a best figure, or judges
differences, asks for the reasons."""

from __future__ import annotations

import ast
from pathlib import Path

import llama_load

PACKAGE = Path(llama_load.__file__).parent
# A module that ranks imports one of these: the reasons themselves, or what is built on them.
SOURCES = {
    "llama_load.comparison.reasons",
    "llama_load.comparison.compare",
    "llama_load.lab.sweep.ranking",
}
# Modules that mark or judge, but rank no set-ups.
OTHERS = {
    "reports/check_lines.py": "statements in bold",
    "reports/stage_table.py": "the loads of one run, of which none is a set-up",
    "lab/tune/race.py": "takes the reasons as a function, which run_tune gives it",
    "comparison/change_intervals.py": "the arithmetic alone",
}


def ranks(tree: ast.Module) -> bool:
    """Whether a cell is marked as the best, or p values of differences are judged together."""
    for node in ast.walk(tree):
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
            and "llama_load.tables" in imported(tree)
        ):
            marks.append(node.args[3])
        if name == "holm" or any(
            not (isinstance(mark, ast.Constant) and mark.value is False)
            for mark in marks
        ):
            return True
    return False


def imported(tree: ast.Module) -> set[str]:
    return {
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
    }


def test_nothing_ranks_without_the_reasons() -> None:
    """By the syntax of every module. A planted module without the import is found."""
    found = set()
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if ranks(tree):
            name = str(file.relative_to(PACKAGE))
            found.add(name)
            assert name in OTHERS or imported(tree) & SOURCES, (
                f"{name} ranks, but asks for no reasons against it"
            )
    assert found >= {
        "lab/sweep/effects.py",
        "lab/sweep/column_cells.py",
        "lab/tune/run_tune.py",
        *OTHERS,
    } - {"comparison/change_intervals.py"}
    planted = ast.parse("cells = [Cell(text, 1.0, is_best=value == top)]")
    assert ranks(planted) and not imported(planted) & SOURCES
    assert ranks(
        ast.parse("from llama_load.tables import Cell; Cell(a, b, c, place in best)")
    ) and not ranks(ast.parse("replace(cell, is_best=False)"))
