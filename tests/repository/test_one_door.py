"""What bounds a stranger's work, size and reach stands in one place each: nothing else in the package
does the same by itself."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache

import pytest

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "llama_load"
# What is forbidden: a pattern, where it is allowed, and what to use instead.
ONE_DOOR: dict[str, tuple[str, frozenset[str], str]] = {
    "heads of requests": (
        r"^\s*(?:from|import) (?:http\.cookies|http\.cookiejar|cgi)\b",
        frozenset(),
        "llama_load.loadgen.wire.request_heads: those take quadratic time, or have no bound",
    ),
    "environments of programs": (
        r"os\.environ \||\| os\.environ|\*\*os\.environ|dict\(os\.environ|os\.environ\.copy",
        frozenset(),
        "llama_load.ground.own_modules: programs that are not ours get none of our keys",
    ),
    "fields of heads": (
        r"\{\w*name\}: \{value\}",
        frozenset(
            ("outside/bound_headers.py", "loadgen/options/vllm_command.py")
        ),  # a flag
        "llama_load.outside.bound_headers.field_lines: a field with a line end in it would be two",
    ),
    "names of this machine": (
        r"\bgethostname\(",
        frozenset(
            (
                "servers/serving/registry.py",  # a folder for each machine
                "loadgen/wire/local_names.py",
            )
        ),
        "llama_load.loadgen.wire.local_names",
    ),
    "patterns of texts": (
        r"\bre\.escape\(|\bpattern_of\(",
        frozenset(
            (
                "outside/command_secrets.py",  # a word of our own command line
                "outside/foreign_text.py",  # secrets of our own environment
                "lab/sweep/locustfile_flags.py",  # a flag of a plan that was asked about
                "record/request_gate.py",  # the recorder's own key
                "outside/secret_forms.py",
                "servers/work_counts.py",  # names of counters in our code
            )
        ),
        "str.replace with llama_load.outside.secret_forms.literal_forms: no pattern is made of the bytes "
        "of strangers",
    ),
}


@cache
def sources() -> dict[str, str]:
    """The modules of the package, by their path."""
    return {
        str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


STARTS = {"Popen", "run", "call", "check_call", "check_output"}
# Where programs are started with the environment of this process, and how many: all are ours.
WITH_OUR_ENVIRONMENT = {
    "cli/record_command.py": 1,  # the recording process
    "lab/calibrate.py": 1,  # a run
    "lab/sweep/run_cell.py": 1,  # runs
    "loadgen/run/telemetry_process.py": 1,  # scrapes with its token
    "servers/serving/launch.py": 1,  # the supervisor
    "servers/serving/supervisor.py": 1,  # our reader of NVIDIA's library
    "loadgen/swarm/lifecycle.py": 1,  # the upload
}


def test_programs_of_others_get_an_environment_without_our_keys() -> None:
    found: Counter[str] = Counter()
    for path, text in sources().items():
        if "subprocess" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            of, _, name = ast.unparse(node.func).rpartition(".")
            has_environment = any(word.arg == "env" for word in node.keywords)
            if of == "subprocess" and name in STARTS and not has_environment:
                found[path] += 1
    assert found == WITH_OUR_ENVIRONMENT


@pytest.mark.parametrize("kind", ONE_DOOR)
def test_there_is_one_door(kind: str) -> None:
    forbidden, allowed, instead = ONE_DOOR[kind]
    pattern = re.compile(forbidden, re.MULTILINE)
    found = {path for path, text in sources().items() if pattern.search(text)}
    assert found == allowed, f"use {instead}"
