"""The tables and figures of report.html as plain values, in the reader's language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llama_load.analysis.keys import certain, flat_result, spoiled, uncertain
from llama_load.analysis.results import Results
from llama_load.foreign_text import printable
from llama_load.metrics.definitions import BY_KEY, EVERY, Latency, of_group
from llama_load.metrics.ecdf import Ecdf
from llama_load.metrics.spoiled import SPOILED_MARK
from llama_load.metrics.stage_figures import StageFigures
from llama_load.metrics.statistics import is_enough, least_count
from llama_load.metrics.summary import Summary, distribution
from llama_load.observed.records import Records
from llama_load.reports.stage_table import stage_name
from llama_load.reports.translations import Translate
from llama_load.run_folder import TABLE, Manifest
from llama_load.run_folder.probe_file import PROBES
from llama_load.tables import Table, columns
from llama_load.tables.numbers import NONE, brief, milliseconds

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
MOST_SLOW = 10
MOST_PARTS = 50
MOST_FILES = 20
MOST_STAGE_CARDS = 8
FILES = ("summary.json", "summary.txt", "report.md", TABLE, PROBES, "telemetry.parquet", "run.json")


@dataclass(frozen=True, slots=True)
class Card:
    """A figure that people look for: its name, its value, its unit, and a line below it."""

    name: str
    value: str
    unit: str = ""
    below: str = ""


def cards(results: Results, t: Translate) -> list[Card]:
    """The figures of the whole run, or of each stage: a median over several loads is none of them. Those that were not measured are
    left out."""
    figures = results.total
    if results.stages:
        return _stage_cards(results.stages, t) + _telemetry_cards(results, t)
    doubts = uncertain(results.run.manifest, figures, checks=results.verdict.checks)
    flat = certain(flat_result(results.run.manifest, figures), doubts)
    ended = figures.completed + figures.failed
    below = t("{count} failed").format(count=f"{figures.failed:,}") if figures.failed else t("none failed")
    if figures.cancelled:
        below += ", " + t("{count} cut").format(count=f"{figures.cancelled:,}")
    cards = [Card(t("Successful"), f"{figures.completed:,}", t("of {count}").format(count=f"{ended:,}"), below)]
    if flat["output_throughput"]:
        one_user = figures.tok_per_s_per_user
        one = t("{count} for one user").format(count=brief(one_user)) if one_user else ""
        cards.append(Card(t("Output"), brief(flat["output_throughput"]), t("tokens/s"), one))
    for latency in of_group(EVERY):
        sample = figures.distributions[latency.key]
        if sample.count and latency.key != "itl":
            tail = [
                f"p{p:g} {milliseconds(sample.percentile(p))}" for p in sample.percentiles if sample.percentile(p) is not None
            ] or [t("mean {value}").format(value=milliseconds(sample.mean))]
            mark = f" {SPOILED_MARK}" if f"median_{latency.key}_ms" in doubts else ""
            cards.append(Card(f"{latency.name} {t('median')}{mark}", brief(sample.median), "ms", ", ".join(tail[:2])))
    if flat["request_throughput"]:
        good = flat["request_goodput"]
        goodput = "" if good is None else t("{count} within the objectives").format(count=brief(good))
        cards.append(Card(t("Requests"), brief(flat["request_throughput"]), t("req/s"), goodput))
    peak = t("at most {count} in flight").format(count=f"{figures.peak_in_flight:,}")
    cards.append(Card(t("Duration"), brief(figures.duration_s), "s", peak))
    return cards + _telemetry_cards(results, t)


def _stage_cards(stages: Sequence[StageFigures], t: Translate) -> list[Card]:
    """A card a stage: its output, or its requests per second; and its median latencies."""
    cards = []
    for stage in stages[:MOST_STAGE_CARDS]:
        figures = stage.figures
        rate, unit = (figures.output_throughput, "tokens/s") if figures.output_throughput else (figures.request_throughput, "req/s")
        keys = ("ttft", "tpot") if figures.distributions["ttft"].count else ("e2el",)
        medians = ((BY_KEY[key].name, figures.distributions[key].median) for key in keys)
        below = ", ".join(f"{name} {t('median')} {milliseconds(median)}" for name, median in medians if median is not None)
        cards.append(Card(printable(stage_name(stage)), brief(rate), t(unit), below))
    return cards


def _telemetry_cards(results: Results, t: Translate) -> list[Card]:
    values = results.telemetry.values
    cards = []
    if (vram := values.get("vram_peak_mib")) is not None:
        gpus = values.get("gpus") or 0
        below = t("GPUs: {count}").format(count=f"{gpus:g}") if gpus > 1 else ""
        cards.append(Card(t("GPU memory, peak"), brief(vram), "MiB", below))
    if (watts := values.get("watts") or values.get("gpu_watts")) is not None:
        joules = values.get("joules_per_output_token")
        cards.append(Card(t("Power"), brief(watts), "W", f"{brief(joules)} J/token" if joules else ""))
    return cards


def settings_table(manifest: Manifest, t: Translate) -> Table:
    """What a run was made of, besides its command."""
    client = (manifest.host.get("platform"), manifest.host.get("python"), manifest.host.get("cores"))
    rows = [
        [t("seed"), str(manifest.seed)],
        [t("endpoint"), manifest.endpoint],
        [t("prompt tokens counted by"), manifest.tokenizer or NONE],
        *([t("data set"), text] for text in _data_sets(manifest.prompts)),
        [t("client"), "{}, Python {}, CPU x {}".format(*client)],
        [t("workers"), str(len(manifest.workers))],
    ]
    return Table(t("Settings"), columns("", "", texts=2), [[printable(cell) for cell in row] for row in rows])


def _data_sets(facts: Any) -> Iterator[str]:
    """Path and hash of every data set in the facts about prompts, which are nested by workload where there are several."""
    if not isinstance(facts, dict):
        return
    data = facts.get("dataset")
    if isinstance(data, dict) and data.get("path"):
        digest = str(data.get("sha256") or "")
        yield f"{data['path']}" + (f" (sha256 {digest[:12]}…)" if digest else "")
    for fact in list(facts.values())[:MOST_PARTS]:
        if fact is not data:
            yield from _data_sets(fact)


def latency_table(ok: Records, curves: Mapping[str, Ecdf], results: Results, t: Translate) -> Table | None:
    """Mean, percentiles and maximum of each latency, exact, of all values; n/a where there are too few for a percentile."""
    rows, lacking = [], set()
    doubts = spoiled(results.run.manifest, results.verdict.checks)
    for latency in of_group(EVERY):
        curve = curves.get(latency.key)
        if curve is None:
            continue
        exact = distribution(ok, latency, PERCENTILES).percentiles
        few = {p for p in PERCENTILES[1:] if not is_enough(curve.counted, p)}
        lacking |= few
        cells = [brief(exact[p]) if p not in few else NONE for p in PERCENTILES]
        mean = brief(results.total.distributions[latency.key].mean)
        mark = f" {SPOILED_MARK}" if f"mean_{latency.key}_ms" in doubts else ""
        rows.append([f"{latency.name} (ms){mark}", mean, *cells, brief(float(curve.x[-1])), f"{curve.counted:,}"])
    if not rows:
        return None
    heads = columns("", t("mean"), t("median"), *(f"p{p:g}" for p in PERCENTILES[1:]), t("maximum"), t("values"))
    needs = ", ".join(t("p{p} needs {count} values").format(p=f"{p:g}", count=f"{least_count(p):,}") for p in sorted(lacking))
    notes = [f"{NONE}: {needs}."] if needs else []
    notes += [f"{SPOILED_MARK} {why}" for why in dict.fromkeys(doubts.values())]
    title = t("Latencies of all stages together, a mixture of loads") if len(results.stages) > 1 else t("Latencies")
    return Table(title, heads, rows, notes)


def part_tables(results: Results, t: Translate) -> Iterable[Table]:
    """A table per way in which the requests can be grouped and in which there are several groups; without stages."""
    groups: dict[str, Mapping[str, Summary]] = {
        "Workloads": results.by_workload,
        "Servers": results.by_host,
        "Models": results.by_model,
        "LoRA adapters": results.by_adapter,
    }
    return (_part_table(t(title), parts, t) for title, parts in groups.items() if len(parts) > 1)


def _part_table(title: str, parts: Mapping[str, Summary], t: Translate) -> Table:
    shown = list(parts.items())[:MOST_PARTS]
    rows = [[printable(str(name)), *_figures(part)] for name, part in shown]
    note = t("Latencies are medians, in ms; p99 only where there are enough values.")
    if len(shown) < len(parts):
        note += " " + t("The first {shown} of {all}.").format(shown=len(shown), all=len(parts))
    heads = columns("", t("requests"), t("failed"), t("tokens/s"), "TTFT", "p99", "TPOT", "p99", "E2EL", "p99")
    return Table(title, heads, rows, [note])


def _figures(part: Summary) -> list[str]:
    cells = [f"{part.completed:,}", f"{part.failed:,}", brief(part.output_throughput)]
    for key in ("ttft", "tpot", "e2el"):
        sample = part.distributions[key]
        cells += [brief(sample.median), brief(sample.percentile(99.0) if 99.0 in sample.percentiles else None)]
    return cells


def slowest_table(measured: Records, begun_ns: int, t: Translate) -> Table | None:
    """The requests that took longest from start to end, failed ones included."""
    if len(measured) <= 1:
        return None
    took_ns = measured.instants("ended_mono_ns") - measured.instants("started_mono_ns")
    slow = np.argsort(-took_ns, kind="stable")[:MOST_SLOW]
    records = measured.take(slow)
    names = ("ttft_ms", "tpot_ms", "prompt_tokens", "output_tokens")
    known = {name: [None if np.isnan(value) else float(value) for value in records.numbers(name)] for name in names}
    texts = {name: records.strings(name) for name in ("request_id", "workload", "status")}
    started = records.instants("started_mono_ns")
    rows = [
        [
            *(printable(str(texts[name][row]), 60) for name in ("request_id", "workload", "status")),
            f"{(started[row] - begun_ns) / 1e9:,.2f}",
            f"{took_ns[slow[row]] / 1e9:,.3f}",
            brief(known["ttft_ms"][row]),
            brief(known["tpot_ms"][row]),
            *(NONE if (tokens := known[name][row]) is None else f"{tokens:,.0f}" for name in ("prompt_tokens", "output_tokens")),
        ]
        for row in range(len(records))
    ]
    heads = [t("request"), t("workload"), t("status"), t("start (s)"), t("took (s)"), "TTFT (ms)", "TPOT (ms)"]
    return Table(t("Slowest requests"), columns(*heads, t("prompt tokens"), t("output tokens"), texts=3), rows)


def shown_of(latencies: Iterable[Latency], total: Summary) -> list[Latency]:
    """The latencies that have values."""
    return [latency for latency in latencies if total.distributions[latency.key].count]


def files(results: Results) -> list[str]:
    """Names of the files of the run folder that are there, and of what its server said. (No links: the page is also sent alone.)"""
    folder = results.run.path
    names = [name for name in FILES if (folder / name).is_file()]
    server = folder / "server"
    if server.is_dir() and not server.is_symlink():
        names += [f"server/{path.name}" for path in sorted(server.iterdir())[:MOST_FILES] if path.is_file()]
    return [printable(name) for name in names]
