"""Data files and traces as other programs write them: read as they are meant, or refused by name. A
folder of files/ is one of them: the file (or its rows, where the test packs them) and case.json,
which says where it comes from (`source`), what reads it (`reader`), and what is `right`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llama_load.ground.errors import UsageError
from llama_load.loadgen.preflight.load_fits import load_trace, trace_rows
from llama_load.loadgen.preflight.plan_rows import reading_rows
from llama_load.loadgen.workloads.custom import Custom
from llama_load.loadgen.workloads.prompt_plan import PlanRequest, Traffic
from llama_load.loadgen.workloads.recorded import Conversations
from llama_load.loadgen.workloads.sharegpt import ShareGPT
from llama_load.run_folder import PreflightRow
from tests.loadgen.workloads.test_custom import Words

CASES = sorted(
    path.parent for path in (Path(__file__).parent / "files").glob("*/case.json")
)
WORKLOADS = {"custom": Custom, "conversations": Conversations, "sharegpt": ShareGPT}


def packed(rows: Path, form: str) -> bytes:
    """The rows of a case in the form that it is about."""
    data = rows.read_bytes()
    if form == "gzip":
        return gzip.compress(data, mtime=0)
    if form == "zstd":
        return bytes(pa.compress(data, "zstd"))
    out = pa.BufferOutputStream()
    lines = [json.loads(line) for line in data.splitlines()]
    pq.write_table(pa.Table.from_pylist(lines), out)
    return bytes(out.getvalue())


def file_of(folder: Path, case: dict[str, Any], made: Path) -> Path:
    if "packed" not in case:
        return folder / case["file"]
    (rows,) = folder.glob("rows.*")
    data = packed(rows, case["packed"])
    path = made / case["file"]
    path.write_bytes(data[: -len(data) // 3] if case.get("cut") else data)
    return path


def requests(
    case: dict[str, Any], path: Path
) -> tuple[dict[str, Any], list[PreflightRow]]:
    """What would be sent, and what the preflight says of the rest."""
    request = PlanRequest(
        num_prompts=20,
        fill=False,
        warmup=0,
        seed=0,
        counter=Words(),
        dataset_path=str(path),
        traffic=Traffic(columns=case.get("columns", {})),
    )
    plan = WORKLOADS[case["reader"]]().plan(request)
    prompts = plan.measured
    systems = [each.text for each in prompts[0].history if each.role == "system"]
    sent = {
        "texts": [prompt.text for prompt in prompts],
        "lengths": [prompt.max_tokens for prompt in prompts],
        "tokens": [prompt.prompt_tokens for prompt in prompts],
        "delays_s": [prompt.delay_s for prompt in prompts],
        "answers": [prompt.answer for prompt in prompts],
        "fields": [dict(prompt.fields) for prompt in prompts],
        "images": [len(prompt.images) for prompt in prompts],
        "tasks": [prompt.task for prompt in prompts],
        "system": "".join(systems),
    }
    assert plan.facts.reading
    return sent, reading_rows(plan.facts.reading)


def arrivals(
    case: dict[str, Any], path: Path
) -> tuple[dict[str, Any], list[PreflightRow]]:
    trace = load_trace(path, unit=case.get("unit"), columns=case.get("columns"))
    trace = trace.with_lengths(path, None, sets_answers=False)
    sent = {
        "at_s": [pytest.approx(each.at_s, abs=1e-6) for each in trace.arrivals],
        "input_tokens": [each.input_tokens for each in trace.arrivals],
        "output_tokens": [each.output_tokens for each in trace.arrivals],
        "block_tokens": trace.block_tokens,
    }
    return sent, trace_rows(trace)


@pytest.mark.parametrize("folder", CASES, ids=[folder.name for folder in CASES])
def test_a_file_is_read_as_it_is_meant_or_refused_by_name(
    folder: Path, tmp_path: Path
) -> None:
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    right = case["right"]
    path = file_of(folder, case, tmp_path)
    read = arrivals if case["reader"] == "trace" else requests
    if "refused" in right:
        with pytest.raises(UsageError) as refused:
            read(case, path)
        said = str(refused.value)
        assert not [word for word in right["refused"] if word not in said], said
        assert "\n" not in said
        return
    sent, rows = read(case, path)
    said = "; ".join(row.value for row in rows)
    assert not [word for word in right.pop("rows", []) if word not in said], said
    assert {name: sent[name] for name in right} == right
