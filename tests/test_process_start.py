"""What a process does as it starts: numpy without threads; what a run leaves is collected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llama_load.ground.blas_threads import DECIDED_BY
from tests.conftest import environment, run_program

NUMPY = """
import importlib.resources, importlib.util, os, sys
from llama_load.ground.blas_threads import load_numpy_without_threads
load_numpy_without_threads()
{before}
import numpy
assert (importlib.resources.files("numpy") / "__init__.py").is_file()
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""
# Another finder of numpy, as editable installations have them.
ANOTHER = """
from importlib.machinery import PathFinder
class Another:
    def find_spec(self, name, path, target=None):
        return PathFinder.find_spec(name) if name == "numpy" else None
sys.meta_path.insert(0, Another())
"""


def threads_of_numpy(before: str = "", **variables: str) -> str:
    """How many threads a process has after it imported both, and what its environment says."""
    env = {name: value for name, value in os.environ.items() if name not in DECIDED_BY}
    return subprocess.run(
        [sys.executable, "-c", NUMPY.format(before=before)],
        env=env | variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_numpy_gets_no_threads_unless_somebody_asks_for_them() -> None:
    assert threads_of_numpy("importlib.util.find_spec('numpy')") == "1 None"
    assert threads_of_numpy("os.environ['OPENBLAS_NUM_THREADS'] = '2'").endswith(" 2")
    assert threads_of_numpy(OMP_NUM_THREADS="2").endswith(" None")
    assert threads_of_numpy(ANOTHER).endswith(" None")


SETTLED = """
import gc, weakref
from llama_load.loadgen.run.sender import settle

class Run:
    pass

run = Run()
run.itself = run
settle()  # of its start
gone = weakref.ref(run)
del run
settle()  # of the next one
print(gone() is None)
"""


def test_what_a_run_leaves_is_collected_before_the_next(tmp_path: Path) -> None:
    (tmp_path / "settled.py").write_text(SETTLED)
    assert run_program(["settled"], tmp_path, environment()).stdout == "True\n"
