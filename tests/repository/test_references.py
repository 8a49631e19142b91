"""Names with a dot in backticks, in comments, docstrings, decisions and the page of the architecture:
each is something that exists."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.repository.source import package_files, tree_of

OURS = frozenset(("llama_load", "truth", "benchmarks", "scripts", "tests"))
DECISIONS = REPOSITORY / "docs" / "decisions"
DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
# What is no module of ours: files of a run, of a model or of a user, fields of foreign data, and names of
# other libraries as their own pages write them.
FOREIGN = frozenset(
    (
        "bokeh.min.js",
        # keys of summary.json's section `llama_load`
        "llama_load.peak_in_flight",
        "llama_load.peak_output_tok_per_s",
        "llama_load.uncertain",
        # forms of a plan's columns
        "SERVER.FIELD",
        "SERVER.env.NAME",
        "flags.NAME",
        # a method of pathlib's
        "Path.read_text",
        # fields of what an API and a server kind are given
        "request.fits",
        "target.kind",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.conversation.id",
        "pa.array",
        "RecordBatch.serialize",
        "Table.to_pandas",
        "Bokeh.embed.embed_items",
        "monkey.get_original",
        "loop.add_reader",
        "runner.start",
        "LocustStats.report",
        "argument_parser.default_args_dict",
    )
)
# Data files are those of runs, models and users as often as ours: only files of code must exist.
DATA_FILES = re.compile(r"\.(json|jsonl|toml|ya?ml|parquet|csv)$")
CODE_FILES = re.compile(r"\.(py|c|js|css|md|sh)$")
# Of `self`: near enough, as the attributes of all classes of a file.
ATTRIBUTES = re.compile(r"\bself\.(\w+)")
Members = defaultdict[str, set[str]]


def names_of(body: list[ast.stmt]) -> set[str]:
    """What the statements of a module or class define."""
    names: set[str] = set()
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(statement.name)
            case ast.Assign() | ast.AnnAssign():
                stored = (
                    node for node in ast.walk(statement) if isinstance(node, ast.Name)
                )
                names.update(
                    node.id for node in stored if isinstance(node.ctx, ast.Store)
                )
            case ast.Import() | ast.ImportFrom():
                names.update((alias.asname or alias.name) for alias in statement.names)
            case ast.If() | ast.Try():
                names |= names_of(statement.body)
            case _:
                pass
    return names


def members_of_package() -> Members:
    """Of every module, room and class: what it has."""
    members: Members = defaultdict(set)
    for path in package_files():
        text = path.read_text(encoding="utf-8")
        tree = tree_of(path)
        attributes = set(ATTRIBUTES.findall(text))
        is_room = path.name == "__init__.py"
        module = path.parent.name if is_room else path.stem
        members[module] |= names_of(tree.body)
        if is_room:
            members[module] |= {inner.stem for inner in path.parent.iterdir()}
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef):
                members[statement.name] |= names_of(statement.body) | attributes
    return members


def exists(name: str, members: Members, files: set[str]) -> bool:
    """Whether a dotted name is a file, a member of ours, or of an installed module.

    A name that begins with a small letter and is neither a module nor a class may be a field of an
    object (`goal.share`): it is one if any class of ours has a field of that name.
    """
    if name in FOREIGN or DATA_FILES.search(name):
        return True
    if CODE_FILES.search(name):
        return name in files
    first, *rest = name.split(".")
    if first == "llama_load":
        return (
            rest[-1] in members[rest[-2]]
            if len(rest) > 1
            else rest[0] in members["llama_load"]
        )
    if first in members:
        return rest[0] in members[first]
    if importlib.util.find_spec(first) is not None:
        return True
    is_field = any(
        rest[0] in fields for owner, fields in members.items() if owner[0].isupper()
    )
    return first.islower() and is_field


def test_every_dotted_name_exists() -> None:
    """A comment that names what has moved or gone sends its reader nowhere."""
    members = members_of_package()
    tracked = (
        REPOSITORY / folder
        for folder in ("llama_load", "tests", "scripts", "benchmarks", "truth")
    )
    files = {path.name for folder in tracked for path in folder.rglob("*")}
    files |= {path.name for path in REPOSITORY.iterdir()}
    files |= {path.name for path in (REPOSITORY / "locustfiles").iterdir()}

    gone = []
    pages = [*DECISIONS.glob("*.md"), REPOSITORY / "docs" / "architecture.md"]
    for path in [*package_files(), *pages]:
        text = path.read_text(encoding="utf-8")
        if not is_superseded(text):
            names = DOTTED.findall(text)
            gone += [
                f"{path.name}: {name}"
                for name in names
                if not exists(name, members, files)
            ]

    assert gone == []


def is_superseded(text: str) -> bool:
    """Whether a decision says in its first lines that another one has taken its place."""
    return "Superseded by [" in text[:200]


def test_links_of_decisions_name_their_target() -> None:
    """`[013](015-...)` would send its reader to the wrong page."""
    wrong = []
    for path in DECISIONS.glob("*.md"):
        for number, target in re.findall(
            r"\[(\d{3})\]\((\d{3}-[^)]*)\)", path.read_text(encoding="utf-8")
        ):
            if not target.startswith(number) or not (DECISIONS / target).exists():
                wrong.append(f"{path.name}: [{number}]({target})")

    assert wrong == []


def test_what_is_imported_from_our_packages_exists() -> None:
    """mypy reads the packages; benchmarks, scripts and examples are run by nobody for weeks."""
    missing = []
    for folder in ("benchmarks", "scripts", "examples", "locustfiles"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    missing += not_defined(node.module, node, path)
    assert not missing, "\n".join(missing)


@cache
def names_in(source: Path) -> set[str]:
    """What a module defines."""
    return names_of(tree_of(source).body)


def not_defined(module: str, node: ast.ImportFrom, importer: Path) -> list[str]:
    """The names of an import that a module of ours does not have."""
    place = REPOSITORY.joinpath(*module.split("."))
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if module.split(".", maxsplit=1)[0] not in OURS or not source.exists():
        return []
    defined = names_in(source)
    if place.is_dir():
        defined = defined | {inner.stem for inner in place.iterdir()}
    where = importer.relative_to(REPOSITORY)
    return [
        f"{where}:{node.lineno}: {module} has no {alias.name}"
        for alias in node.names
        if alias.name not in defined
    ]
