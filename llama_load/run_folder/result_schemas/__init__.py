"""JSON Schemas of the files that programs read, and whether a file follows the one that it names.

`NAME-VERSION.json` describes the contents of a file whose `schema_version` is VERSION; for
requests.parquet it describes a row. `python -m scripts.make_schemas` writes the newest ones from
the types. Old ones stay, so that old files can still be checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

KEY = "schema_version"
SUMMARY = "summary"
RUN = "run"
SEARCH = "search"
SHARE = "share"
SWEEP = "sweep"
REQUESTS = "requests"
# What these files are written as. A key that is added keeps the version; a key that goes, or whose
# type or meaning changes, raises it.
VERSIONS = {SUMMARY: 1, RUN: 1, SEARCH: 1, SHARE: 1, SWEEP: 1, REQUESTS: 1}
# In the metadata of requests.parquet.
PARQUET_KEY = b"llama_load.schema_version"


def file_name(name: str, version: int) -> str:
    """The name of a schema in this folder."""
    return f"{name}-{version}.json"


@cache
def schema_of(name: str, version: int) -> dict[str, Any]:
    """A schema. Raises KeyError: there is no such version."""
    if not 1 <= version <= VERSIONS[name]:
        raise KeyError(version)
    folder = Path(__file__).parent
    file = folder / file_name(name, version)
    text = file.read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def _validator(name: str, version: int) -> Validator:
    from jsonschema import Draft202012Validator

    schema = schema_of(name, version)
    validator: Validator = Draft202012Validator(schema)
    return validator


def version_in(value: Mapping[str, Any], name: str) -> int | None:
    """The version that a file names, where this llama-load has its schema."""
    version = value.get(KEY)
    if type(version) is not int:
        return None
    if 1 <= version <= VERSIONS[name]:
        return version
    return None


def fault_in(value: Mapping[str, Any], name: str, version: int) -> str | None:
    """The first thing in which a value does not follow a schema; None: it follows it.

    `$.duration: 'x' is not of type 'number', 'null'`. The value may be anybody's.
    """
    validator = _validator(name, version)
    try:
        for fault in validator.iter_errors(value):
            return f"{fault.json_path}: {fault.message}"
    except RecursionError:
        return "it is nested too deeply"
    return None
