"""What the targets of the Makefile would run (`make -n`)."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.skipif(
    shutil.which("make") is None, reason="there is no make here"
)


def commands(target: str) -> list[str]:
    """The commands of a target in a fresh clone."""
    dry = ["make", "--dry-run", "--no-print-directory", target, "VENV=a-fresh-one"]
    return subprocess.run(
        dry, capture_output=True, text=True, cwd=REPOSITORY, check=True
    ).stdout.splitlines()


@pytest.mark.parametrize("target", ["demo", "install"])
def test_what_is_installed_is_compiled(target: str) -> None:
    """Else every start compiles it again where PYTHONDONTWRITEBYTECODE is set, as in Docker: 4
    s."""
    found = commands(target)
    (installed,) = (
        place for place, line in enumerate(found) if "pip" in line and "install" in line
    )
    (compiled,) = (place for place, line in enumerate(found) if "compileall" in line)
    assert installed < compiled
    assert {"a-fresh-one/lib", "llama_load"} <= set(found[compiled].split())
    assert not [line for line in found[compiled + 1 :] if "install" in line]


def test_every_test_runs_in_one_of_the_targets_and_those_of_the_clock_alone() -> None:
    timed = [
        str(file.relative_to(REPOSITORY))
        for file in REPOSITORY.glob("tests/**/test_*.py")
        if "mark.timing" in file.read_text("utf-8")
    ]
    ordinary, alone = (
        line.partition("pytest ")[2]
        for line in commands("test")
        if "bin/pytest" in line
    )
    together, _, again = ordinary.partition(" || ")
    assert (
        together
        == '-n 5 --dist worksteal -m "not heavy and not timing" --ignore tests/heavy'
    )
    assert again.endswith(
        'pytest -m "not heavy and not timing" --ignore tests/heavy --last-failed --last-failed-no-failures none -v'
    )
    flags, _, files = alone.partition(" tests/")
    assert flags == '-m "timing and not heavy" --reruns 1 -rR'
    assert sorted(f"tests/{files}".split()) == sorted(timed)


def test_every_heavy_test_runs_and_those_of_the_clock_alone() -> None:
    heavy = [line for line in commands("test-heavy") if "bin/pytest" in line]
    assert "LLAMA_LOAD_PORTABLE=1" in heavy[2]
    assert '-m "portable and not heavy"' in heavy[2]
    together, alone = (line.partition("pytest ")[2] for line in heavy[:2])
    first, _, again = together.partition(" || ")
    assert first == '-m "heavy and not timing" -n 2 --dist loadfile'
    assert 'pytest -m "heavy and not timing" --last-failed' in again
    assert alone.startswith('-m "heavy and timing" --reruns 1 -rR tests/')
