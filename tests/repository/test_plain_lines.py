"""One act a line: how much a line of the package asks of its reader.

Tables between `# fmt: off` and `# fmt: on` are not counted.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.repository.source import PACKAGE, nodes_of

# As the formatter breaks lines, without a comma that keeps arguments one a line.
MOST_NODES_A_LINE = 5.7
# Of a room: one that is calls with many arguments has more than others.
MOST_NODES_A_LINE_OF_A_ROOM = 6.2
MOST_NODES_OF_ANY_LINE = 20
# Per 1,000 lines of code, each.
MOST_COMPREHENSIONS = 20
MOST_CONDITIONAL_EXPRESSIONS = 20
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Density:
    """What was counted in the files of a room."""

    lines: int = 0
    lines_in_functions: int = 0
    nodes_in_functions: int = 0
    comprehensions: int = 0
    conditional_expressions: int = 0
    faults: list[str] = field(default_factory=list)  # file:line: what

    def __add__(self, other: Density) -> Density:
        return Density(
            self.lines + other.lines,
            self.lines_in_functions + other.lines_in_functions,
            self.nodes_in_functions + other.nodes_in_functions,
            self.comprehensions + other.comprehensions,
            self.conditional_expressions + other.conditional_expressions,
            self.faults + other.faults,
        )


def is_parallel(node: ast.AST) -> bool:
    """`a, b = x, y`, but not a swap."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple):
        return False
    return {ast.unparse(name) for name in target.elts} != {
        ast.unparse(value) for value in node.value.elts
    }


def is_nested(node: ast.AST) -> bool:
    """A comprehension in a comprehension."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    inner = [part for part in ast.walk(node) if isinstance(part, COMPREHENSIONS)]
    return len(inner) > 1


def counted_lines(text: str, nodes: Sequence[ast.AST]) -> set[int]:
    """The numbers of the lines of code: without blanks, comments, docstrings and tables."""
    counted = set()
    is_table = False
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if words.startswith("# fmt:"):
            is_table = words == "# fmt: off"
        if words and not words.startswith("#") and not is_table:
            counted.add(number)

    for node in nodes:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            counted -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return counted


def function_lines(nodes: Sequence[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from range(node.lineno, (node.end_lineno or 0) + 1)


def density_of(paths: Iterable[Path]) -> Density:
    density = Density()
    for path in sorted(paths):
        text = path.read_text(encoding="utf-8")
        nodes = nodes_of(path)
        counted = counted_lines(text, nodes)
        inside = counted & set(function_lines(nodes))
        nodes_at: Counter[int] = Counter()
        for node in nodes:
            number = getattr(node, "lineno", 0)
            if number not in counted:
                continue
            nodes_at[number] += 1
            density.comprehensions += isinstance(node, COMPREHENSIONS)
            density.conditional_expressions += isinstance(node, ast.IfExp)
            if is_parallel(node):
                density.faults.append(f"{path.name}:{number}: parallel assignment")
            if is_nested(node):
                density.faults.append(f"{path.name}:{number}: nested comprehension")

        density.lines += len(counted)
        density.lines_in_functions += len(inside)
        density.nodes_in_functions += sum(nodes_at[number] for number in inside)
        for number in sorted(inside):
            if nodes_at[number] > MOST_NODES_OF_ANY_LINE:
                density.faults.append(f"{path.name}:{number}: {nodes_at[number]} nodes")
    return density


def test_a_line_holds_one_act() -> None:
    """What stands above is the limit; see *Plain lines* in CONTRIBUTING.md."""
    rooms = {path.parent for path in PACKAGE.glob("*/__init__.py")}
    whole = density_of(PACKAGE.glob("*.py"))
    for room in sorted(rooms):
        density = density_of(room.rglob("*.py"))
        a_line = density.nodes_in_functions / max(1, density.lines_in_functions)
        assert a_line <= MOST_NODES_A_LINE_OF_A_ROOM, room.name
        whole += density

    assert whole.faults == []
    assert whole.nodes_in_functions / whole.lines_in_functions <= MOST_NODES_A_LINE
    thousands = whole.lines / 1000
    assert whole.comprehensions <= MOST_COMPREHENSIONS * thousands
    assert whole.conditional_expressions <= MOST_CONDITIONAL_EXPRESSIONS * thousands
