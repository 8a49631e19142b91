"""The rows of a sweep: what every cell measured, one row per stage, under the names of `values`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from llama_load.analysis.comparison.compared_metrics import metric_of
from llama_load.analysis.comparison.run_folder import folder_run
from llama_load.analysis.comparison.side import MeasuredRun
from llama_load.analysis.reports.request_table import RequestRow, request_rows
from llama_load.analysis.results.run_summary import RunSummary, is_number, read_summary
from llama_load.ground.errors import LlamaLoadError
from llama_load.lab.sweep.cell_facts import (
    planned_concurrency,
    planned_facts,
    reported_facts,
    stage_facts,
)
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import Ended
from llama_load.lab.sweep.rates_of_tests import rates_of_test
from llama_load.lab.sweep.server_spec import argument, words_of
from llama_load.lab.sweep.values import ARGUMENT, BY_GPU, CONSTANT, PATH, VARIABLE
from llama_load.outside.foreign_files import read_foreign_json
from llama_load.outside.foreign_text import printable, printable_json
from llama_load.run_folder import load_run
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.vocabulary.verdict_words import (
    FAILED,
    INCOMPLETE,
    NOT_COMPARABLE,
)

MOST_SUMMARY_BYTES = 64 << 20
SEARCH_JSON = "search.json"
NOT_RANKED = (FAILED, INCOMPLETE, NOT_COMPARABLE)

IN_CACHE = (
    "its prompt tokens came from the server's cache; "
    "restart the server, or give another seed"
)
NOT_SEEN = " (not seen)"  # behind a number of GPUs that the plan alone knows
CLIENT_TIMES = "‡"  # behind a rate computed from TTFT or TPOT
_CHARS = "output_chars_per_s"
Measured = float | None


@dataclass(slots=True)
class Row:
    """What one cell, or one stage of it, measured."""

    facts: dict[str, str]
    repeat: int
    place: int  # in the order of the plan
    stage: int = 0
    is_stage: bool = False  # of a run in stages
    # keys of summary.json, flat and below llama_load
    figures: Mapping[str, Any] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)  # a value per request
    marks: dict[str, str] = field(default_factory=dict)
    # values that a failed check spoils, and no others
    spoiled: Mapping[str, float] = field(default_factory=dict)
    # why a value is missing, or spoiled
    reasons: dict[str, str] = field(default_factory=dict)
    reason: str = ""  # why all are
    is_ranked: bool = True
    cause: str = ""  # the headline of its verdict
    requests: Sequence[RequestRow] = ()
    sentences: Sequence[str] = ()  # what its run found
    words: Sequence[str] = ()  # of the server's command line
    env: Mapping[str, Any] = field(default_factory=dict)
    common_note: str = ""  # where `common_requests` changed it
    are_rates_ranked: bool = True  # by `common_requests`
    # what `comparison` knows of it; None without a run of its own
    run: MeasuredRun | None = None

    def fact(self, name: str) -> str:
        """A fact as text; empty if the row has none of that name."""
        if name.startswith(CONSTANT):
            return name.removeprefix(CONSTANT)
        if name.startswith(ARGUMENT):
            return argument(self.words, name.removeprefix(ARGUMENT))
        if name.startswith(VARIABLE):
            return str(self.env.get(name.removeprefix(VARIABLE), ""))
        if name == "repeat":
            return str(self.repeat)
        return self.facts.get(name, "")

    def facts_named(self, names: Iterable[str]) -> tuple[str, ...]:
        """These facts as texts."""
        return tuple(self.fact(name) for name in names)

    def number(self, name: str) -> Measured:
        """A figure; None if it was not measured."""
        samples = self.samples.get(name)
        if samples is not None:
            return float(np.mean(samples)) if samples else None

        path = [name]
        if name.startswith(PATH):
            path = name.removeprefix(PATH).split(".")
        value: Any = self.figures
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return float(value) if is_number(value) else None

    def is_ranked_in(self, name: str) -> bool:
        """Whether this figure may be ranked."""
        metric = metric_of(name)
        is_latency = metric is not None and metric.latency is not None
        return self.is_ranked and (self.are_rates_ranked or is_latency)

    def why_missing(self, name: str) -> str:
        """Why a figure is missing."""
        return self.reason or self.reasons.get(name) or f"the run has no {name}"


def rows_of(cell: Cell, folder: Path, entry: Ended, place: int) -> list[Row]:
    """The rows of a cell: one per stage of its run in this folder, or one.

    `entry`: how it ended.
    """
    facts = planned_facts(cell)
    new_row = partial(
        Row,
        repeat=cell.repeat,
        place=place,
        words=words_of(cell.server),
        env=cell.server.settings.get("env", {}),
    )
    if entry.reason:
        planned = planned_concurrency(cell)
        rows = []
        for stage, users in enumerate(planned):
            row = new_row(facts=facts | {"concurrency": users}, stage=stage)
            row.is_stage = len(planned) > 1
            row.reason = entry.reason
            row.is_ranked = False
            row.figures = entry.extra
            rows.append(row)
        return rows

    try:
        if cell.load.search is not None:
            row = new_row(facts=facts)
            _add_search(row, folder)
            return [row]
        summary = read_summary(folder, MOST_SUMMARY_BYTES)
    except (OSError, ValueError) as error:
        reason = f"its run folder cannot be read: {printable(str(error), 200)}"
        return [new_row(facts=facts, reason=reason, is_ranked=False)]

    # a setting may be named like a fact, such as `model`
    facts |= reported_facts(cell, summary) | cell.settings
    rows = []
    for number, name in enumerate(summary.stages or [""]):
        row = new_row(facts=dict(facts), stage=number, is_stage=bool(name))
        row.run = _measured_run(folder, name)
        _add_stage(row, cell, summary, name, entry)
        rows.append(row)
    _add_requests(rows, cell, folder)
    return rows


def _measured_run(folder: Path, stage: str) -> MeasuredRun | None:
    """The run, or a stage of it, as `comparison` reads it; None if it cannot be read."""
    try:
        return folder_run(folder, stage)
    except LlamaLoadError:
        return None


def _add_stage(
    row: Row, cell: Cell, summary: RunSummary, name: str, entry: Ended
) -> None:
    """What a stage measured; the whole run for an empty name."""
    telemetry = summary.telemetry(name)
    figures = summary.certain(name) | entry.extra
    completed = figures.get("completed") or 0
    ended = completed + (figures.get("failed") or 0)
    figures["success_rate"] = 100 * completed / ended if ended else None
    figures["chars_per_s"] = figures.get(_CHARS)
    figures["vram_mib"] = telemetry.get("vram_peak_mib")
    figures["server_cpu_cores"] = telemetry.get("server_cpu_cores")
    figures["server_memory_mib"] = telemetry.get("server_memory_peak_mib")
    gpus = []
    for gpu in telemetry.get("by_gpu") or []:
        if isinstance(gpu, Mapping):
            gpus.append(gpu)

    for number, gpu in enumerate(gpus):
        figures[f"{BY_GPU}.{number}"] = gpu.get("vram_peak_mib")
    row.figures = figures
    row.spoiled = summary.spoiled(name)
    if _CHARS in row.spoiled:
        row.spoiled = {**row.spoiled, "chars_per_s": row.spoiled[_CHARS]}

    row.facts |= stage_facts(summary, name, figures)
    gpu_number = telemetry.get("gpus")
    if not row.facts["gpus"] and isinstance(gpu_number, int | float):
        row.facts["gpus"] = f"{gpu_number:.0f}"
    elif row.facts["gpus"] and telemetry and not gpus:
        row.facts["gpus"] += NOT_SEEN

    doubts = summary.doubts(name)
    row.reasons = entry.extra_reasons | doubts
    if _CHARS in doubts:
        row.reasons["chars_per_s"] = doubts[_CHARS]
    row.reasons |= dict.fromkeys(
        ("vram_mib", f"{BY_GPU}.0"), "telemetry saw no GPU in use"
    )
    row.reasons |= dict.fromkeys(
        ("server_cpu_cores", "server_memory_mib"),
        "telemetry saw no process of the server, or the run was too short",
    )
    if not completed:
        why = f"no request succeeded: {row.facts['reasons'] or 'none ended'}"
        row.reasons |= dict.fromkeys(figures, why)

    judged = summary.judged_in(name)
    row.facts["verdict"] = judged.shown.partition(", ")[0]
    # The server's own timings of a test are not blurred by how its answers arrive.
    excluding = (FAILED, INCOMPLETE) if cell.load.test else NOT_RANKED
    row.is_ranked = bool(completed) and not any(
        word in excluding for word in judged.words
    )
    row.cause = judged.headline or "no verdict"
    if cell.load.test and summary.disturbed:
        row.is_ranked = False  # other programs slowed down what the server timed
        row.cause = summary.disturbed
    if entry.disturbed:
        row.is_ranked = False
        row.cause = entry.disturbed
    if not name and not cell.load.test:
        row.sentences = summary.sentences


def _add_search(row: Row, folder: Path) -> None:
    """The capacity of a cell that was searched. One that is only a lower bound is not ranked.

    Raises OSError, ValueError.
    """
    document = printable_json(read_foreign_json(folder / SEARCH_JSON, inside=folder))
    sentence = str(document.get("sentence") or "")
    capacity = document.get("capacity")
    low = document.get("low")
    high = document.get("high")

    row.is_ranked = isinstance(low, int | float) and isinstance(high, int | float)
    if row.is_ranked:
        interval = f"{low:.4g} to {high:.4g}"
    else:
        least = capacity if isinstance(capacity, int | float) else 0
        interval = f"at least {least:.4g}"
    row.facts["capacity_interval"] = f"{interval} {document.get('unit')}"
    row.facts["binds"] = str(document.get("binding") or "")

    against = document.get("not_ranked")
    if isinstance(against, list) and against:
        row.is_ranked = False
        sentence = str(against[0])

    row.figures = {"capacity": capacity, "requests": document.get("requests")}
    row.cause = sentence
    row.run = _first_probe(document, folder)
    row.reasons = {"capacity": sentence}


def _first_probe(document: Mapping[str, Any], folder: Path) -> MeasuredRun | None:
    """The run of the first probe: searches of one plan begin with the same load and prompts.

    Its verdict is not that of the search.
    """
    probes = document.get("probes")
    if not isinstance(probes, list) or not probes or not isinstance(probes[0], Mapping):
        return None
    name = PurePosixPath(str(probes[0].get("run")))
    if name.is_absolute() or ".." in name.parts:
        return None
    run = _measured_run(folder / name, "")
    if run is None:
        return None
    return replace(run, words=(), planned=None, load={}, answers=None)


def _add_requests(rows: list[Row], cell: Cell, folder: Path) -> None:
    """Single requests of a small run, the rates of a test, and the first request after a start."""
    try:
        records = load_run(folder).records.measured()
    except (LlamaLoadError, OSError) as error:
        reason = printable(str(error), 200)
        for row in rows:
            row.reasons |= dict.fromkeys(("ts", "cold_start_s"), reason)
        return

    for number, row in enumerate(rows):
        of_stage = records
        if len(rows) > 1:
            of_stage = records.where(records.equals("stage", number))
        row.requests = request_rows(of_stage)
        if cell.load.test:
            _add_rates(row, of_stage, cell.load.test)
    _add_cold_start(rows[0], records)


def _add_rates(row: Row, records: Records, test: str) -> None:
    rates, is_client = rates_of_test(records, test)
    row.samples["ts"] = rates
    if is_client:
        row.marks["ts"] = CLIENT_TIMES
    if not rates and not len(records.ok()):
        row.reasons["ts"] = "no request of the test succeeded"
    elif not rates:
        row.reasons["ts"] = IN_CACHE


def _add_cold_start(row: Row, records: Records) -> None:
    """The start of the server and the TTFT of the first request."""
    start_s = row.number("server_start_s")
    ok = records.ok()
    if start_s is None:
        row.reasons["cold_start_s"] = "the server was not started for this cell alone"
    elif not len(ok):
        row.reasons["cold_start_s"] = "no request succeeded"
    else:
        first = int(np.argmin(ok.instants("started_mono_ns")))
        ttft_s = float(ok.numbers("ttft_ms")[first]) / 1e3
        row.samples["cold_start_s"] = [start_s + ttft_s]
