"""report.html: one file that shows a run, opens without a network and runs nothing but its own two scripts."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from llama_load.analysis.results import Results
from llama_load.foreign_text import printable, printable_json, redacted
from llama_load.metrics.definitions import EVERY, TTFT, of_group
from llama_load.metrics.ecdf import Ecdf, ecdf
from llama_load.metrics.statements import arranged, remarks
from llama_load.metrics.verdict_words import VALID
from llama_load.observed.probe_names import BESIDE
from llama_load.observed.records import Records
from llama_load.reports.answer_section import answer_tables
from llama_load.reports.check_lines import preflight_table
from llama_load.reports.choice_section import choice_tables
from llama_load.reports.conversation_tables import conversation_tables
from llama_load.reports.failure_lines import failure_table
from llama_load.reports.glossary import glossary
from llama_load.reports.html import html_tables
from llama_load.reports.html.chart_series import TimeAxis, time_axis
from llama_load.reports.html.charts import Chart, ChartPage, bokeh_script, page_script, style_sheet
from llama_load.reports.html.charts_latency import ecdf_chart, over_time_chart, prompt_chart, values_of
from llama_load.reports.html.charts_stages import stage_chart
from llama_load.reports.html.charts_telemetry import telemetry_charts
from llama_load.reports.html.charts_time import (
    gantt_chart,
    load_chart,
    mark_stages,
    shared_range,
    stage_starts_s,
    throughput_charts,
)
from llama_load.reports.html.plot import Model
from llama_load.reports.html.time_bars import time_bars
from llama_load.reports.next_step import next_step
from llama_load.reports.private_paths import without_paths
from llama_load.reports.sentences import sentences, subject
from llama_load.reports.stage_table import stage_name, stage_table
from llama_load.reports.telemetry_section import gpu_table, telemetry_table
from llama_load.reports.titles import title_of, when
from llama_load.reports.translations import Translate, translator
from llama_load.tables import html_table

if TYPE_CHECKING:
    import jinja2

# Curves of groups in one chart of distributions; with more groups there is one curve of all.
MOST_CURVES = 6


def html_page(results: Results, text: str, language: str, short: str = "") -> str:
    """The page of a run; `text` is its block, `short` its first screen as Markdown, `language` one of `languages.LANGUAGES`. At
    least 1.4 MB, of which Bokeh is 1.3."""
    t = translator(language)
    manifest, measured = results.run.manifest, results.run.records.measured()
    ok = measured.ok()
    curves = {
        latency.key: curve
        for latency in html_tables.shown_of(of_group(EVERY), results.total)
        if (curve := ecdf(values_of(latency, ok))) is not None
    }
    page = ChartPage()
    stages = stage_table(results, t)
    if stages is not None:
        stages = replace(stages, notes=[t("Bold: best of its column, among comparable stages."), *stages.notes])
    begun_ns = int(measured.instants("started_mono_ns").min()) if len(measured) else 0
    return rendered(
        "report.html.j2",
        page,
        has_paths=False,
        t=t,
        language=language,
        title=title_of(results, t),
        version=manifest.version,
        manifest=manifest,
        when=when(manifest.date),
        results=results,
        style=_style_of(results),
        headline=results.verdict.headline.removeprefix(f"{results.verdict.shown[0]}: "),
        next_step=next_step(results),
        settings=html_tables.settings_table(manifest, t),
        servers=msgspec.json.format(msgspec.json.encode(printable_json(manifest.targets)), indent=2).decode(),
        subject=subject(results, t),
        sentences=sentences(results, t),
        cards=html_tables.cards(results, t),
        latencies=html_tables.latency_table(ok, curves, results, t),
        stages=stages,
        parts=[
            *html_tables.part_tables(results, t),
            *conversation_tables(results, t),
            *answer_tables(results),
            *choice_tables(results),
        ],
        time_bars=time_bars(results, t),
        telemetry=telemetry_table(results, t),
        gpus=gpu_table(results, t),
        failures=failure_table(results.failures, t),
        preflight=preflight_table(manifest.preflight, t),
        statements=arranged(results.verdict.checks),
        remarks=remarks(results.verdict.checks),
        slowest=html_tables.slowest_table(measured, begun_ns, t),
        sections=_sections(results, measured, curves, page, t),
        files=html_tables.files(results),
        words=glossary(results.verdict.words),
        block=redacted(text),
        short_markdown=short,
        command=printable(shlex.join(manifest.command), None),
    )


def _style_of(results: Results) -> str:
    """The class of the verdict's colours: its word; none where a run is valid as far as seen."""
    word, headline = results.verdict.word, results.verdict.headline
    return "" if word == VALID and headline != VALID else word.lower().replace(" ", "-")


