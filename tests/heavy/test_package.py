"""The wheel, installed where there is no checkout, with every Python that this machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, environment, run_to_the_end

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]

UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built out of the source distribution, which is built first."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(REPOSITORY),
    ]
    subprocess.run(build, check=True, capture_output=True, timeout=100)
    (built,) = folder.glob("*.whl")
    return built


def run_elsewhere(command: list[str], folder: Path, timeout_s: float = 150) -> str:
    """Its stdout. Neither the checkout nor this environment's packages are on its path."""
    bare = {
        name: value
        for name, value in environment().items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    done = run_to_the_end(command, timeout_s, cwd=folder, env=bare)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "version", [pytest.param("3.11", marks=pytest.mark.real), "3.12", "3.13", "3.14"]
)
def test_the_wheel_runs_the_demo_in_an_empty_environment(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    """Catches a file or dependency that the wheel lacks, and syntax that another Python refuses."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(
        "versions/*/bin"
    )
    path = os.pathsep.join([os.environ["PATH"], *map(str, pyenv)])
    find = [
        str(UV),
        "python",
        "find",
        "--no-python-downloads",
        "--no-project",
        "--system",
        version,
    ]
    found = subprocess.run(
        find,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        check=False,
    )
    if found.returncode:
        pytest.skip(f"there is no Python {version} on this machine")
    run_elsewhere(
        [str(UV), "venv", "--quiet", "--python", found.stdout.strip(), "empty"],
        tmp_path,
    )
    run_elsewhere(
        [
            str(UV),
            "pip",
            "install",
            "--quiet",
            "--python",
            "empty/bin/python",
            f"{wheel}[demo]",
        ],
        tmp_path,
    )
    installed = tmp_path / "empty" / "bin"
    assert (installed / "python").exists()

    out = run_elsewhere(
        [
            str(installed / "llama-load"),
            "demo",
            "-u",
            "2",
            "--num-prompts",
            "4",
            "--run-dir",
            "run",
        ],
        tmp_path,
    )
    assert "Successful requests:                     4" in out
    assert (tmp_path / "run" / "report.md").exists()
    # With Bokeh's scripts and their licence, and without its package.
    run_elsewhere([str(installed / "llama-load"), "report", "run"], tmp_path)
    assert "bokeh.org" in (tmp_path / "run" / "report.html").read_text("utf-8")
    packages = installed.parent / "lib" / f"python{version}" / "site-packages"
    assert (packages / "llama_load" / "ground/bokeh_js/LICENSE.txt").exists()
    assert not (packages / "bokeh").exists()

    locustfile = Path(
        run_elsewhere(
            [str(installed / "llama-load"), "path", "sharegpt_chat"], tmp_path
        ).strip()
    )
    assert locustfile.is_relative_to(tmp_path / "empty")
    run_elsewhere([str(installed / "llama-load"), "init", "mine"], tmp_path)
    assert (tmp_path / "mine" / "sharegpt_chat.py").exists()


def test_uvx_runs_it_without_installing(wheel: Path, tmp_path: Path) -> None:
    """As `uvx --from llama-load llama-load …`, with the wheel in place of the name on PyPI. Catches
    an entry point that uvx does not find."""
    listed = run_elsewhere(
        [
            str(UV.with_name("uvx")),
            "--quiet",
            "--from",
            str(wheel),
            "llama-load",
            "path",
        ],
        tmp_path,
    )
    assert "locustfiles/sharegpt_chat.py" in listed.splitlines()
    assert not os.listdir(tmp_path)
