"""What happens when the package is built or installed from a checkout: the receiver (llama_load/loadgen/wire/_receiver.c) is compiled,
Bokeh's JavaScript is copied out of its Python package, which nothing needs afterwards.

The receiver is optional: without a C compiler, or on another system than Linux, the package is built without it, and llama-load
reads its sockets in Python. LLAMA_LOAD_BUILD=required makes a failure an error, LLAMA_LOAD_BUILD=python leaves it out.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # scripts.build_in_place needs no hatchling
    BuildHookInterface = object

SOURCE = Path("llama_load/loadgen/wire/_receiver.c")
MODULE = Path("llama_load/loadgen/wire/_receiver.abi3.so")
# Bokeh's scripts that draw the charts, and its licence.
CHARTS = Path("llama_load/ground/bokeh_js")
SCRIPTS = "bokeh/server/static/js"
CHART_FILES = (
    f"{SCRIPTS}/bokeh.min.js",
    f"{SCRIPTS}/bokeh-api.min.js",
    "bokeh/LICENSE.txt",
)
# Python's limited API of 3.11: one build serves all later versions.
LIMITED_API = "0x030b0000"
FLAGS = (
    "-O2",
    "-g",
    "-Wall",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    f"-DPy_LIMITED_API={LIMITED_API}",
)


def compiled(root: Path) -> str | None:
    """The compiled module; None where it cannot be compiled. RuntimeError: it was required."""
    wanted = os.environ.get("LLAMA_LOAD_BUILD", "")
    failure = "LLAMA_LOAD_BUILD=python" if wanted == "python" else _compile(root)
    if failure is None:
        return str(MODULE)
    if wanted == "required":
        raise RuntimeError(f"the receiver was not compiled: {failure}")
    (root / MODULE).unlink(missing_ok=True)  # one of an earlier source
    return None


def _compile(root: Path) -> str | None:
    """Why it cannot be compiled; None if it was."""
    if not sys.platform.startswith("linux"):
        return f"it needs Linux, this is {sys.platform}"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        return f"there is no {compiler[0]}"
    include = sysconfig.get_path("include")
    extra = shlex.split(os.environ.get("CFLAGS", ""))
    made = root / f"{MODULE}.{os.getpid()}"
    command = [
        *compiler,
        *FLAGS,
        *extra,
        f"-I{include}",
        str(SOURCE),
        "-o",
        str(made),
        "-lpthread",
    ]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        made.unlink(missing_ok=True)
        return done.stderr.strip() or f"{compiler[0]} failed"
    # A process that starts meanwhile finds the old one or the new one.
    made.replace(root / MODULE)
    return None


def copied_charts(root: Path) -> list[str]:
    """Copies what draws the charts; where from `root`. RuntimeError: there is no Bokeh of the
    version that pyproject.toml names, as in a build without isolation."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    requires = project["build-system"]["requires"]
    (wanted,) = [line for line in requires if line.startswith("bokeh==")]
    try:
        package = distribution("bokeh")
        found = f"bokeh=={package.version}"
    except PackageNotFoundError:
        found = "none"
    if found != wanted:
        raise RuntimeError(f"the build needs {wanted} beside it and found {found}")
    (root / CHARTS).mkdir(exist_ok=True)
    copies = [CHARTS / Path(name).name for name in CHART_FILES]
    for name, copy in zip(CHART_FILES, copies, strict=True):
        made = root / f"{copy}.{os.getpid()}"
        shutil.copy(str(package.locate_file(name)), made)
        made.replace(root / copy)
    return [str(copy) for copy in copies]


class BuiltParts(BuildHookInterface):  # type: ignore[misc]
    """The hook that hatchling calls for a wheel and for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See `BuildHookInterface.initialize`."""
        build_data["artifacts"] += copied_charts(Path(self.root))
        module = compiled(Path(self.root))
        if module is None:
            return
        build_data["artifacts"].append(module)
        build_data["pure_python"] = False
        platform = os.environ.get(
            "LLAMA_LOAD_PLATFORM"
        ) or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"cp311-abi3-{platform}"
