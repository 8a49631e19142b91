"""What a second engine would keep needs neither Locust nor gevent: every module of these rooms,
imported for real."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from tests.conftest import REPOSITORY, environment

CODE = """
import importlib, pkgutil, sys
modules = []
for name in {rooms!r}:
    room = importlib.import_module(name)
    modules += [name, *(each.name for each in pkgutil.walk_packages(getattr(room, "__path__", []), f"{{name}}."))]
for name in modules:
    if name.rpartition(".")[2] not in {programs!r}:
        importlib.import_module(name)
print(len(modules), *sorted({{name.partition(".")[0] for name in sys.modules}} & {{"gevent", "locust"}}))
"""
# Started as programs of their own, with packages of an extra or of other environments.
PROGRAMS = ("embedded_server", "llama_cpp_python_rpc")


def contract() -> dict[str, list[str]]:
    contracts = tomllib.loads(
        (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    )["tool"]["importlinter"]["contracts"]
    (found,) = [
        each for each in contracts if each["name"].startswith("No Locust, no gevent")
    ]
    return found


def test_rooms_without_an_engine_import_without_one() -> None:
    """The linter reads import statements; this also sees what a package's __init__ imports."""
    code = CODE.format(rooms=contract()["source_modules"], programs=PROGRAMS)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, *engines = done.stdout.split()
    assert int(count) > 150 and engines == []


def test_every_module_of_the_wire_is_fenced_or_named_as_an_engines() -> None:
    """A new module of the wire is one or the other; docs/decisions/022-a-second-engine.md lists
    what waits."""
    modules = {
        file.stem for file in (REPOSITORY / "llama_load" / "loadgen/wire").glob("*.py")
    } - {"__init__"}
    fenced = {
        name.rpartition(".")[2]
        for name in contract()["source_modules"]
        if name.startswith("llama_load.loadgen.wire.")
    }
    decision = (REPOSITORY / "docs" / "decisions" / "022-a-second-engine.md").read_text(
        encoding="utf-8"
    )
    assert {name for name in modules - fenced if f"`{name}`" not in decision} == set()
    assert fenced <= modules
