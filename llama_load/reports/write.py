"""Write every report of a run into its folder."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from llama_load import foreign_text
from llama_load.analysis.results import Results
from llama_load.reports.block import block
from llama_load.reports.failure_lines import explanation, failure_times
from llama_load.reports.junit import junit
from llama_load.reports.request_table import COLUMNS, request_table
from llama_load.reports.result_json import result_json
from llama_load.reports.stage_table import COLUMNS as STAGE_COLUMNS
from llama_load.reports.stage_table import describe_prompts, notes, stage_rows
from llama_load.runs import Manifest, write_whole

if TYPE_CHECKING:
    import jinja2


def write_reports(results: Results) -> str:
    """Write summary.json, summary.txt and report.md; the text of summary.txt is returned."""
    folder = results.run.path
    text = block(results)
    summary = msgspec.json.format(msgspec.json.encode(result_json(results)), indent=1)
    _put(folder / "summary.json", summary.decode() + "\n")
    _put(folder / "summary.txt", text)
    _put(folder / "report.md", markdown(results, text))
    return text


def try_to_write_reports(results: Results) -> tuple[Results, str]:
    """Like `write_reports`, but a failure to write is reported in `Run.unwritten` of the results."""
    try:
        return results, write_reports(results)
    except OSError as error:
        folder = results.run.path
        why = error.strerror or error
        fault = f"the reports could not be written to {folder}: {why}; fix that, then run 'llama-load report {folder}'"
        return replace(results, run=replace(results.run, unwritten=results.run.unwritten or fault)), block(results)


def write_junit(results: Results, file: Path) -> None:
    """Write the thresholds as JUnit XML. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    _put(file, junit(results))


def markdown(results: Results, text: str) -> str:
    """report.md, around the text of the block."""
    manifest = results.run.manifest
    return (
        _environment()
        .get_template("report.md.j2")
        .render(
            title=manifest.label or f"{manifest.workload}: {results.total.completed} requests, {_load(manifest)}",
            manifest=manifest,
            results=results,
            block=text,
            requests=request_table(results.run.records.measured()),
            request_columns=COLUMNS,
            stages=stage_rows(results.stages, manifest.model),
            stage_columns=STAGE_COLUMNS,
            stage_notes=list(notes(results.stages)),
            failure_times=failure_times,
            explanation=explanation,
            describe_prompts=describe_prompts(results.repeated_prompts, same=manifest.same_prompts),
            fence=foreign_text.fence(text),
            command=foreign_text.printable(shlex.join(manifest.command), None),
        )
    )


def _load(manifest: Manifest) -> str:
    if manifest.stages:
        return f"{len(manifest.stages)} stages"
    if manifest.request_rate is not None:
        return f"{manifest.request_rate:g} per second"
    return f"{manifest.users} at a time" if manifest.arrival is None else "replayed from a trace"


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - Markdown, not HTML
        loader=jinja2.PackageLoader("llama_load.reports"), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["cell"] = lambda value: foreign_text.markdown(str(value))
    return environment


def _put(path: Path, text: str) -> None:
    write_whole(path, foreign_text.redacted(text).encode())
