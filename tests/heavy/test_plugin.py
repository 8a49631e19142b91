"""The example of a package that adds to llama-load, installed and used."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Finished
from tests.json_server import json_server, streamed

pytestmark = pytest.mark.heavy

# Not one word of llama-server or vLLM.
EVENT = {"choices": [{"delta": {"content": "good morning"}, "finish_reason": "stop"}]}
ANSWERS = {
    "/v1/models": {"data": [{"id": "m", "owned_by": "parrot"}]},
    "/v1/chat/completions": streamed(EVENT),
    "/count": lambda body: {"count": len(body["text"]) // 4},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip has installed the package."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    pip += ["--no-build-isolation", "--target", str(folder)]
    subprocess.run([*pip, str(REPOSITORY / "examples" / "plugin")], check=True)
    return folder


def llama_load(site: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "llama_load.cli.main", *words],
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_of_its_parts_is_found(
    site: Path, run_locust: Callable[..., Finished]
) -> None:
    """The workload by its name, the server by its answers, the topic in every report, the format in
    `report`. Catches entry points that pip's metadata of another package does not bring to us."""
    locustfile = Path(llama_load(site, "path", "greetings").strip())
    assert locustfile == site / "parrot_plugin" / "greetings.py"
    assert "parrot" in llama_load(site, "serve", "--help")
    with json_server(ANSWERS) as server:
        arguments = ["-u", "1", "--num-prompts", "4", "--warmup", "0"]
        done = run_locust(
            server.url, *arguments, locustfile=locustfile, PYTHONPATH=str(site)
        )
    assert done.summary["completed"] == 4, done.err
    assert done.summary["backend"] == "parrot"
    assert len(done.summary["llama_load"]["longest_answers"]) == 3
    assert "Longest Answers" in done.out
    line = llama_load(site, "report", str(done.folder), "--format", "one-line")
    word = done.summary["llama_load"]["verdict"]["word"]
    assert line.startswith(word) and line.endswith(" ms\n")


def test_a_part_that_cannot_be_loaded_keeps_nobody_from_measuring(
    site: Path, tmp_path: Path
) -> None:
    """Catches an import error of an installed package that ends every run."""
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[llama_load.formats]\nx = no_module:X\n")
    done = subprocess.run(
        [sys.executable, "-m", "llama_load.cli.main", "report", "--help"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "no_module:X (llama_load.formats) of broken is left out" in done.stderr
