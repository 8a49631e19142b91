"""The package stands alone."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

from scripts.truth_file import write
from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "truth"


def imported(path: Path) -> set[str]:
    """The first names of all modules that a file imports, also inside of functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def test_it_imports_the_standard_library_and_itself_only() -> None:
    allowed = set(sys.stdlib_module_names) | {"truth"}
    for path in PACKAGE.rglob("*.py"):
        assert imported(path) <= allowed, path


def test_as_one_file_it_runs_without_any_package_installed(tmp_path: Path) -> None:
    """Python without site-packages lists the cases and serves two of them, by each server."""
    write(tmp_path / "truth.pyz")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from truth.cases import Answers\n"
        "from truth.cli import main\n"
        "from truth.server.serving import serving\n"
        "main(['suites'])\n"
        "for shape in ('merged', 'plain'):\n"
        "    with serving(Answers(shape=shape), Path(sys.argv[2])) as url: print(url)\n"
    )
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        code,
        str(tmp_path / "truth.pyz"),
        str(tmp_path / "log"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "T1" in done.stdout and done.stdout.count("http://127.0.0.1:") == 2


def test_its_wheel_has_suites_and_the_server(tmp_path: Path) -> None:
    """Built as its own pyproject says, it holds the package `truth` and nothing of llama_load."""
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(tmp_path),
    ]
    subprocess.run(command, cwd=PACKAGE, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("llm_load_truth-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "truth/cli.py",
        "truth/suites/timing.toml",
        "truth/server/server.c",
        "truth/log.schema.json",
    ):
        assert name in names
    assert all(name.startswith(("truth/", "llm_load_truth-")) for name in names)
    assert not any("outreach" in name or "results" in name for name in names)
