"""What the tests start in place of `python -m`."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import environment, run_program
from tests.fork_server import READ_BY_IMPORTS, ForkServer, imports_alike
from tests.repository.source import package_files, tree_of
from tests.swarms import wait_until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="programs are started as usual"
)

SHOWS = """
import atexit, json, os, sys
from pathlib import Path
seen = {"argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "environment": dict(os.environ), "name": __name__}
print(json.dumps(seen | {"leads": os.getpid() == os.getpgrp(), "loaded": "locust.main" in sys.modules}))
atexit.register(print, "at the end")
print("a fault", file=sys.stderr)
sys.exit(Path("code").read_text())
"""


def test_a_program_sees_what_a_start_would_show_it(tmp_path: Path) -> None:
    (tmp_path / "shows.py").write_text(SHOWS.replace('Path("code").read_text()', "5"))
    env = environment() | {"LLAMA_LOAD_LABEL": "更"}
    command = ["shows", "-u", "2"]
    forked = run_program(command, tmp_path, env)
    started = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert (
        (forked.returncode, forked.stderr)
        == (started.returncode, started.stderr)
        == (5, "a fault\n")
    )
    texts = [done.stdout.splitlines() for done in (forked, started)]
    assert [lines[1:] for lines in texts] == [["at the end"]] * 2
    shown, expected = (json.loads(lines[0]) for lines in texts)
    assert (shown.pop("loaded"), expected.pop("loaded")) == (True, False)
    assert shown == expected


def read_at_import(module: Path) -> set[str]:
    """The variables of the environment that the values of a module's names are made of."""
    if "environ" not in module.read_text(encoding="utf-8"):
        return set()
    values = [
        ast.unparse(statement)
        for statement in tree_of(module).body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
    ]
    return set(re.findall(r"environ[^']*'(\w+)'", "\n".join(values)))


def test_what_an_import_reads_is_started_as_usual() -> None:
    env = environment()
    assert imports_alike(env, env | {"LLAMA_LOAD_API_KEY": "k"})
    assert not any(
        imports_alike(env, env | {name: "2"})
        for name in ("PYTHONPATH", "LD_LIBRARY_PATH", *READ_BY_IMPORTS)
    )
    read: set[str] = set()
    for file in package_files():
        read |= read_at_import(file)
    assert read == set(READ_BY_IMPORTS)


@pytest.mark.heavy
def test_a_program_that_does_not_end_is_killed_with_its_children(
    tmp_path: Path,
) -> None:
    """Catches a test's program that outlives its time limit, or its children."""
    (tmp_path / "hangs.py").write_text(
        "import os, subprocess, time\nfrom pathlib import Path\n"
        "Path('pids').write_text(f'{os.getpid()} {subprocess.Popen([\"sleep\", \"60\"]).pid}')\ntime.sleep(60)\n"
    )
    server = ForkServer.start(environment())
    with pytest.raises(subprocess.TimeoutExpired):
        server.run(["hangs"], tmp_path, environment(), 3)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    server.process.kill()
    server.process.wait()
