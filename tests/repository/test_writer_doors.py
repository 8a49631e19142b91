"""Texts leave through doors that know no secret: `write_whole`, the redacted stdout and stderr, and
Locust's redacted files."""

from __future__ import annotations

import ast
import re

from tests.repository.source import name_in_package, nodes_of, package_files

# Modules that write otherwise, and why no secret leaves there.
OTHERS = {
    "run_folder/whole_file.py": "the door",
    "outside/terminal.py": "the door of stdout and stderr, and the page's token for the person at the terminal",
    "analysis/reports/formats.py": "stdout as bytes, of redacted texts and of tables",
    "record/named_lines.py": "copies the redacted lines of its own file",
    "record/private_lines.py": "redacted lines, for the owner alone",
    "record/exchange_copies.py": "what passed, for the recording process, which redacts what it writes",
    "run_folder/journal.py": "records, whose foreign texts are printable",
    "telemetry/sampler.py": "signs for its parent",
    "lab/bench/beside.py": "the output of llama-bench, not kept",
    "lab/perplexity/binary.py": "the output of a program, not kept",
    "telemetry/sample_file.py": "samples, whose foreign texts are printable",
    "lab/sweep/folder.py": "redacted bytes, appended",
    "lab/sweep/running_server.py": "redacted lines of a log",
    "lab/sweep/run_cell.py": "the log of a run, which redacts what it prints",
    "lab/run_forker.py": "exit codes for its parent",
    "page/open_page.py": "the page's token, for the browser of this user alone",
    "page/experiments.py": "the log of a command, which redacts what it prints",
    "servers/serving/registry.py": "redacted commands, for the owner alone",
    "servers/serving/supervisor.py": "the output of servers, and events for its parent",
    "servers/serving/simulated.py": "the log of the simulated server: times",
    "cli/simulated_command.py": "an empty log",
    "cli/files_command.py": "a bundled file",
    "loadgen/preflight/calibration.py": "numbers",
    "loadgen/workloads/file_forms.py": "rows of a data set, in a file without a name, for this process",
    "lab/dataset_tools/generator.py": "made texts",
    "lab/dataset_tools/inspection.py": "an image of a data set for the person",
    "loadgen/swarm/signals.py": "a control sequence",
}
WRITES = {"write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "TemporaryFile"}
_MODE = re.compile(r"[rwax]?[bt]?[+]?[bt]?")


def name_of(node: ast.Call) -> str:
    called = node.func
    return (
        called.attr
        if isinstance(called, ast.Attribute)
        else called.id
        if isinstance(called, ast.Name)
        else ""
    )


def writes(node: ast.AST) -> bool:
    """Whether this opens a file to write, or writes to a descriptor."""
    if isinstance(node, ast.Attribute) and node.attr == "buffer":
        return isinstance(node.value, ast.Attribute) and node.value.attr in (
            "stdout",
            "stderr",
            "__stdout__",
            "__stderr__",
        )
    if not isinstance(node, ast.Call):
        return False
    name = name_of(node)
    if name == "write" and isinstance(node.func, ast.Attribute):
        return isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
    if name in ("open", "fdopen"):
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        modes = [
            each.value
            for each in given
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        flags = " ".join(ast.dump(each) for each in given)
        return any(
            _MODE.fullmatch(mode) and set(mode) & set("wax+") for mode in modes
        ) or bool(re.search("O_(WRONLY|RDWR|CREAT)", flags))
    # not our functions of such a name
    return name in WRITES and isinstance(node.func, ast.Attribute)


def test_no_other_door() -> None:
    words = re.compile("open|write|mkstemp|Temporary|buffer")
    found = set()
    for path in package_files():
        if words.search(path.read_text()) and any(map(writes, nodes_of(path))):
            found.add(name_in_package(path))
    assert found - OTHERS.keys() == set()
    assert OTHERS.keys() - found == set(), "no longer needed"
