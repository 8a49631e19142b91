"""No function that reads bytes of others is without a fuzzer.

They are found in the source: what opens or decodes files, JSON, tables and images, or receives from
a socket. `READERS` are run with the bytes that they accept, and what is called then is fuzzed;
what is not must be in a list here, with the test that fuzzes it, or the reason why nobody else
can have written what it reads.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest

from tests.conftest import REPOSITORY
from tests.foreign_readers import READERS, attempt, put
from tests.repository.source import PACKAGE, children, functions, tree_of, written
from tests.repository.test_foreign_doors import (
    BUNDLED,
    DOORS,
    KERNEL,
    LISTED,
    OURS,
    PEER,
    kind_of,
)

OPENS = {
    "open_foreign",
    "read_foreign",
    "read_foreign_json",
    "begin_of",
    "decode_foreign",
    "check_json",
}
RECEIVES = {
    "recv",
    "recv_into",
    "recvmsg",
    "recvmsg_into",
    "recv_multipart",
    "unserialize",
}
# What is read there nobody else can have written (see `test_foreign_doors`).
TRUSTED = {OURS, KERNEL, BUNDLED, PEER}
# The test whose examples, made by hypothesis, go through it.
_ANY_ANSWER = "tests/loadgen/wire/test_exchange.py::test_any_bytes_end_in_a_record_never_in_a_traceback"
FUZZED = {
    "loadgen/swarm/sockets.py Server.recv_from_client": "tests/heavy/test_swarm_fuzz.py::test_a_good_worker_is_always_taken_in",
    "loadgen/wire/connection.py Connection.on_readable": _ANY_ANSWER,
    "loadgen/wire/read_loop.py ReadLoop.handle": _ANY_ANSWER,
}
# Why it needs none.
_READ_PLAN = "its bytes are kept; `read_plan`, which is fuzzed, has read the same file"
_NOT_UNDERSTOOD = "the bytes are passed over or passed on"
SIMPLE = {
    "cli/sweep_command.py _plan_of_arguments": _READ_PLAN,
    "cli/tune_command.py _tune": _READ_PLAN,
    "ground/listening_sockets.py _sockets_in": "the kernel's answer",
    "loadgen/options/known_secrets.py _values_of_variable": "a variable of the environment",
    "ground/plugins.py _is_there_any": "installed packages, whose code runs",
    "record/relay.py Relay._woken": "its own byte, from its own socket",
    "run_folder/folder_lock.py lock_folder": "a folder",
    "run_folder/whole_file.py new_file": "opens new files alone",
    "servers/serving/cold_start.py drop": _NOT_UNDERSTOOD,
    "servers/serving/cold_start.py read": _NOT_UNDERSTOOD,
    "servers/serving/cold_start.py _count_pages": _NOT_UNDERSTOOD,
    "servers/serving/simulated.py SimulatedServer._on_request": "of the simulated server, which tests alone ask",
    "servers/serving/simulated.py SimulatedServer._read": "of the simulated server, which tests alone ask",
    "servers/serving/simulated.py read_log": "of the simulated server, which tests alone ask",
    "servers/answer_form.py form_fields": "`check_schema`, which is fuzzed, has decoded it before",
    "servers/apis/changed_prompts.py changed_message": "what this package has just encoded",
    "page/experiment_pages.py _framed": _NOT_UNDERSTOOD,
    "page/experiments.py Experiments._is_plan": "a pattern without repetition looks for a key in it",
    "loadgen/wire/connection.py Connection.is_quiet": _NOT_UNDERSTOOD,
    "loadgen/workloads/huggingface.py DataSet._file": "as many bytes as an image may have go to `image_of`, which is fuzzed",
    "loadgen/workloads/prompt_plan.py facts_json": "what this function has just encoded",
}


def place(file: str, name: str) -> str:
    return f"{file} {name}".strip()


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call below a node, with the qualified name of the function or class that it is in."""
    found: list[tuple[str, ast.AST]] = [("", tree)]
    for names, node in found:  # grows while it is walked over
        inner = names
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{names}.{node.name}".lstrip(".")
        if isinstance(node, ast.Call):
            yield names, node
        found += [(inner, child) for child in children(node)]


def reads(call: ast.Call) -> str | None:
    """How a call reads bytes of others; None: it does not."""
    last = written(call.func).rpartition(".")[2]
    if last in OPENS:
        return "door"
    return "socket" if last in RECEIVES else kind_of(call)


def readers_in(package: Path) -> set[str]:
    """The functions that read bytes of others. (A decoder that a class or module makes belongs to
    it.)"""
    found = set()
    for path in sorted(package.rglob("*.py")):
        file = str(path.relative_to(package))
        for name, call in calls(tree_of(path)):
            kind = reads(call)
            _, reason = LISTED.get((file, kind or ""), (0, ""))
            if kind is not None and reason not in TRUSTED and file not in DOORS:
                found.add(place(file, name))
    return found


def called_by(name: str, folder: Path) -> set[str]:
    """The functions of the package that a reader runs through, with the classes and modules that
    they are in."""
    reader = READERS[name]
    file = put(reader, folder)
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        attempt(reader, file, reader.good)
    finally:
        sys.setprofile(before)

    seen: set[str] = set()
    for code in codes:
        if code.co_filename.startswith(str(PACKAGE)):
            module = code.co_filename[len(str(PACKAGE)) + 1 :]
            names = code.co_qualname.replace(".<locals>", "").split(".")
            seen.update(
                place(module, ".".join(names[:count]))
                for count in range(len(names) + 1)
            )
    return seen


def test_every_reader_of_foreign_bytes_is_fuzzed(tmp_path: Path) -> None:
    found = readers_in(PACKAGE)
    called = set()
    for number, name in enumerate(READERS):
        called |= called_by(name, tmp_path / str(number))
    listed = FUZZED.keys() | SIMPLE.keys()
    assert len(found) > 60
    assert found - called - listed == set(), "these have no fuzzer: add them to READERS"
    assert listed - found == set(), "no longer there"


@pytest.mark.parametrize("test", sorted(set(FUZZED.values())))
def test_the_fuzzers_named_here_exist(test: str) -> None:
    file, _, name = test.partition("::")
    assert name in functions(REPOSITORY / file)
    source = (REPOSITORY / file).read_text(encoding="utf-8")
    assert "hypothesis" in source or "fuzz" in source


def test_a_new_reader_is_found(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(
        """
decode = msgspec.json.Decoder(dict)

class Page:
    def read(self, path):
        def inner():
            return open_foreign(path, 5)
        return json.loads(inner().read())

def receive(sock):
    return sock.recv(5)

def harmless(text):
    return text.upper()
"""
    )
    assert readers_in(tmp_path) == {
        "new.py",
        "new.py Page.read.inner",
        "new.py Page.read",
        "new.py receive",
    }
