"""Files and JSON of others are opened through `llama_load.outside.foreign_files` and
`llama_load.outside.foreign_json` alone.

What else opens a file for reading, or decodes JSON, stands in a list here, with the reason why
nobody else can have written it, or why it has limits of its own.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.repository.source import name_in_package, nodes_of, package_files, written

DOORS = ("outside/foreign_files.py", "outside/foreign_json.py")
CALLS = {
    "json.loads": "json",
    "json.load": "json",
    "msgspec.json.decode": "json",
    "msgspec.json.Decoder": "json",
    "mmap.mmap": "file",
    "pq.ParquetFile": "table",
    "pq.read_table": "table",
    "pq.read_metadata": "table",
    "pa.memory_map": "file",
    "pa.OSFile": "file",
    "Pillow.open": "image",
    "yaml.SafeLoader": "yaml",
    "yaml.safe_load": "yaml",
    "csv.reader": "csv",
    "np.load": "file",
    "pickle.load": "pickle",
    "pickle.loads": "pickle",
    "tarfile.open": "archive",
    "zipfile.ZipFile": "archive",
    "gzip.open": "archive",
    "gzip.GzipFile": "archive",
    "pa.CompressedInputStream": "archive",
    "parquet.ParquetFile": "table",
    "fsspec.open": "file",
}
OURS = "a file that this process or one that it started has written"
KERNEL = "a file of the kernel"
BUNDLED = "a file of the package"
STREAM = "bytes of a server, which the wire has bounded; RecursionError is caught"
ENTRY = "a decoder for entries of a `DataFile`, which checks them before"
CHECKED = "check_json stands before it"
PEER = "a line of a process that we started"
LISTED: dict[tuple[str, str], tuple[int, str]] = {
    ("ground/bundled.py", "file"): (1, BUNDLED),
    ("cli/files_command.py", "file"): (1, BUNDLED),
    ("cli/pytest_plugin.py", "file"): (1, OURS),
    ("analysis/reports/translations.py", "file"): (1, BUNDLED),
    ("analysis/reports/translations.py", "json"): (1, BUNDLED),
    ("outside/command_secrets.py", "json"): (1, "a word of a command line"),
    ("lab/dataset_tools/catalogue.py", "file"): (1, BUNDLED),
    ("lab/dataset_tools/inspection.py", "json"): (1, ENTRY),
    ("lab/python_run.py", "file"): (1, OURS),
    ("lab/run_forker.py", "json"): (1, PEER),
    ("lab/run_forker.py", "file"): (1, PEER),
    ("lab/sweep/located.py", "yaml"): (
        1,
        "the one reader of plans, with limits of its own",
    ),
    ("lab/sweep/run_cell.py", "file"): (1, PEER),
    ("lab/sweep/run_cell.py", "json"): (1, PEER),
    ("lab/sweep/running_server.py", "file"): (1, OURS),
    ("ground/listening_sockets.py", "file"): (1, KERNEL),
    ("loadgen/options/known_secrets.py", "json"): (1, "a variable of the environment"),
    ("loadgen/options/options.py", "json"): (1, CHECKED),
    ("loadgen/options/secret_flags.py", "json"): (2, CHECKED),
    ("loadgen/preflight/calibration.py", "json"): (1, OURS),
    ("loadgen/preflight/calibration.py", "file"): (1, OURS),
    ("loadgen/preflight/make_manifest.py", "file"): (1, KERNEL),
    ("ground/plugins.py", "file"): (
        1,
        "entry points of installed packages, whose code runs",
    ),
    ("ground/processes.py", "file"): (3, KERNEL),
    ("record/recorded_turns.py", "json"): (
        1,
        "a line of a recording, which `read_foreign` has bounded; errors are sentences",
    ),
    ("record/recording_process.py", "json"): (1, PEER),
    ("analysis/reports/html/charts.py", "file"): (2, BUNDLED),
    ("record/request_logs.py", "json"): (1, ENTRY),
    ("analysis/reports/verify.py", "json"): (1, "what this function has just encoded"),
    ("run_folder/result_schemas/__init__.py", "file"): (1, BUNDLED),
    ("run_folder/result_schemas/__init__.py", "json"): (1, BUNDLED),
    ("loadgen/run/live_telemetry.py", "file"): (1, OURS),
    ("loadgen/run/live_telemetry.py", "json"): (1, OURS),
    ("loadgen/run/reserve.py", "file"): (1, KERNEL),
    ("loadgen/run/thread_waits.py", "file"): (1, KERNEL),
    ("run_folder/folder_lock.py", "file"): (1, "a folder, to lock it"),
    ("run_folder/foreign_tables.py", "table"): (
        2,
        "the one reader of tables, with limits of its own",
    ),
    ("run_folder/whole_file.py", "file"): (1, "opens new files alone"),
    ("servers/serving/cold_start.py", "file"): (
        4,
        "models that a person named: their pages are read, nothing is made of them",
    ),
    ("servers/serving/last_words.py", "file"): (
        1,
        "its beginning and end alone, of a server that this process started",
    ),
    ("servers/serving/launch.py", "json"): (1, PEER),
    ("servers/serving/model_maker.py", "json"): (2, BUNDLED),
    ("servers/serving/model_maker.py", "file"): (2, BUNDLED),
    ("servers/serving/registry.py", "json"): (
        1,
        "a file in a folder of this user alone, bounded, no link",
    ),
    ("servers/serving/registry.py", "file"): (
        1,
        "a file in a folder of this user alone, bounded, no link",
    ),
    ("servers/serving/simulated.py", "json"): (
        2,
        "of the simulated server, which tests alone ask",
    ),
    ("servers/serving/simulated.py", "file"): (
        1,
        "of the simulated server, which tests alone ask",
    ),
    ("servers/serving/supervisor.py", "file"): (1, PEER),
    ("servers/serving/supervisor.py", "json"): (2, PEER),
    ("loadgen/swarm/presence.py", "file"): (1, KERNEL),
    ("servers/answer.py", "json"): (1, STREAM),
    ("servers/answer_form.py", "json"): (1, STREAM),
    ("servers/apis/changed_prompts.py", "json"): (
        1,
        "what this package has just encoded",
    ),
    ("servers/apis/completion_api.py", "json"): (1, STREAM),
    ("servers/choice_text.py", "json"): (1, STREAM),
    ("servers/apis/messages_api.py", "json"): (1, STREAM),
    ("servers/apis/responses_api.py", "json"): (2, STREAM),
    ("servers/kinds/llama_cpp_log.py", "json"): (1, STREAM),
    ("servers/kinds/slot_log.py", "json"): (1, STREAM),
    ("servers/tool_calls.py", "json"): (1, STREAM),
    ("servers/unstreamed.py", "json"): (1, STREAM),
    ("servers/odd_events.py", "json"): (1, STREAM),
    ("servers/usage.py", "json"): (1, STREAM),
    ("telemetry/amd.py", "file"): (1, KERNEL),
    ("telemetry/power_command.py", "json"): (1, PEER),
    ("telemetry/sampler.py", "json"): (1, PEER),
    ("telemetry/slots.py", "json"): (1, STREAM),
    ("page/assets.py", "file"): (1, BUNDLED),
    ("page/experiments.py", "file"): (1, OURS),
    ("loadgen/wire/limits.py", "file"): (1, KERNEL),
    ("loadgen/wire/priority.py", "file"): (2, KERNEL),
    ("loadgen/users/length_field.py", "json"): (1, OURS),
    ("loadgen/workloads/custom.py", "json"): (1, ENTRY),
    ("loadgen/workloads/data_files.py", "json"): (
        4,
        "the one reader of data files: open_foreign and check_json stand before it; pipes are read up to a limit",
    ),
    ("loadgen/workloads/data_files.py", "file"): (
        1,
        "the one reader of data files: open_foreign and check_json stand before it; pipes are read up to a limit",
    ),
    ("loadgen/workloads/file_forms.py", "file"): (
        1,
        "rows that it has itself written, bounded",
    ),
    ("loadgen/workloads/file_forms.py", "csv"): (
        1,
        "text of a bounded size; cells have a limit",
    ),
    ("loadgen/workloads/file_forms.py", "table"): (
        1,
        "its sizes are checked, group by group",
    ),
    ("loadgen/workloads/file_forms.py", "archive"): (2, "unpacked up to a limit"),
    ("loadgen/workloads/huggingface.py", "file"): (
        1,
        "an image of the data set, read up to a limit",
    ),
    ("loadgen/workloads/images.py", "image"): (
        1,
        "the one reader of images, with limits of its own",
    ),
    ("servers/json_schema.py", "json"): (
        3,
        "schemas and answers of bounded length, walked over with a budget",
    ),
    ("loadgen/workloads/prompt_plan.py", "json"): (
        1,
        "what this function has just encoded",
    ),
    ("loadgen/workloads/sharegpt.py", "json"): (2, ENTRY),
    ("loadgen/workloads/talk_files.py", "json"): (1, ENTRY),
    ("loadgen/workloads/text_files.py", "file"): (1, "a pipe, read up to a limit"),
    ("loadgen/workloads/traces.py", "json"): (1, ENTRY),
}


def found() -> Counter[tuple[str, str]]:
    """How often each module opens or decodes something of each kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in package_files():
        name = name_in_package(path)
        if name not in DOORS:
            counts.update((name, kind) for kind in kinds_in(nodes_of(path)))
    return counts


