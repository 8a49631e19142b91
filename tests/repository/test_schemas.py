"""The schemas that are shipped are those of what is written, and none changes without a version."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.reports.shared_run import shared_run
from llama_load.analysis.reports.verify import verify_run
from llama_load.analysis.reports.write import write_reports
from llama_load.analysis.results.results import analyze
from llama_load.cli.main import main
from llama_load.run_folder import RunWriter
from llama_load.run_folder.manifest import write_manifest
from llama_load.run_folder.result_schemas import (
    VERSIONS,
    fault_in,
    file_name,
    version_in,
)
from scripts.make_schemas import FOLDER, breaks, schema, text_of
from scripts.record_printed import PRINTED
from tests.make_records import manifest, record
from tests.printed import analyzed
from tests.schemas import check_folder, faults

NAMES = sorted(VERSIONS)
RECORDED = sorted(path.parent.name for path in PRINTED.glob("*/requests.parquet"))


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_schema_is_that_of_the_types(name: str) -> None:
    """`python -m scripts.make_schemas` writes it."""
    shipped = (FOLDER / file_name(name, VERSIONS[name])).read_text("utf-8")
    assert shipped == text_of(schema(name))
    Draft202012Validator.check_schema(json.loads(shipped))


def test_every_version_so_far_is_shipped() -> None:
    shipped = {path.name for path in FOLDER.glob("*.json")}
    assert shipped == {
        file_name(name, version)
        for name in NAMES
        for version in range(1, VERSIONS[name] + 1)
    }


def test_a_key_that_goes_or_changes_needs_a_new_version() -> None:
    """And one that is added does not, wherever it stands."""
    old = schema("search")

    more = copy.deepcopy(old)
    more["$defs"]["SearchProbe"]["properties"]["seconds"] = {"type": "number"}
    more["$defs"]["SearchProbe"]["required"].append("seconds")
    more["description"] = "better said"
    assert breaks(old, more) == []

    fewer = copy.deepcopy(old)
    del fewer["properties"]["knee"]
    fewer["required"].remove("knee")
    assert breaks(old, fewer) == [
        "$.properties.knee is gone",
        "$.knee is no longer required",
    ]

    other = copy.deepcopy(old)
    other["properties"]["capacity"] = {"type": "string"}
    assert breaks(old, other) == ["$.properties.capacity.anyOf is gone"]

    (changed,) = breaks({"type": "integer"}, {"type": "number"})
    assert changed == '$.type was "integer" and is "number"'


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs_follow_the_schemas(name: str, tmp_path: Path) -> None:
    """Real runs of every kind, with the reports of today, and what is shared of them."""
    results = analyzed(name)
    summary = json.loads(msgspec.json.encode(result_json(results)))
    assert faults(summary, "summary") == []

    shared = json.loads(msgspec.json.encode(shared_run(results)))
    assert faults(shared, "share") == []

    write_manifest(tmp_path, results.run.manifest)
    check_folder(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of four requests with its reports."""
    writer = RunWriter(tmp_path / "run", manifest(num_prompts=4))
    writer.append([record(n, start_ms=500 * n) for n in range(4)])
    run = writer.finish()
    writer.release()
    write_reports(analyze(run))
    return writer.path


def rows(folder: Path) -> dict[str, bool | None]:
    """The rows of `verify` on schemas, by file."""
    return {
        row.where: row.holds for row in verify_run(folder).rows if row.name == "schema"
    }


def test_verify_checks_a_run_against_its_schemas(folder: Path) -> None:
    check_folder(folder)
    assert rows(folder) == {
        "run.json": True,
        "summary.json": True,
        "requests.parquet": True,
    }


@pytest.mark.parametrize("file", ["summary.json", "run.json"])
def test_verify_names_what_does_not_follow(
    file: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong type; a version that is not known or not named is no fault."""
    written = json.loads((folder / file).read_bytes())
    (folder / file).write_text(json.dumps(written | {"burstiness": 2, "date": ""}))
    assert rows(folder)[file] is True

    key = "preflight" if file == "run.json" else "duration"
    value: Any = [{}] if file == "run.json" else "long"
    changed = written | {key: value}
    (fault,) = faults(changed, file.removesuffix(".json"))[:1]
    assert key in fault
    if file == "summary.json":
        (folder / file).write_text(json.dumps(changed))
        assert rows(folder)[file] is False
        assert main(["verify", str(folder)]) == 1
        assert "'long' is not of type 'number', 'null'" in capsys.readouterr().out

    for version in (99, "1", True, None):
        (folder / file).write_text(json.dumps(written | {"schema_version": None}))
        assert version_in({"schema_version": version}, "summary") is None
    del written["schema_version"]
    (folder / file).write_text(json.dumps(written))
    assert rows(folder)[file] is None


def test_a_value_nested_without_end_is_a_fault() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"by_stage": deep}
    assert fault_in({"llama_load": deep}, "summary", 1) is not None


def test_a_pattern_with_a_name_more_ends_no_other() -> None:
    old = {"^p[0-9]_(ttft|tpot)_ms$": {"type": "number"}}
    assert breaks(old, {"^p[0-9]_(ttft|tpot|e2el)_ms$": {"type": "number"}}) == []
    (gone,) = breaks(old, {"^p[0-9]_(ttft)_ms$": {"type": "number"}})
    assert gone == "$.^p[0-9]_tpot_ms$ is gone"
