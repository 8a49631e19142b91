"""What the targets of the Makefile would run (`make -n`)."""

from __future__ import annotations

import re
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


def files_with(mark: str) -> list[str]:
    return sorted(
        str(file.relative_to(REPOSITORY))
        for file in REPOSITORY.glob("tests/**/test_*.py")
        if f"mark.{mark}" in file.read_text("utf-8")
    )


def run_by(target: str) -> list[tuple[str, list[str]]]:
    """What pytest is given by a target: flags, and files."""
    lines = [line for line in commands(target) if "bin/pytest" in line]
    found = []
    for line in lines:
        words = line.partition("pytest ")[2].split(" tests/")
        files = sorted(f"tests/{word}" for word in words[1:])
        found.append((words[0], files))
    return found


def test_every_test_runs_in_one_target_and_those_of_the_clock_alone() -> None:
    """A failure is one: nothing is tried once more but what judges the clock."""
    (together, _), (alone, files) = run_by("test")
    assert "not heavy and not timing" in together
    assert together.endswith("--ignore")
    assert "||" not in together
    assert alone == '-m "timing and not heavy" --reruns 1 -rR'
    assert files == files_with("timing")


def test_every_heavy_test_runs_and_those_of_the_clock_alone() -> None:
    (together, _), (alone, files), *_ = run_by("test-heavy")
    assert together.startswith('-m "heavy and not timing"')
    assert "||" not in together
    assert alone == '-m "heavy and timing" --reruns 1 -rR'
    assert files == files_with("timing")


def test_continuous_integration_searches_with_a_fixed_seed() -> None:
    parts = (REPOSITORY / ".ci" / "run").read_text("utf-8")
    assert "lint test test-real" in parts
    assert re.search(r"search SECONDS=\d+ SEED=\d+", parts)
    ((flags, files),) = run_by("search")
    assert "-m search" in flags
    assert files == files_with("search")