def kinds_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Call) and (kind := kind_of(node)):
            yield kind
        # else a method of ours
        if isinstance(node, ast.withitem) and ast.unparse(node.context_expr).endswith(
            ".open()"
        ):
            yield "file"


def kind_of(call: ast.Call) -> str | None:
    """What a call opens for reading, or decodes."""
    name = written(call.func)
    if name in CALLS:
        return CALLS[name]
    if name.endswith((".read_text", ".read_bytes")):
        return "file"
    if name == "os.open":
        return (
            "file"
            if "O_RDONLY" in ast.unparse(call) or "flags" in ast.unparse(call)
            else None
        )
    if name == "open" or name.endswith(".open"):
        words = [
            word
            for word in (*call.args, *(keyword.value for keyword in call.keywords))
            if isinstance(word, ast.Constant)
        ]
        modes = [
            word.value
            for word in words
            if isinstance(word.value, str) and set(word.value) <= set("rbtaxw+")
        ]
        is_text = any(keyword.arg == "encoding" for keyword in call.keywords)
        is_reading = not modes or any("r" in mode for mode in modes)
        return "file" if is_reading and (modes or is_text or name == "open") else None
    return None


def test_nothing_else_opens_files_or_decodes_json() -> None:
    """A new reader goes through the door, or into the list with its reason. One that is gone leaves
    the list."""
    assert found() == {place: count for place, (count, _) in LISTED.items()}


def test_every_reader_outside_of_the_door_is_seen() -> None:
    code = """
open("x")
open("x", "rb")
Path("x").open("rb")
Path("x").open(encoding="utf-8")
Path("x").read_text()
file.read_bytes()
os.open(path, os.O_RDONLY | os.O_CLOEXEC)
with path.open() as file: pass
open("x", "w")
Path("x").open("xb")
self.controller.open()
"""
    assert list(kinds_in(ast.walk(ast.parse(code)))) == ["file"] * 7
