"""report.html: one file that shows a run.

It opens without a network and runs nothing but its own two scripts.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from llama_load.analysis.checks.small_print import unseen_flaws
from llama_load.analysis.checks.statements import arranged, remarks
from llama_load.analysis.figures.level import levels_of
from llama_load.analysis.reports.check_lines import preflight_table
from llama_load.analysis.reports.failure_lines import failure_table
from llama_load.analysis.reports.glossary import glossary
from llama_load.analysis.reports.html import html_tables
from llama_load.analysis.reports.html.chart_series import TimeAxis, time_axis
from llama_load.analysis.reports.html.charts import (
    Chart,
    ChartPage,
    bokeh_script,
    page_script,
    style_sheet,
)
from llama_load.analysis.reports.html.charts_latency import (
    ecdf_chart,
    over_time_chart,
    prompt_chart,
    values_of,
)
from llama_load.analysis.reports.html.charts_levels import level_charts
from llama_load.analysis.reports.html.charts_stages import stage_chart
from llama_load.analysis.reports.html.charts_telemetry import telemetry_charts
from llama_load.analysis.reports.html.charts_time import (
    gantt_chart,
    load_chart,
    mark_stages,
    shared_range,
    stage_starts_s,
    throughput_charts,
)
from llama_load.analysis.reports.html.plot import Model
from llama_load.analysis.reports.html.time_bars import time_bars
from llama_load.analysis.reports.next_step import next_step
from llama_load.analysis.reports.private_paths import without_paths
from llama_load.analysis.reports.sentences import sentences, subject, unseen
from llama_load.analysis.reports.stage_table import stage_name, stage_table
from llama_load.analysis.reports.telemetry_section import gpu_table, telemetry_table
from llama_load.analysis.reports.titles import title_of, when
from llama_load.analysis.reports.translations import translator
from llama_load.analysis.results.results import Results
from llama_load.analysis.statistics.ecdf import Ecdf, ecdf
from llama_load.ground.languages import Translator
from llama_load.outside.foreign_text import printable, printable_json, redacted
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.vocabulary.definitions import EVERY, TTFT, Latency, of_group
from llama_load.run_folder.vocabulary.verdict_words import AS_FAR_AS_SEEN
from llama_load.tables import Table, html_table

if TYPE_CHECKING:
    import jinja2

# Curves of groups in one chart of distributions; with more groups there is one curve of all.
MOST_CURVES = 6
NOTHING = "'none'"  # may be run, says a policy


# The charts above the folded sections: at most so many, and of each kind the first ones.
FIRST = "first"
MOST_FIRST = 4
MOST_FIRST_OF = {"levels": 2, "stages": 1, "time": 2, "distributions": 2, "prompts": 0}
FOLDED = ("distributions", "time", "prompts")  # the sections of the others


def html_page(results: Results, text: str, language: str, short: str = "") -> str:
    """The page of a run. At least 1.4 MB, of which Bokeh is 1.3.

    `text` is its block, `short` its first screen as Markdown, `language` one of
    `languages.LANGUAGES`.
    """
    t = translator(language)
    manifest = results.run.manifest
    measured = results.run.records.measured()
    ok = measured.ok()
    curves = _curves(results, ok)
    page = ChartPage()
    begun_ns = int(measured.instants("started_mono_ns").min()) if len(measured) else 0
    parts = list(html_tables.part_tables(results, t))
    for found in results.topics.values():
        parts += found.tables(t)

    servers = msgspec.json.encode(printable_json(manifest.targets))

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
        verdict_class=_style_of(results),
        headline=results.verdict.headline.removeprefix(f"{results.verdict.shown[0]}: "),
        small_print=unseen(results, t),
        unseen_flaws=unseen_flaws(results.verdict.checks, t),
        next_step=next_step(results),
        settings=html_tables.settings_table(manifest, t),
        servers=msgspec.json.format(servers, indent=2).decode(),
        subject=subject(results, t),
        sentences=sentences(results, t),
        cards=html_tables.cards(results, t),
        latencies=html_tables.latency_table(ok, curves, results, t),
        stages=_stages_with_note(results, t),
        parts=parts,
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


def _curves(results: Results, ok: Records) -> dict[str, Ecdf]:
    """The distribution of each latency that has values, by its key."""
    curves = {}
    for latency in html_tables.shown_of(of_group(EVERY), results.total):
        curve = ecdf(values_of(latency, ok))
        if curve is not None:
            curves[latency.key] = curve
    return curves


def _stages_with_note(results: Results, t: Translator) -> Table | None:
    table = stage_table(results, t)
    if table is None:
        return None
    bold = t("Bold: best of its column, among comparable stages.")
    return replace(table, notes=[bold, *table.notes])


def _style_of(results: Results) -> str:
    """The class of the verdict's colours: its word; `seen` where a run is valid as far as seen,
    which is neither praised nor doubted."""
    verdict = results.verdict
    if verdict.shown == [AS_FAR_AS_SEEN]:
        return "seen"
    return verdict.word.lower().replace(" ", "-")


def _sections(
    results: Results,
    measured: Records,
    curves: dict[str, Ecdf],
    page: ChartPage,
    t: Translator,
) -> dict[str, list[tuple[int, Chart]]]:
    """The charts of the run, by the section to which they belong, or `FIRST`: those that a reader
    sees without opening a section. Each with its number on the page.
    """
    axis = time_axis(measured)
    charts: dict[str, Sequence[Chart | None]] = {
        "levels": level_charts({"": levels_of(results.stages)}, t),
        "stages": [stage_chart(results.stages, t)],
        "time": [] if axis is None else _over_time(results, measured, axis, t),
        "distributions": _distributions(results, measured, curves, t),
        "prompts": [prompt_chart(measured, t, list(results.by_workload))],
    }
    # Charts are numbered in the order of the page.
    ordered: dict[str, list[Chart]] = {FIRST: []}
    for name, of_section in charts.items():
        known = [chart for chart in of_section if chart is not None]
        count = min(MOST_FIRST_OF[name], MOST_FIRST - len(ordered[FIRST]))
        ordered[FIRST] += known[:count]
        ordered[name] = known[count:]

    sections = {}
    for name in (FIRST, *FOLDED):
        sections[name] = [(page.add(chart), chart) for chart in ordered[name]]

    return sections


def _distributions(
    results: Results, measured: Records, curves: dict[str, Ecdf], t: Translator
) -> list[Chart | None]:
    ok = measured.ok()
    charts = []
    for latency in of_group(EVERY):
        if latency.key in curves:
            groups = _curves_of_groups(results, ok, latency)
            groups = groups or {t("all requests"): curves[latency.key]}
            whole = results.total.distributions[latency.key]
            charts.append(ecdf_chart(latency, groups, whole, t))

    return charts


def _curves_of_groups(
    results: Results, ok: Records, latency: Latency
) -> dict[str, Ecdf] | None:
    """The curves of the stages, else of the workloads; None where there are too few or too many."""
    column = "workload"
    values: dict[str, str | int] = {name: name for name in results.by_workload}
    if 1 < len(results.stages) <= MOST_CURVES:
        column = "stage"
        values = {}
        for place, stage in enumerate(results.stages):
            values[stage_name(stage)] = place
    if not 1 < len(values) <= MOST_CURVES:
        return None

    curves = {}
    for name, value in values.items():
        curve = ecdf(values_of(latency, ok.where(ok.equals(column, value))))
        if curve is not None:
            curves[printable(name)] = curve

    return curves


def _over_time(
    results: Results, measured: Records, axis: TimeAxis, t: Translator
) -> list[Chart]:
    stages = results.run.manifest.stages
    x_range = shared_range(axis)
    output, *rates = throughput_charts(measured, axis, x_range, t)
    load = load_chart(measured, axis, x_range, t, peak=results.total.peak_in_flight)
    rest = [load, *rates, gantt_chart(measured, axis, x_range, t)]
    charts = [output]

    breaks_s = stage_starts_s(stages, axis)
    for latency in html_tables.shown_of(of_group(EVERY), results.total):
        chart = over_time_chart(latency, measured, axis, x_range, t, breaks_s=breaks_s)
        if chart is not None:
            charts.append(chart)

    charts += rest
    charts += _of_topics(results, axis, x_range, t)
    charts += telemetry_charts(results.run.telemetry, axis, x_range, t)
    for chart in charts:
        mark_stages(chart.figure, stages, axis)

    return charts


def _of_topics(
    results: Results, axis: TimeAxis, x_range: Model, t: Translator
) -> Iterator[Chart]:
    """The charts of topics, without requests sent before the load or after it."""
    for found in results.topics.values():
        for drawn in found.charts(results.run, t):
            at_s = axis.at(drawn.requests.instants("started_mono_ns"))
            inside = drawn.requests.where((at_s >= 0) & (at_s <= axis.seconds))
            chart = over_time_chart(TTFT, inside, axis, x_range, t)
            if chart is not None:
                yield replace(chart, title=drawn.heading)


def rendered(
    template: str, page: ChartPage, *, has_paths: bool = True, **values: Any
) -> str:
    """A page with these charts; `has_paths`: see `_environment`."""
    scripts = [bokeh_script(), page_script()] if page.charts else []
    text = _environment(has_paths).get_template(template)
    html = text.render(
        values,
        policy=_policy(scripts),
        style=style_sheet(),
        scripts=scripts,
        drawings=page.json() if page.charts else "",
    )

    return redacted(html)


def _policy(scripts: Sequence[str]) -> str:
    """The Content-Security-Policy of a page.

    It may run these scripts, which it contains, and load nothing.
    """
    hashes = []
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        hashes.append(f"'sha256-{base64.b64encode(digest).decode()}'")

    rules = [
        "default-src 'none'",
        f"script-src {' '.join(hashes) or NOTHING}",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]

    return "; ".join(rules)


@cache
def _environment(has_paths: bool) -> jinja2.Environment:
    """Templates of pages: every value is escaped, and text has no control characters.

    Without `has_paths` it has no folders of this machine either.
    """
    import jinja2
    from markupsafe import Markup

    def clean(value: Any) -> Any:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        text = printable(value, None)
        return text if has_paths else without_paths(text)

    def grid(table: Table) -> Markup:
        return Markup(html_table(table, clean))  # noqa: S704 - it escapes every text

    def lines(text: str) -> Markup:
        return Markup("\n").join(map(clean, text.split("\n")))

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("llama_load.analysis.reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=clean,
    )
    environment.globals["grid"] = grid
    environment.filters["lines"] = lines

    return environment
