"""What judges a run works where nothing can send: without Locust, gevent and ZeroMQ, and on a system
that has neither fork nor fcntl nor epoll."""

from __future__ import annotations

import subprocess
import sys

from scripts.record_printed import PRINTED
from tests.conftest import REPOSITORY, environment

JUDGE = f"""
import importlib, os, pkgutil, select, socket, sys
missing = {{"locust", "gevent", "zmq", "fcntl"}}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
del os.fork, os.register_at_fork, select.epoll
for room in ("analysis", "run_folder"):
    package = importlib.import_module(f"llama_load.{{room}}")
    for module in pkgutil.walk_packages(package.__path__, f"{{package.__name__}}."):
        importlib.import_module(module.name)

from pathlib import Path
from llama_load.analysis.results.results import analyze
from llama_load.analysis.reports.block import block
from llama_load.run_folder import load_run
print(block(analyze(load_run(Path({str(PRINTED / "demo")!r})))))
print(sorted(missing & set(sys.modules)))
"""


def test_a_run_is_judged_where_nothing_can_send() -> None:
    done = subprocess.run(
        [sys.executable, "-c", JUDGE],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Successful requests" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
