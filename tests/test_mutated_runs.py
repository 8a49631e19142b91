"""A run folder that somebody has changed gives a report or a sentence, never a traceback."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.cli import main as cli
from llama_load.run_folder import RunWriter
from tests.make_records import failed, manifest, record

ANY = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.lists(st.integers(), max_size=2) | st.just({"a": {}})  # fmt: skip


TARGET = {
    "url": "http://h",
    "backend": "llama-server",
    "build": "b1",
    "model": "m",
    "quantization": "Q4_0",
    "slots": 4,
    "ctx_per_slot": 4096,
    "template_tokens": 9,
    "head_tokens": 4,
    "model_bytes": 5 << 30,
    "n_params": 10**9,
}


@pytest.fixture(scope="module")
def folder() -> Any:
    with tempfile.TemporaryDirectory() as place:
        about = manifest(num_prompts=2, targets=[TARGET], fail_if=["failed>0"])
        writer = RunWriter(Path(place) / "run", about)
        writer.append([record(0), failed(1)])
        writer.finish()
        writer.release()
        yield Path(place) / "run"


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [(*path, key) for key, _ in inside] + [
        each for key, item in inside for each in places(item, (*path, key))
    ]


@pytest.fixture(scope="module", autouse=True)
def without_html() -> Iterator[None]:
    """report.html takes a second of each of a hundred examples; `make fuzz` has it."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("LLAMA_LOAD_HYPOTHESIS") != "fuzz":
            patch.setattr(
                "llama_load.analysis.reports.again.write_html", lambda *_: None
            )
        yield


@given(st.data())
def test_a_mutated_manifest_gives_a_report_or_a_sentence(
    folder: Path, data: st.DataObject
) -> None:
    good = json.loads((folder / "run.json").read_bytes())
    bad = copy.deepcopy(good)
    *way, last = data.draw(st.sampled_from(places(good)))
    at = bad
    for key in way:
        at = at[key]
    at[last] = data.draw(ANY)
    (folder / "run.json").write_text(json.dumps(bad))
    try:
        assert cli.main(["report", str(folder)]) in (0, 1, 2, 3)
    finally:
        (folder / "run.json").write_text(json.dumps(good))
