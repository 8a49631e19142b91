"""What reads files of others takes any bytes: a value, or a sentence; `make fuzz` tries thousands.

The examples are files that a reader accepts, with pieces changed, left out and repeated, and bytes without a sense.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_load.comparison.foreign_results import result_run
from llama_load.comparison.llama_bench import bench_tests
from llama_load.errors import LlamaLoadError
from llama_load.foreign_files import read_foreign_json
from llama_load.lab.sweep.folder import read_journal as read_sweep
from llama_load.lab.sweep.gguf_facts import gguf_facts
from llama_load.lab.sweep.read_plan import read_plan
from llama_load.run_folder.journal import read_journal
from llama_load.run_folder.manifest import MANIFEST, read_manifest
from llama_load.run_folder.telemetry_file import SAMPLES, load_telemetry
from llama_load.workloads.custom import Custom
from llama_load.workloads.images import image_of
from llama_load.workloads.prompt import PlanRequest
from llama_load.workloads.talk_files import read_talks
from llama_load.workloads.text_files import text_files
from llama_load.workloads.think_time import think_time
from llama_load.workloads.traces import read_trace_file
from tests.test_foreign_files import REQUEST
from tests.workloads.test_custom import Words

pytestmark = pytest.mark.hypothesis

MESSAGES = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "output_tokens": 3}\n'
PLAN = PlanRequest(num_prompts=2, fill=False, warmup=0, seed=0, counter=Words())
# A file that it accepts or nearly, its name, and what reads it.
READERS: dict[str, tuple[bytes, str, Callable[[Path], object]]] = {
    "conversations": (MESSAGES, "a.jsonl", lambda file: read_talks(file, REQUEST)),
    "prompts": (MESSAGES, "a.jsonl", lambda file: Custom().plan(replace(PLAN, dataset_path=str(file)))),
    "trace": (b'{"timestamp": 1, "input_length": 5, "output_length": 2, "hash_ids": [1]}\n', "a.jsonl", read_trace_file),
    "trace as CSV": (b"Timestamp,Model,Request tokens,Response tokens\n1,x,5,2\n", "a.csv", read_trace_file),
    "document": (b"Some words.\n", "a.txt", lambda file: list(text_files(file, 0))),
    "think times": (b"1.5\n2\n", "times", lambda file: think_time(f"file:{file}")),
    "image": (b"GIF89a\x01\x00\x01\x00\x00\x00\x00;", "a.gif", lambda file: image_of(file.read_bytes(), "a")),
    "manifest": (b'{"version": "1"}', MANIFEST, lambda file: read_manifest(file.parent)),
    "journal": (b"\xf5\0LLREC1\x00\x00", "requests.arrows", read_journal),
    "samples": (b'["series", 1, "a", "b", {}]\n["values", 1, [[1, 2.0]]]\n', SAMPLES, lambda file: load_telemetry(file.parent)),
    "result": (b'{"duration": 1, "completed": 2, "request_throughput": 2}', "a.json", result_run),
    "llama-bench": (b'[{"avg_ts": 1, "samples_ts": [1]}]', "a.json", bench_tests),
    "plan": (b"title: a\nvary:\n  users: [1, 2]\n", "a.yaml", read_plan),
    "sweep": (b'{"key": "a"}\n', "cells.jsonl", lambda file: read_sweep(file.parent)),
    "model": (b"GGUF\x03\x00\x00\x00", "a.gguf", gguf_facts),
    "any JSON": (json.dumps({"a": [1]}).encode(), "a.json", read_foreign_json),
}


@st.composite
def changed(draw: st.DrawFn, good: bytes) -> bytes:
    """The good file with pieces of it left out, repeated, or other bytes in their place."""
    data = good
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(data)))
        end = draw(st.integers(begin, min(len(data), begin + 12)))
        data = data[:begin] + draw(st.binary(max_size=6) | st.just(data[begin:end] * 3)) + data[end:]
    return data


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_a_value_or_a_sentence(name: str, tmp_path: Path) -> None:
    good, file_name, read = READERS[name]
    file = tmp_path / file_name

    @settings(suppress_health_check=list(HealthCheck), max_examples=max(30, settings().max_examples // 3))
    @given(data=changed(good) | st.binary(max_size=80))
    def attempt(data: bytes) -> None:
        file.write_bytes(data)
        try:
            read(file)
        except (LlamaLoadError, ValueError, OSError):
            return

    attempt()
