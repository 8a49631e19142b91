"""The tables and figures of report.html as plain values, in the reader's language."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llama_load.analysis.figures.spoiled import RATES, SPOILED_MARK
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.figures.summary import Summary, distribution
from llama_load.analysis.reports.stage_table import stage_name
from llama_load.analysis.results.keys import GOODPUT, flat_result, spoiled
from llama_load.analysis.results.results import Results
from llama_load.analysis.statistics.ecdf import Ecdf
from llama_load.analysis.statistics.statistics import Distribution
from llama_load.ground.languages import Translate
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import TABLE, Manifest
from llama_load.run_folder.arithmetic.percentiles import is_enough, least_count
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.probe_file import PROBES
from llama_load.run_folder.vocabulary.definitions import (
    BY_KEY,
    EVERY,
    Latency,
    of_group,
)
from llama_load.tables import Table, columns
from llama_load.tables.numbers import NONE, brief, milliseconds

MEDIAN = 50.0
PERCENTILES = (MEDIAN, 90.0, 95.0, 99.0, 99.9)
MOST_SLOW = 10
MOST_PARTS = 50
MOST_FILES = 20
MOST_STAGE_CARDS = 8
FILES = (
    "summary.json",
    "summary.txt",
    "report.md",
    TABLE,
    PROBES,
    "telemetry.parquet",
    "run.json",
)


@dataclass(frozen=True, slots=True)
class Card:
    """A figure that people look for: its name, its value, its unit, and a line below it.

    `why`: the check that spoils it; empty where none does.
    """

    name: str
    value: str
    unit: str = ""
    below: str = ""
    why: str = ""


# One look takes these; the table below has every latency.
ON_CARDS = ("ttft", "tpot", "e2el")


def cards(results: Results, t: Translate) -> list[Card]:
    """The figures of the whole run, or of each stage.

    A median over several loads is none of them. Those that were not measured are left out.
    """
    if results.stages:
        return _stage_cards(results.stages, t) + _telemetry_cards(results, t)
    return [*_run_cards(results, t), *_telemetry_cards(results, t)]


def _run_cards(results: Results, t: Translate) -> Iterator[Card]:
    figures = results.total
    manifest = results.run.manifest
    flat = flat_result(manifest, figures)
    doubts = spoiled(manifest, results.verdict.checks, figures)
    yield _success_card(figures, t)

    if flat["output_throughput"]:
        one_user = ""
        if figures.tok_per_s_per_user:
            one_user = t("{count} for one user").format(
                count=brief(figures.tok_per_s_per_user)
            )

        rate = brief(flat["output_throughput"])
        why = doubts.get("output_throughput", "")
        yield Card(t("Output"), rate, t("tok/s"), one_user, why)

    for latency in of_group(EVERY):
        sample = figures.distributions[latency.key]
        if sample.count and latency.key in ON_CARDS:
            name = f"{latency.name} {t('median')}"
            why = doubts.get(f"median_{latency.key}_ms", "")
            yield Card(name, brief(sample.median), "ms", _tail(sample, t), why)

    if flat["request_throughput"]:
        good = ""
        if flat["request_goodput"] is not None and GOODPUT not in doubts:
            count = brief(flat["request_goodput"])
            good = t("{count} within the objectives").format(count=count)

        rate = brief(flat["request_throughput"])
        why = doubts.get("request_throughput", "")
        yield Card(t("Requests"), rate, t("req/s"), good, why)

    peak = t("at most {count} in flight").format(count=f"{figures.peak_in_flight:,}")
    yield Card(t("Duration"), brief(figures.duration_s), "s", peak)


def _success_card(figures: Summary, t: Translate) -> Card:
    below = t("none failed")
    if figures.failed:
        below = t("{count} failed").format(count=f"{figures.failed:,}")
    if figures.cancelled:
        cut = t("{count} cut").format(count=f"{figures.cancelled:,}")
        below += f", {cut}"

    ended = f"{figures.completed + figures.failed:,}"

    return Card(
        t("Successful"),
        f"{figures.completed:,}",
        t("of {count}").format(count=ended),
        below,
    )


def _tail(sample: Distribution, t: Translate) -> str:
    """The first two percentiles that are known, else the mean."""
    texts = []
    for p in sample.percentiles:
        value = sample.percentile(p)
        if value is not None:
            texts.append(f"p{p:g} {milliseconds(value)}")

    if not texts:
        return t("mean {value}").format(value=milliseconds(sample.mean))

    return ", ".join(texts[:2])


def _spoiled_mark(key: str, doubts: Container[str]) -> str:
    """What follows the name of a figure that a failed check spoils."""
    return f" {SPOILED_MARK}" if key in doubts else ""


def _stage_cards(stages: Sequence[StageFigures], t: Translate) -> list[Card]:
    """A card a stage: its output, or its requests per second; and its median latencies."""
    cards = []
    for stage in stages[:MOST_STAGE_CARDS]:
        figures = stage.figures
        rate = figures.output_throughput
        unit = "tok/s"
        if not rate:
            rate = figures.request_throughput
            unit = "req/s"

        medians = []
        for key in (
            ("ttft", "tpot") if figures.distributions["ttft"].count else ("e2el",)
        ):
            median = figures.distributions[key].median
            if median is not None:
                latency = BY_KEY[key].name
                mark = "" if stage.is_usable(latency) else f" {SPOILED_MARK}"
                medians.append(f"{latency} {t('median')} {milliseconds(median)}{mark}")

        name = printable(stage_name(stage))
        spoiling = stage.spoiling(RATES)
        why = spoiling[0].text if spoiling else ""
        cards.append(Card(name, brief(rate), t(unit), ", ".join(medians), why))

    return cards


def _telemetry_cards(results: Results, t: Translate) -> list[Card]:
    values = results.telemetry.values
    cards = []
    memory_mib = values.get("vram_peak_mib")
    if memory_mib is not None:
        gpus = values.get("gpus") or 0
        below = t("GPUs: {count}").format(count=f"{gpus:g}") if gpus > 1 else ""
        cards.append(Card(t("GPU memory, peak"), brief(memory_mib), "MiB", below))

    watts = values.get("watts") or values.get("gpu_watts")
    if watts is not None:
        joules = values.get("joules_per_output_token")
        below = f"{brief(joules)} J/token" if joules else ""
        cards.append(Card(t("Power"), brief(watts), "W", below))

    return cards


def settings_table(manifest: Manifest, t: Translate) -> Table:
    """What a run was made of, besides its command."""
    host = manifest.host
    system = f"{host.get('platform')}, Python {host.get('python')}"
    rows = [
        [t("seed"), str(manifest.seed)],
        [t("endpoint"), manifest.endpoint],
        [t("prompt tokens counted by"), manifest.tokenizer or NONE],
    ]
    for data_set in _data_sets(manifest.prompts):
        rows.append([t("data set"), data_set])

    rows.append([t("client"), f"{system}, CPU x {host.get('cores')}"])
    rows.append([t("workers"), str(len(manifest.workers))])

    cells = [[printable(name), printable(value)] for name, value in rows]

    return Table(t("Settings"), columns("", "", texts=2), cells)


def _data_sets(facts: Any) -> Iterator[str]:
    """Path and hash of every data set in the facts about prompts.

    They are nested by workload where there are several.
    """
    if not isinstance(facts, dict):
        return

    data = facts.get("dataset")
    if isinstance(data, dict) and data.get("path"):
        text = str(data["path"])
        if data.get("sha256"):
            text += f" (sha256 {str(data['sha256'])[:12]}…)"

        yield text

    for fact in list(facts.values())[:MOST_PARTS]:
        if fact is not data:
            yield from _data_sets(fact)


def latency_table(
    ok: Records, curves: Mapping[str, Ecdf], results: Results, t: Translate
) -> Table | None:
    """Mean, percentiles and maximum of each latency, exact, of all values.

    n/a where there are too few for a percentile.
    """
    rows = []
    lacking = set()
    doubts = spoiled(results.run.manifest, results.verdict.checks, results.total)
    for latency in of_group(EVERY):
        curve = curves.get(latency.key)
        if curve is None:
            continue

        exact = distribution(ok, latency, PERCENTILES).percentiles
        mark = _spoiled_mark(f"mean_{latency.key}_ms", doubts)
        row = [f"{latency.name} (ms){mark}"]
        row.append(brief(results.total.distributions[latency.key].mean))
        for p in PERCENTILES:
            if p == MEDIAN or is_enough(curve.counted, p):
                row.append(brief(exact[p]))
            else:
                row.append(NONE)
                lacking.add(p)

        row.append(brief(float(curve.x[-1])))
        row.append(f"{curve.counted:,}")
        rows.append(row)

    if not rows:
        return None

    names = ["", t("mean"), t("median")]
    names += [f"p{p:g}" for p in PERCENTILES if p != MEDIAN]
    names += [t("maximum"), t("values")]
    notes = []
    if lacking:
        notes.append(f"{NONE}: {_needs(lacking, t)}.")

    for why in dict.fromkeys(doubts.values()):
        notes.append(f"{SPOILED_MARK} {why}")

    title = t("Latencies")
    if len(results.stages) > 1:
        title = t("Latencies of all stages together, a mixture of loads")
    return Table(title, columns(*names), rows, notes)


def _needs(percentiles: Iterable[float], t: Translate) -> str:
    """How many values each of these needs."""
    texts = []
    for p in sorted(percentiles):
        count = f"{least_count(p):,}"
        texts.append(t("p{p} needs {count} values").format(p=f"{p:g}", count=count))
    return ", ".join(texts)


def part_tables(results: Results, t: Translate) -> Iterator[Table]:
    """A table per way in which the requests can be grouped, without stages.

    Only those in which there are several groups.
    """
    groups: dict[str, Mapping[str, Summary]] = {
        "Workloads": results.by_workload,
        "Servers": results.by_host,
        "Models": results.by_model,
        "LoRA adapters": results.by_adapter,
    }
    for title, parts in groups.items():
        if len(parts) > 1:
            yield _part_table(t(title), parts, t)


def _part_table(title: str, parts: Mapping[str, Summary], t: Translate) -> Table:
    rows = []
    for name, part in list(parts.items())[:MOST_PARTS]:
        rows.append([printable(str(name)), *_part_figures(part)])

    note = t("Latencies are medians, in ms; p99 only where there are enough values.")
    if len(rows) < len(parts):
        left_out = t("The first {shown} of {all}.").format(
            shown=len(rows), all=len(parts)
        )
        note += f" {left_out}"

    counts = ("", t("requests"), t("failed"), t("tokens/s"))
    heads = columns(*counts, "TTFT", "p99", "TPOT", "p99", "E2EL", "p99")

    return Table(title, heads, rows, [note])


def _part_figures(part: Summary) -> list[str]:
    cells = [f"{part.completed:,}", f"{part.failed:,}", brief(part.output_throughput)]
    for key in ("ttft", "tpot", "e2el"):
        sample = part.distributions[key]
        p99 = sample.percentile(99.0) if 99.0 in sample.percentiles else None
        cells += [brief(sample.median), brief(p99)]
    return cells


def slowest_table(measured: Records, begun_ns: int, t: Translate) -> Table | None:
    """The requests that took longest from start to end, failed ones included."""
    if len(measured) <= 1:
        return None

    took_ns = measured.instants("ended_mono_ns") - measured.instants("started_mono_ns")
    slow = np.argsort(-took_ns, kind="stable")[:MOST_SLOW]
    records = measured.take(slow)
    ids = records.strings("request_id")
    workloads = records.strings("workload")
    statuses = records.strings("status")
    ttft_ms = records.numbers("ttft_ms")
    tpot_ms = records.numbers("tpot_ms")
    prompts = records.numbers("prompt_tokens")
    outputs = records.numbers("output_tokens")
    start_s = (records.instants("started_mono_ns") - begun_ns) / 1e9
    took_s = took_ns[slow] / 1e9
    rows = []
    for place in range(len(records)):
        row = [
            printable(str(ids[place]), 60),
            printable(str(workloads[place]), 60),
            printable(str(statuses[place]), 60),
            f"{start_s[place]:,.2f}",
            f"{took_s[place]:,.3f}",
            brief(_known(ttft_ms[place])),
            brief(_known(tpot_ms[place])),
            _tokens_cell(prompts[place]),
            _tokens_cell(outputs[place]),
        ]
        rows.append(row)

    heads = [
        t("request"),
        t("workload"),
        t("status"),
        t("start (s)"),
        t("took (s)"),
        "TTFT (ms)",
        "TPOT (ms)",
        t("prompt tokens"),
        t("output tokens"),
    ]

    return Table(t("Slowest requests"), columns(*heads, texts=3), rows)


def _known(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)


def _tokens_cell(value: np.float64) -> str:
    return NONE if np.isnan(value) else f"{value:,.0f}"


def shown_of(latencies: Iterable[Latency], total: Summary) -> list[Latency]:
    """The latencies that have values."""
    return [latency for latency in latencies if total.distributions[latency.key].count]


def files(results: Results) -> list[str]:
    """Names of the files of the run folder that are there, and of what its server said.

    (No links: the page is also sent alone.)
    """
    folder = results.run.path
    names = [name for name in FILES if (folder / name).is_file()]
    server = folder / "server"
    if server.is_dir() and not server.is_symlink():
        for path in sorted(server.iterdir())[:MOST_FILES]:
            if path.is_file():
                names.append(f"server/{path.name}")

    return [printable(name) for name in names]
