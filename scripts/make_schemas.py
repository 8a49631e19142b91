"""Write the JSON Schemas in llama_load/run_folder/result_schemas from the types of what is written.

    python -m scripts.make_schemas

It does not overwrite a schema with one that an existing file could fail: a key that went, or
another type, needs a new version (`VERSIONS` in llama_load/run_folder/result_schemas).
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from llama_load.analysis.figures import telemetry_figures
from llama_load.analysis.reports.shared_run import COUNTS
from llama_load.run_folder import Manifest, result_schemas
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.result_schemas import VERSIONS, file_name
from llama_load.run_folder.vocabulary.definitions import (
    DETAILS,
    EVERY,
    FIGURES,
    SCHEDULED,
    Latency,
    of_group,
)
from scripts import result_types as types

FOLDER = Path(result_schemas.__file__).parent
DRAFT = "https://json-schema.org/draft/2020-12/schema"
REF = "#/$defs/"
ROOTS: dict[str, Any] = {
    result_schemas.SUMMARY: types.Summary,
    result_schemas.RUN: Manifest,
    result_schemas.SEARCH: types.Search,
    result_schemas.SHARE: types.Share,
    result_schemas.SWEEP: types.Sweep,
    result_schemas.REQUESTS: RequestRecord,
}
NUMBER = {"type": ["number", "null"]}
COUNT = {"type": ["integer", "null"]}
# A pattern of keys as `_percentiles` writes it.
ALTERNATION = re.compile(r"(?P<before>.*_)\((?P<names>[a-z_|0-9]+)\)(?P<after>_ms\$)")
PERCENTILE = r"^p[0-9]{1,2}(\.[0-9]{1,16})?"
STATISTICS = ("mean", "median", "std")
# Keywords of JSON Schema that say nothing of what a file may hold.
NOTES = ("title", "description", "default", "$comment", "unit")


def schema(name: str) -> dict[str, Any]:
    """The schema of a file as this code writes it."""
    root = ROOTS[name]
    (reference,), components = msgspec.json.schema_components(
        [root], ref_template=REF + "{name}"
    )
    for component in components.values():
        _tidy(component)

    own = components.pop(reference["$ref"].removeprefix(REF))
    by_name = components | {root.__name__: own}
    _add_keys_of_tables(name, by_name)
    if name == result_schemas.REQUESTS:
        _add_units(own)
    else:
        version = {"const": VERSIONS[name]}
        own["properties"][result_schemas.KEY] = version

    return {
        "$schema": DRAFT,
        "$id": file_name(name, VERSIONS[name]),
        **own,
        "$defs": dict(sorted(components.items())),
    }


def _tidy(component: dict[str, Any]) -> None:
    """Every field is written, so it is required; docstrings are indented alike in each Python."""
    if "description" in component:
        component["description"] = inspect.cleandoc(component["description"])
    is_dataclass = any(
        "default" in each for each in component.get("properties", {}).values()
    )
    if is_dataclass:
        component["required"] = list(component["properties"])
    for each in component.get("properties", {}).values():
        each.pop("default", None)


def _add_keys_of_tables(name: str, components: dict[str, Any]) -> None:
    """The keys that come from tables of metrics, in the objects that have them."""
    flat = [*of_group(EVERY, SCHEDULED)]
    if name == result_schemas.SUMMARY:
        for part in ("Summary", "Part", "Stage"):
            _add_figures(components[part])
            _add_latencies(components[part], flat, of_group(EVERY))
        _add_tpot(components["Ours"])
        _add_without_own_delay(components["Ours"])
        _add_tpot(components["Tpot"])
        for part in ("Ours", "Part", "Stage"):
            for latency in of_group(*DETAILS):
                components[part]["properties"][latency.key] = {"$ref": f"{REF}Sample"}
        steady = components["Steady"]
        for latency in of_group(EVERY):
            for word in ("mean", "median"):
                steady["properties"][f"{word}_{latency.key}_ms"] = NUMBER
        steady["patternProperties"] = _percentiles(of_group(EVERY))
        components["Sample"]["patternProperties"] = {f"{PERCENTILE}$": NUMBER}
        for part in ("Telemetry", "StageTelemetry"):
            for figure in telemetry_figures.FIGURES:
                components[part]["properties"][figure.key] = NUMBER | {
                    "description": figure.definition
                }
    elif name == result_schemas.SHARE:
        _add_figures(components["Share"])
        _add_latencies(components["Share"], flat, of_group(EVERY))
        for count in COUNTS:
            components["SharedServer"]["properties"][count] = NUMBER


def _add_figures(component: dict[str, Any]) -> None:
    for figure in FIGURES:
        component["properties"][figure.key] = NUMBER | {
            "description": figure.definition
        }
        component["required"].append(figure.key)


def _add_latencies(
    component: dict[str, Any], known: list[Latency], required: list[Latency]
) -> None:
    """Statistics of these latencies; those of `required` are always there."""
    for latency in known:
        keys = [f"{word}_{latency.key}_ms" for word in STATISTICS]
        for key in keys:
            component["properties"][key] = NUMBER
        component["properties"][f"count_{latency.key}"] = COUNT
        if latency in required:
            component["required"] += [*keys, f"count_{latency.key}"]
    component["patternProperties"] = _percentiles(known)


def _add_tpot(component: dict[str, Any]) -> None:
    (tpot,) = [latency for latency in of_group(EVERY) if latency.key == "tpot"]
    component.setdefault("properties", {})
    component.setdefault("required", [])
    _add_latencies(component, [tpot], [tpot])


def _add_without_own_delay(component: dict[str, Any]) -> None:
    """TTFT and E2EL, which vLLM's formulas count with the client's own delay."""
    both = [each for each in of_group(EVERY) if each.key in ("ttft", "e2el")]
    before = component["patternProperties"]
    _add_latencies(component, both, [])
    component["patternProperties"] |= before


def _percentiles(latencies: list[Latency]) -> dict[str, Any]:
    names = "|".join(latency.key for latency in latencies)
    return {f"{PERCENTILE}_({names})_ms$": NUMBER}


def _add_units(row: dict[str, Any]) -> None:
    """The unit of each column of requests.parquet that has one, by the end of its name."""
    for name, column in row["properties"].items():
        if name.endswith("_ns"):
            column["unit"] = "ns"
        elif name.endswith("_ms"):
            column["unit"] = "ms"


def breaks(old: Any, new: Any, place: str = "$") -> list[str]:
    """Where a file that follows the old schema could mean something else under the new one.

    Keys may be added, also required ones (a newer llama-load writes them); none may go or change.
    """
    found: list[str] = []
    if isinstance(old, dict) and isinstance(new, dict):
        old = _one_pattern_each(old)
        new = _one_pattern_each(new)
        for key, value in old.items():
            if key in NOTES:
                continue
            if key == "required":
                gone = sorted(set(value) - set(new.get(key, [])))
                found += [f"{place}.{name} is no longer required" for name in gone]
            elif key not in new:
                found.append(f"{place}.{key} is gone")
            else:
                found += breaks(value, new[key], f"{place}.{key}")
    elif old != new:
        found.append(f"{place} was {json.dumps(old)} and is {json.dumps(new)}")
    return found


def _one_pattern_each(keys: dict[str, Any]) -> dict[str, Any]:
    """With a key for each name of an alternation: a latency more does not end the others."""
    single = {}
    for key, value in keys.items():
        match = ALTERNATION.fullmatch(key)
        names = match["names"].split("|") if match else [key]
        for name in names:
            single[f"{match['before']}{name}{match['after']}" if match else key] = value
    return single


def text_of(made: dict[str, Any]) -> str:
    """A schema as it stands in its file."""
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Write all of them; 1 if one of them needs a new version."""
    code = 0
    for name, version in VERSIONS.items():
        made = schema(name)
        file = FOLDER / file_name(name, version)
        if file.is_file():
            changed = breaks(json.loads(file.read_text("utf-8")), made)
            if changed:
                print(f"{file.name}: raise VERSIONS[{name!r}]: {'; '.join(changed)}")
                code = 1
                continue
        file.write_text(text_of(made), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
