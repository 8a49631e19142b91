"""Write every report of a run into its folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.check_lines import check_table, preflight_table
from llama_load.analysis.reports.failure_lines import failure_table
from llama_load.analysis.reports.first_screen import Line, first_screen
from llama_load.analysis.reports.junit import junit
from llama_load.analysis.reports.other_request_lines import traffic_table
from llama_load.analysis.reports.request_table import request_table
from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.reports.sentences import sentences, subject
from llama_load.analysis.reports.stage_table import speed_table, stage_table
from llama_load.analysis.reports.telemetry_section import gpu_use_table, telemetry_table
from llama_load.analysis.reports.time_table import time_table
from llama_load.analysis.reports.titles import title_of, when
from llama_load.analysis.reports.translations import translator
from llama_load.analysis.results.results import Results
from llama_load.ground.languages import Translator
from llama_load.outside import foreign_text
from llama_load.run_folder import write_whole
from llama_load.tables import Table, markdown_lines

if TYPE_CHECKING:
    import jinja2


@dataclass(frozen=True, slots=True)
class RunReports:
    """What several places show of a run, made once.

    `results`: with the fault where the folder could not be written; `text`: the block; `summary`:
    summary.json as plain values; `screen`: the first screen.
    """

    results: Results
    text: str
    summary: dict[str, Any]
    screen: Sequence[Line]


def write_reports(
    results: Results, language: str | None = None, *, has_page: bool = True
) -> RunReports:
    """Write summary.json, summary.txt and report.md.

    Where that fails, `Run.unwritten` of the results says why. report.html takes seconds:
    `write_html` writes it, after the text has been printed, unless there will be none (`has_page`).
    `language`: of the headings (None: the run's).
    """
    folder = results.run.path
    text = block(results)
    summary = result_json(results)
    try:
        summary_json = msgspec.json.format(
            msgspec.json.encode(summary), indent=1
        ).decode()
        _put(folder / "summary.json", f"{foreign_text.escaped_json(summary_json)}\n")
        _put(folder / "summary.txt", text)
        _put(folder / "report.md", markdown(results, text, language))
    except OSError as error:
        why = error.strerror or error
        fault = (
            f"the reports could not be written to {folder}: {why}; "
            f"fix that, then run 'llama-load report {folder}'"
        )
        run = replace(results.run, unwritten=results.run.unwritten or fault)
        results = replace(results, run=run)

    return RunReports(results, text, summary, first_screen(results, has_page=has_page))


def write_html(reports: RunReports, language: str | None = None) -> str | None:
    """Write report.html; a sentence if that failed, which never spoils the other reports.

    Where the other reports could not be written, it does nothing.
    """
    results = reports.results
    if results.run.unwritten is not None:
        return None

    folder = results.run.path
    try:
        from llama_load.analysis.reports.html.page import html_page
        from llama_load.analysis.reports.picture import short_markdown

        short = short_markdown(reports.screen)
        page = html_page(
            results, reports.text, language or results.run.manifest.lang, short
        )
        _put(folder / "report.html", page)
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) else None
        why = reason or repr(error)
        return f"report.html could not be written: {why}; the other reports are in {folder}"

    return None


def write_junit(results: Results, file: Path) -> None:
    """Write the thresholds as JUnit XML. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    _put(file, junit(results))


def markdown(results: Results, text: str, language: str | None = None) -> str:
    """report.md, around the text of the block. `language`: of its headings (None: the run's)."""
    manifest = results.run.manifest
    t = translator(language or manifest.lang)
    command = foreign_text.printable(shlex.join(manifest.command), None)
    template = _environment().get_template("report.md.j2")

    return template.render(
        t=t,
        title=title_of(results, t),
        manifest=manifest,
        when=when(manifest.date),
        results=results,
        subject=subject(results, t),
        sentences=sentences(results, t),
        block=text,
        tables=[table for table in _tables(results, t) if table is not None],
        fence=foreign_text.fence(text),
        command=command,
        command_fence=foreign_text.fence(command),
    )


def _tables(results: Results, t: Translator) -> Iterator[Table | None]:
    """The tables of report.md; None for those that the run has not."""
    yield stage_table(results, t)
    if results.stages:
        yield speed_table(results.stages, t)

    yield gpu_use_table(results, t)
    yield check_table(results.verdict, results.thresholds, t)
    yield time_table(results.time_parts, t)
    yield telemetry_table(results, t)
    for found in results.topics.values():
        yield from found.tables(t)
    yield request_table(results.run.records.measured(), t)
    yield failure_table(results.failures, t)
    yield traffic_table(results.others, t)
    yield preflight_table(results.run.manifest.preflight, t)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - Markdown, not HTML
        loader=jinja2.PackageLoader("llama_load.analysis.reports"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["t"] = lambda text, translate: translate(text)
    environment.filters["markdown"] = lambda table: "\n".join(markdown_lines(table))
    environment.filters["cell"] = lambda value: foreign_text.markdown(str(value))

    return environment


def _put(path: Path, text: str) -> None:
    write_whole(path, foreign_text.redacted(text).encode())
