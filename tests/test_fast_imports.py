"""What makes imports fast leaves nothing behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from llama_load.fast_imports import fast_imports

NUMPY = """
import os, threading
import llama_load
import numpy
import importlib.resources
assert (importlib.resources.files("numpy") / "__init__.py").is_file()
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


def threads_of_numpy(**variables: str) -> str:
    """How many threads a process has after it imported both, and what its environment says."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name != "OPENBLAS_NUM_THREADS"
    }
    return subprocess.run(
        [sys.executable, "-c", NUMPY],
        env=env | variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_numpy_gets_no_threads_unless_somebody_asks_for_them() -> None:
    assert threads_of_numpy() == "1 None"
    assert threads_of_numpy(OPENBLAS_NUM_THREADS="2").endswith(" 2")


def test_garbage_is_collected_again_afterwards() -> None:
    frozen = gc.get_freeze_count()
    with pytest.raises(ModuleNotFoundError), fast_imports():
        assert not gc.isenabled()
        raise ModuleNotFoundError
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen  # no process of Locust
