"""Kinds of servers are asked, not compared by name."""

from __future__ import annotations

import ast
from pathlib import Path

import llama_load
from llama_load.servers.kinds import KINDS, STARTS

PACKAGE = Path(llama_load.__file__).parent
HOME = PACKAGE / "servers/kinds"
# `openai` is also what other tools call an API.
NAMES = {*KINDS, *STARTS} - {"openai"}
# Names that are not of the server under test, with the reason.
ALLOWED = {
    "analysis/comparison/foreign_results.py": "vllm is a client of vLLM's benchmark there",
    "record/recorded_server.py": "whose log has causes; that of another server has none of its lines",
    "loadgen/options/vllm_command.py": "the program whose commands it reads",
    "loadgen/options/vllm_options.py": "the same",
    "loadgen/options/load_programs.py": "programs of others, named as people type them",
    "loadgen/options/program_command.py": "the same",
    "analysis/comparison/warnings.py": "searched in labels that people or other tools wrote",
}


def names_in(path: Path) -> set[str]:
    """The names of servers that are strings of a module, docstrings aside: `line 'name'`."""
    source = path.read_text(encoding="utf-8")
    if not any(
        f'"{name}"' in source for name in NAMES
    ):  # parsing takes 3 s for the whole package
        return set()
    tree = ast.parse(source)
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }
    strings = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and id(node) not in docstrings
    ]
    return {
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.value!r}"
        for node in strings
        if node.value in NAMES
    }


def test_names_of_servers_stand_in_their_files_only() -> None:
    """Elsewhere such a string is a comparison, or a table by name."""
    outside = [
        path
        for path in PACKAGE.rglob("*.py")
        if not path.is_relative_to(HOME)
        and PACKAGE / "ground/_bundled" not in path.parents
    ]
    allowed = {PACKAGE / name for name in ALLOWED}
    assert not set().union(*(names_in(path) for path in outside if path not in allowed))
    assert all(names_in(path) for path in allowed)  # the others need no reason
