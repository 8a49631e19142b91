"""Code that is made at run time, kept in a file beside the bytecode of modules.

A dataclass writes the source text of its methods and compiles it whenever its module is imported:
for the 250 of a run that takes 0.2 s, a fifth of a short run's CPU time. Here each text is compiled
once per version of Python.

The file is in `__pycache__`, is trusted as the bytecode beside it is, and is written where and when
Python writes bytecode. Without it everything works as before, only slower.
"""

from __future__ import annotations

import builtins
import dataclasses
import marshal
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType
from typing import Any

from llama_load.ground.open_flags import BINARY, NO_FOLLOW, NO_WAIT

SOURCE = Path(__file__).stat()
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
FILE = (
    Path(__file__).parent
    / "__pycache__"
    / f"dataclass_methods.{sys.implementation.cache_tag}.bin"
)


@contextmanager
def dataclasses_compiled_once(file: Path = FILE) -> Iterator[None]:
    """Inside, the methods of dataclasses are taken from `file`, which gets those that it lacks."""
    namespace = vars(dataclasses)
    if "exec" in namespace:  # an import inside of another one
        yield
        return
    kept = _packed_codes(file)
    made: dict[str, bytes] = {}

    def run(*given: Any) -> None:
        if len(given) != 3 or not isinstance(
            given[0], str
        ):  # another Python's dataclasses
            builtins.exec(*given)  # noqa: S102 - what the dataclass has written
            return
        text, names, local_names = given
        packed = kept.get(text)
        if packed is None:
            code = compile(text, "<string>", "exec", dont_inherit=True)
            made[text] = marshal.dumps(code)
        else:
            code = marshal.loads(packed)  # noqa: S302 - as trusted as the bytecode beside it
        assert isinstance(code, CodeType)
        builtins.exec(code, names, local_names)  # noqa: S102 - what the dataclass has written

    # `dataclasses` calls `exec`, which it looks up among its own names first.
    namespace["exec"] = run
    try:
        yield
    finally:
        del namespace["exec"]
        if made:
            write_bytecode(file, MAGIC_NUMBER + marshal.dumps(kept | made))


def _packed_codes(file: Path) -> dict[str, bytes]:
    """Texts and their code, packed; empty if there is no file of this version of Python."""
    content = read_bytecode(file)
    if not content.startswith(MAGIC_NUMBER):
        return {}
    with suppress(ValueError, EOFError, TypeError):
        kept = marshal.loads(content[len(MAGIC_NUMBER) :])  # noqa: S302 - see above
        if isinstance(kept, dict):
            return kept
    return {}


def read_bytecode(file: Path) -> bytes:
    """What `write_bytecode` wrote; empty without it. It runs as this user: what is a link, or what
    another user owns or can change, is not read."""
    try:
        descriptor = os.open(file, os.O_RDONLY | NO_FOLLOW | NO_WAIT | BINARY)
    except OSError:
        return b""
    if not _is_trusted(os.fstat(descriptor)):
        os.close(descriptor)
        return b""
    with suppress(OSError), os.fdopen(descriptor, "rb") as opened:
        return opened.read()
    return b""


def _is_trusted(about: os.stat_result) -> bool:
    """Whether it is a file that we alone can change, or who has written this source."""
    if not stat.S_ISREG(about.st_mode) or about.st_mode & OTHERS_WRITE:
        return False
    return not hasattr(os, "getuid") or about.st_uid in (os.getuid(), SOURCE.st_uid)


def write_bytecode(file: Path, content: bytes) -> None:
    """Write it where and when Python writes bytecode, readable for those who can read the source:
    as a whole, or not at all, because other processes may read and write it at the same time."""
    if sys.dont_write_bytecode:
        return
    half = file.with_name(f"{file.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | BINARY
    with suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        descriptor = os.open(half, flags, SOURCE.st_mode & 0o666 & ~OTHERS_WRITE)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(content)
            half.replace(file)
        except OSError:
            half.unlink()
