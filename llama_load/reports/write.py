"""Write every report of a run into its folder."""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from llama_load.reports.block import block
from llama_load.reports.junit import junit
from llama_load.reports.requests import COLUMNS, request_table
from llama_load.reports.result_json import result_json
from llama_load.reports.results import Results
from llama_load.reports.stages import COLUMNS as STAGE_COLUMNS
from llama_load.reports.stages import notes, stage_rows

if TYPE_CHECKING:
    import jinja2


def write_reports(results: Results, junit_file: Path | None = None) -> str:
    """Write summary.json, summary.txt and report.md, and the thresholds as JUnit XML if a file is named; the text of summary.txt
    is returned."""
    folder = results.run.path
    text = block(results)
    summary = msgspec.json.format(msgspec.json.encode(result_json(results)), indent=1)
    _put(folder / "summary.json", summary.decode() + "\n")
    _put(folder / "summary.txt", text)
    _put(folder / "report.md", markdown(results, text))
    if junit_file is not None:
        junit_file.parent.mkdir(parents=True, exist_ok=True)
        _put(junit_file, junit(results))
    return text


def markdown(results: Results, text: str) -> str:
    """report.md, around the text of the block."""
    manifest = results.run.manifest
    return (
        _environment()
        .get_template("report.md.j2")
        .render(
            title=manifest.label or f"{manifest.workload}: {results.total.completed} requests, {manifest.users} at a time",
            manifest=manifest,
            results=results,
            block=text,
            requests=request_table(results.run.records.measured()),
            request_columns=COLUMNS,
            stages=stage_rows(results.stages, manifest.model),
            stage_columns=STAGE_COLUMNS,
            stage_notes=list(notes(results.stages)),
            command=shlex.join(manifest.command),
        )
    )


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - Markdown, not HTML
        loader=jinja2.PackageLoader("llama_load.reports"), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["cell"] = lambda value: str(value).replace("|", "\\|").replace("\n", " ")
    return environment


def _put(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