def _sections(
    results: Results, measured: Records, curves: dict[str, Ecdf], page: ChartPage, t: Translate
) -> dict[str, list[tuple[int, Chart]]]:
    """The charts of the run, by the section to which they belong, each with its number on the page; sections without any are left
    out."""
    axis = time_axis(measured)
    charts: dict[str, Sequence[Chart | None]] = {
        "distributions": _distributions(results, measured, curves, t),
        "time": [] if axis is None else _over_time(results, measured, axis, t),
        "prompts": [prompt_chart(measured, t, list(results.by_workload))],
        "stages": [stage_chart(results.stages, t)],
    }
    numbered = {key: [(page.add(chart), chart) for chart in of_key if chart is not None] for key, of_key in charts.items()}
    return {key: of_key for key, of_key in numbered.items() if of_key}


def _distributions(results: Results, measured: Records, curves: dict[str, Ecdf], t: Translate) -> list[Chart | None]:
    ok = measured.ok()
    charts = []
    for latency in of_group(EVERY):
        if latency.key not in curves:
            continue
        groups = {t("all requests"): curves[latency.key]}
        for column, names in (("stage", [stage_name(stage) for stage in results.stages]), ("workload", list(results.by_workload))):
            if 1 < len(names) <= MOST_CURVES:
                values = range(len(names)) if column == "stage" else names
                parts = (ecdf(values_of(latency, ok.where(ok.equals(column, value)))) for value in values)
                groups = {printable(name): part for name, part in zip(names, parts, strict=True) if part is not None}
                break
        charts.append(ecdf_chart(latency, groups, results.total.distributions[latency.key], t))
    return charts


def _over_time(results: Results, measured: Records, axis: TimeAxis, t: Translate) -> list[Chart]:
    x_range = shared_range(axis)
    charts = [load_chart(measured, axis, x_range, t, peak=results.total.peak_in_flight)]
    charts += [*throughput_charts(measured, axis, x_range, t), gantt_chart(measured, axis, x_range, t)]
    latencies = html_tables.shown_of(of_group(EVERY), results.total)
    breaks_s = stage_starts_s(results.run.manifest.stages, axis)
    over_time = (over_time_chart(latency, measured, axis, x_range, t, breaks_s=breaks_s) for latency in latencies)
    charts += [chart for chart in over_time if chart is not None]
    charts += _probes(results, axis, x_range, t)
    charts += telemetry_charts(results.run.telemetry, axis, x_range, t)
    for chart in charts:
        mark_stages(chart.figure, results.run.manifest.stages, axis)
    return charts


def _probes(results: Results, axis: TimeAxis, x_range: Model, t: Translate) -> list[Chart]:
    """The TTFT of each probe over time, without those sent before the load and after it."""
    probes = results.run.probes
    if probes is None or not results.probes or not results.probes.total.ttft.count:
        return []
    at_s = axis.at(probes.instants("started_mono_ns"))
    beside = probes.where(probes.equals("name", BESIDE) & (at_s >= 0) & (at_s <= axis.seconds))
    chart = over_time_chart(TTFT, beside, axis, x_range, t)
    return [] if chart is None else [replace(chart, title=t("TTFT of the probes over time"))]


def rendered(template: str, page: ChartPage, *, has_paths: bool = True, **values: Any) -> str:
    """A page with these charts; `has_paths`: see `_environment`."""
    scripts = [bokeh_script(), page_script()] if page.charts else []
    text = _environment(has_paths).get_template(template)
    drawings = page.json() if page.charts else ""
    return redacted(text.render(values, policy=_policy(scripts), style=style_sheet(), scripts=scripts, drawings=drawings))


def _policy(scripts: Sequence[str]) -> str:
    """The Content-Security-Policy of a page: it may run these scripts, which it contains, and load nothing."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def _environment(has_paths: bool) -> jinja2.Environment:
    """Templates of pages: every value is escaped, and text has no control characters; without `has_paths` no folders of this
    machine either."""
    import jinja2
    from markupsafe import Markup

    def clean(value: Any) -> Any:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        text = printable(value, None)
        return text if has_paths else without_paths(text)

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("llama_load.reports"), autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=clean
    )
    environment.globals["grid"] = lambda table: Markup(html_table(table, clean))  # noqa: S704 - it escapes every text
    environment.filters["lines"] = lambda text: Markup("\n").join(clean(line) for line in text.split("\n"))
    return environment
