"""Whether files follow the schemas, without keys that the schemas do not name: a key that is written
and not described would be one to rely on."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from jsonschema import Draft202012Validator

from llama_load.run_folder import result_schemas
from llama_load.run_folder.result_schemas import VERSIONS, schema_of

FILES = {
    "summary.json": result_schemas.SUMMARY,
    "run.json": result_schemas.RUN,
    "search.json": result_schemas.SEARCH,
    "sweep.json": result_schemas.SWEEP,
}


def faults(value: Any, name: str) -> list[str]:
    """What does not follow the newest schema of this name, or is not in it."""
    return [
        f"{error.json_path}: {error.message}"[:300]
        for error in closed(name).iter_errors(value)
    ]


@cache
def closed(name: str) -> Draft202012Validator:
    """The schema without other keys in any object that names its keys."""
    schema = copy.deepcopy(schema_of(name, VERSIONS[name]))
    for part in (schema, *schema["$defs"].values()):
        if "properties" in part:
            part["additionalProperties"] = False
    return Draft202012Validator(schema)


def check_folder(folder: Path) -> None:
    """All files of a run, search or sweep folder that have a schema."""
    for file, name in FILES.items():
        if (folder / file).is_file():
            value = json.loads((folder / file).read_bytes())
            assert faults(value, name) == [], file
    table = folder / "requests.parquet"
    if table.is_file():
        written = pq.read_schema(table)
        names = list(schema_of("requests", VERSIONS["requests"])["properties"])
        assert sorted(written.names) == sorted(names)
        assert written.metadata[result_schemas.PARQUET_KEY] == b"1"
