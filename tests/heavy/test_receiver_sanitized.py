"""The compiled receiver with the sanitizers: addresses, undefined behaviour, threads; and as 32-bit
code where that compiles."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from scripts import hatch_build
from tests.conftest import REPOSITORY
from tests.searching import SECONDS, SEED

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]

PROGRAM = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("llama_load.loadgen.wire._receiver", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["llama_load.loadgen.wire._receiver"] = module
import pytest
sys.exit(pytest.main(["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:rerunfailures", "tests/loadgen/wire/test_receiver.py", "tests/loadgen/wire/test_receiver_reuse.py", "-k", sys.argv[2]]))
"""


def library(name: str) -> str:
    found = subprocess.run(
        ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(found).is_absolute():
        pytest.skip(f"the compiler has no {name}")
    return os.path.realpath(found)


def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch, flags: str) -> Path:
    """The receiver, compiled with more flags; it reads streams together from the first one on."""
    flags += " -DFEW_STREAMS=1 -DLEARNING_GAPS=1"
    module = folder / "_receiver.abi3.so"
    monkeypatch.setenv("CFLAGS", flags)
    monkeypatch.setattr(hatch_build, "MODULE", module)
    assert hatch_build._compile(REPOSITORY) is None
    return module


@pytest.mark.parametrize(
    ("flags", "libraries"),
    [
        pytest.param(
            "-fsanitize=address,undefined -fno-sanitize-recover=undefined -O1",
            ("libasan.so", "libubsan.so"),
            marks=pytest.mark.real,
        ),
        ("-fsanitize=thread -O1", ("libtsan.so",)),
    ],
    ids=["address-and-undefined", "thread"],
)
def test_the_receiver_is_clean(
    flags: str,
    libraries: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any sequence of calls and traffic, floods, ends, reuse of descriptors. Forks are left out
    with the thread sanitizer, which does not know them. Catches reads beyond a buffer, undefined
    behaviour and races in C, which pass unseen without sanitizers."""
    module = compiled(tmp_path, monkeypatch, flags)
    environment = os.environ | {
        "LD_PRELOAD": " ".join(library(name) for name in libraries),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",
        "TSAN_OPTIONS": "exitcode=99:report_signal_unsafe=0",
        "RECEIVER_EXAMPLES": "150",
        "PYTHONMALLOC": "malloc",
    }
    tests = "not misuse" if "thread" in flags else "test"
    command = [sys.executable, "-c", PROGRAM, str(module), tests]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    said = done.stdout + done.stderr
    assert "Sanitizer" not in said, said[-6000:]
    assert done.returncode == 0, said[-6000:]


@pytest.mark.search
@pytest.mark.timeout(SECONDS + 300)
def test_a_hostile_server_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded: what a server sends around every limit, and Python's calls, in any order (see
    `tests.heavy.receiver_attack`). Catches the same behind orders of calls that nobody thought
    of."""
    flags = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -O1"
    module = compiled(tmp_path, monkeypatch, flags)
    libraries = [library(name) for name in ("libasan.so", "libubsan.so")]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",
        "PYTHONMALLOC": "malloc",
    }
    words = ["-m", "tests.heavy.receiver_attack", str(module)]
    words += [str(SEED), f"{SECONDS:.0f}"]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    assert "Sanitizer" not in said, said[-6000:]
    assert " acts of 20 kinds" in said


@pytest.mark.real
def test_the_receiver_compiles_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches what a compiler's warnings find in C."""
    compiled(
        tmp_path,
        monkeypatch,
        "-Wall -Wextra -Wconversion -Wno-sign-conversion -Wno-unused-parameter -Wno-cast-function-type -Werror",
    )


@pytest.mark.parametrize("times", ["", "-D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64"])
def test_the_receiver_compiles_as_32_bit_code(tmp_path: Path, times: str) -> None:
    """Without a warning, with times of 32 and of 64 bits; Python's headers are given the sizes of a
    32-bit machine. (Skipped where the compiler cannot make such code.) Catches sizes of integers
    that hold on 64 bits alone."""
    headers = tmp_path / "include"
    shutil.copytree(sysconfig.get_path("include"), headers)
    config = (headers / "pyconfig.h").read_text()
    for kind in ("LONG", "SIZE_T", "VOID_P", "UINTPTR_T", "PTHREAD_T", "TIME_T"):
        config = config.replace(f"#define SIZEOF_{kind} 8", f"#define SIZEOF_{kind} 4")
    (headers / "pyconfig.h").write_text(config)
    compiler = ["cc", "-m32", "-fPIC", "-shared", "-o", str(tmp_path / "made.so")]

    probe = subprocess.run(
        [*compiler, "-x", "c", "-"],
        input=b"#include <stdio.h>\n",
        capture_output=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip("the compiler makes no 32-bit code")
    warnings = [
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        "-Wno-cast-function-type",
        "-Werror",
    ]
    source = str(REPOSITORY / hatch_build.SOURCE)
    done = subprocess.run(
        [*compiler, *warnings, *times.split(), f"-I{headers}", source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
