"""The rows of a sweep: what every cell measured, one row per stage, under the names of `values`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from llama_load.analysis.run_summary import RunSummary, is_number, read_summary
from llama_load.comparison.compared_metrics import metric_of
from llama_load.comparison.run_folder import folder_run
from llama_load.comparison.side import MeasuredRun
from llama_load.errors import LlamaLoadError
from llama_load.foreign_files import read_foreign_json
from llama_load.foreign_text import printable, printable_json
from llama_load.lab.sweep.cell_answers import Answers, answers_of
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import Ended
from llama_load.lab.sweep.gguf_facts import gguf_facts
from llama_load.lab.sweep.grammar import URL
from llama_load.lab.sweep.server_spec import argument, backend_name, gpu_count, model_name, model_path, uses_rpc, words_of
from llama_load.lab.sweep.tests_load import PROCESS, parse_test
from llama_load.lab.sweep.values import ARGUMENT, BY_GPU, CONSTANT, PATH, VARIABLE
from llama_load.metrics.verdict_words import FAILED, INCOMPLETE, NOT_COMPARABLE
from llama_load.observed.records import Records
from llama_load.reports.request_table import RequestRow, request_rows
from llama_load.run_folder import load_run
from llama_load.tables.numbers import decimal_size, parameters, size

MOST_SUMMARY_BYTES = 64 << 20
SEARCH_JSON = "search.json"
NOT_RANKED = (FAILED, INCOMPLETE, NOT_COMPARABLE)
LEAST_PROCESSED = 0.9  # of a test's prompt tokens: BOS and the beginning of a cached prefix may differ by a few
IN_CACHE = "its prompt tokens came from the server's cache; restart the server, or give another seed"
CLIENT_TIMES = "‡"  # behind a rate computed from TTFT or TPOT
Measured = float | None


@dataclass(slots=True)
class Row:
    """What one cell, or one stage of it, measured."""

    facts: dict[str, str]
    repeat: int
    place: int  # in the order of the plan
    stage: int = 0
    is_stage: bool = False  # of a run in stages
    figures: Mapping[str, Any] = field(default_factory=dict)  # keys of summary.json, flat and below llama_load
    samples: dict[str, list[float]] = field(default_factory=dict)  # a value per request
    marks: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)  # why a value is missing
    reason: str = ""  # why all are
    is_ranked: bool = True
    cause: str = ""  # the headline of its verdict
    requests: Sequence[RequestRow] = ()
    sentences: Sequence[str] = ()  # what its run found
    words: Sequence[str] = ()  # of the server's command line
    env: Mapping[str, Any] = field(default_factory=dict)
    answers: Answers | None = None
    common_note: str = ""  # where `common_requests` changed it
    are_rates_ranked: bool = True  # by `common_requests`
    run: MeasuredRun | None = None  # what `comparison` knows of it; None without a run of its own

    def fact(self, name: str) -> str:
        """A fact as text; empty if the row has none of that name."""
        if name.startswith(CONSTANT):
            return name.removeprefix(CONSTANT)
        if name.startswith(ARGUMENT):
            return argument(self.words, name.removeprefix(ARGUMENT))
        if name.startswith(VARIABLE):
            return str(self.env.get(name.removeprefix(VARIABLE), ""))
        return str(self.repeat) if name == "repeat" else self.facts.get(name, "")

    def number(self, name: str) -> Measured:
        """A figure; None if it was not measured."""
        if name in self.samples:
            return float(np.mean(self.samples[name])) if self.samples[name] else None
        value: Any = self.figures
        for part in name.removeprefix(PATH).split(".") if name.startswith(PATH) else [name]:
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
    """The rows of a cell: one per stage of its run in this folder, or one. `entry`: how it ended."""
    facts = _facts(cell)
    row = partial(Row, repeat=cell.repeat, place=place, words=words_of(cell.server), env=cell.server.settings.get("env", {}))
    if entry.reason:
        planned = planned_concurrency(cell)
        return [
            row(
                facts=facts | {"concurrency": users},
                stage=stage,
                is_stage=len(planned) > 1,
                reason=entry.reason,
                is_ranked=False,
                figures=entry.extra,
            )
            for stage, users in enumerate(planned)
        ]
    try:
        if cell.load.search is not None:
            return [row(**_searched(folder, facts))]
        summary = read_summary(folder, MOST_SUMMARY_BYTES)
    except (OSError, ValueError) as error:
        return [row(facts=facts, reason=f"its run folder cannot be read: {printable(str(error), 200)}", is_ranked=False)]
    facts |= _reported(cell, summary)
    stages = enumerate(summary.stages or [""])
    rows = []
    for number, name in stages:
        run = _measured_run(folder, name)
        rows.append(row(**_stage(cell, summary, name, entry, facts), stage=number, is_stage=bool(name), run=run))
    _add_requests(rows, cell, folder)
    return rows


def _measured_run(folder: Path, stage: str) -> MeasuredRun | None:
    """The run, or a stage of it, as `comparison` reads it; None if it cannot be read."""
    try:
        return folder_run(folder, stage)
    except LlamaLoadError:
        return None


def _reported(cell: Cell, summary: RunSummary) -> dict[str, str]:
    """Facts that the run reports; of a server that runs already also what it is."""
    facts = {"verdict": summary.shown.partition(", ")[0]}
    if cell.server.kind == URL:
        facts["model"] = str(summary.figures.get("model_id") or "")
        facts["backend"] = cell.server.backend or backend_name(str(summary.figures.get("backend") or ""))
    if (threads := _server_threads(summary)) is not None:
        facts["server_threads"] = str(threads)
    return facts


def _stage(cell: Cell, summary: RunSummary, name: str, entry: Ended, facts: Mapping[str, str]) -> dict[str, Any]:
    """What a stage measured, as fields of its row; the whole run for an empty name."""
    telemetry = summary.telemetry(name)
    flat = summary.certain(name) | entry.extra
    completed, failed = flat.get("completed") or 0, flat.get("failed") or 0
    peaks = [gpu.get("vram_peak_mib") for gpu in telemetry.get("by_gpu") or [] if isinstance(gpu, Mapping)]
    flat |= {
        "success_rate": 100 * completed / (completed + failed) if completed + failed else None,
        "chars_per_s": flat.get("output_chars_per_s"),
        "vram_mib": telemetry.get("vram_peak_mib"),
        **{f"{BY_GPU}.{number}": peak for number, peak in enumerate(peaks)},
    }
    rates = flat.get("spec_decode_per_position_acceptance_rates") or []
    own = {
        "concurrency": _concurrency(name, flat, summary.figures),
        "accepted_by_position": " / ".join(f"{rate:.2f}" for rate in rates if isinstance(rate, int | float)),
        "reasons": _failure_kinds(flat),
        "succeeded": f"{completed}/{completed + failed}",
    }
    if not facts["gpus"] and isinstance(count := telemetry.get("gpus"), int | float):
        own["gpus"] = f"{count:.0f}"
    reasons = entry.extra_reasons | summary.doubts(name)
    reasons |= dict.fromkeys(("vram_mib", f"{BY_GPU}.0"), "telemetry saw no GPU in use")
    if not completed:
        reasons |= dict.fromkeys(flat, f"no request succeeded: {own['reasons'] or 'none ended'}")
    # The server's own timings of a test are not blurred by how its answers arrive.
    excluding = NOT_RANKED[:2] if cell.load.test else NOT_RANKED
    is_ranked = bool(completed) and not set(summary.words) & set(excluding)
    cause = summary.headline or "no verdict"
    found = {"facts": {**facts, **own}, "figures": flat, "reasons": reasons, "is_ranked": is_ranked, "cause": cause}
    return found | ({} if name or cell.load.test else {"sentences": summary.sentences})


def _searched(folder: Path, base: dict[str, str]) -> dict[str, Any]:
    """The row of a cell whose capacity was searched. One that is only a lower bound is not ranked. Raises OSError, ValueError."""
    document = printable_json(read_foreign_json(folder / SEARCH_JSON))
    sentence, low, high = str(document.get("sentence") or ""), document.get("low"), document.get("high")
    is_known = isinstance(low, int | float) and isinstance(high, int | float)
    value = document.get("capacity") if isinstance(document.get("capacity"), int | float) else 0
    interval = f"{low:.4g} to {high:.4g}" if is_known else f"at least {value:.4g}"
    facts = base | {"capacity_interval": f"{interval} {document.get('unit')}", "binds": str(document.get("binding") or "")}
    figures = {name: document.get(name) for name in ("capacity", "requests")}
    return {"facts": facts, "figures": figures, "is_ranked": is_known, "cause": sentence, "reasons": {"capacity": sentence}}


def _facts(cell: Cell) -> dict[str, str]:
    server = cell.server
    facts = {
        "server": server.label,
        "backend": (server.backend or backend_name(server.kind)) + (",RPC" if uses_rpc(server) else ""),
        "model": model_name(server),
        "gpus": gpu_count(server),
        "workload": cell.workload.label,
        "load": cell.load.label,
        "concurrency": "",
    }
    if cell.load.test:
        facts |= {"test": cell.load.label, "depth": str(cell.load.depth)}
    if (path := model_path(server)) is not None and (model := gguf_facts(path)) is not None:
        facts |= {
            "model_type": model.model_type,
            "size": size(model.tensor_bytes, 2),
            "params": parameters(model.params),
            "quantization": model.quantization,
            "file_size": decimal_size(model.file_bytes),
        }
    elif path is not None and path.is_dir():
        total = sum(file.stat().st_size for file in path.glob("*.safetensors") if file.is_file())
        facts |= {"file_size": decimal_size(total)} if total else {}
    return facts | cell.settings  # a setting may be named like one of the model's facts


def planned_concurrency(cell: Cell) -> list[str]:
    """What the rows of a cell will have under concurrency, as far as its flags say it: one per stage."""
    flags = {name: str(values[0]) if len(values) == 1 else ",".join(map(str, values)) for name, values in cell.flags.items()}
    if stages := flags.get("stages"):
        return [f"c={stage.strip()}" if stage.strip().isdigit() else stage.strip() for stage in stages.split(",")]
    if rate := flags.get("request-rate"):
        return [f"{rate}/s"]
    users = flags.get("u") or flags.get("users")
    return [f"c={users}" if users else ""]


def _concurrency(stage: str, figures: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    users, rate = (figures.get("users"), figures.get("rate_rps")) if stage else (summary.get("max_concurrency"), None)
    if rate is None and not stage and isinstance(summary.get("request_rate"), int | float):
        rate = summary["request_rate"]
    if rate is not None:
        return f"{rate:g}/s"
    return f"c={users}" if users is not None else stage


def _failure_kinds(figures: Mapping[str, Any]) -> str:
    """`connect 3, timeout 1`."""
    counts: Counter[str] = Counter()
    for failure in figures.get("failures") or []:
        if isinstance(failure, Mapping):
            name = str(failure.get("kind") or failure.get("status") or failure.get("name") or "failed")
            counts[name] += int(failure.get("count") or 1)
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _server_threads(summary: RunSummary) -> int | None:
    servers = summary.ours.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    threads = first.get("threads") if isinstance(first, dict) else None
    return threads if isinstance(threads, int) else None


def _add_requests(rows: list[Row], cell: Cell, folder: Path) -> None:
    """Single requests of a small run, the rates of a test, and the first request after a start."""
    try:
        records = load_run(folder).records.measured()
    except (LlamaLoadError, OSError) as error:
        for row in rows:
            row.reasons |= dict.fromkeys(("ts", "cold_start_s"), printable(str(error), 200))
        return
    for number, row in enumerate(rows):
        own = records.where(records.equals("stage", number)) if len(rows) > 1 else records
        row.answers = answers_of(own)
        row.requests = request_rows(own)
        if cell.load.test:
            rates, is_client = test_rates(own, cell.load.test)
            row.samples["ts"] = rates
            if not rates:
                row.reasons["ts"] = "no request of the test succeeded" if not len(own.ok()) else IN_CACHE
            if is_client:
                row.marks["ts"] = CLIENT_TIMES
    start = rows[0].number("server_start_s")
    ok = records.ok()
    if start is None or not len(ok):
        rows[0].reasons["cold_start_s"] = (
            "the server was not started for this cell alone" if start is None else "no request succeeded"
        )
    else:
        first = int(np.argmin(ok.instants("started_mono_ns")))
        rows[0].samples["cold_start_s"] = [start + float(ok.numbers("ttft_ms")[first]) / 1e3]


def test_rates(records: Records, test: str) -> tuple[list[float], bool]:
    """Tokens per second of each successful request of a test, and whether they come from the client's times.

    pp: prompt tokens that the server processed / its prompt time; tg: (output tokens - 1) / its time of decoding. Without the
    server's timings: the test's tokens / TTFT, and 1 / TPOT; these include the network and HTTP. A request whose tokens came from
    the cache, as of a server that had them from an earlier sweep, has no rate of pp.
    """
    column = records.ok().numbers
    kind, tokens = parse_test(test)
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind == PROCESS:
            processed = column("server_prompt_tokens")
            uncached = np.where(np.isnan(processed), column("prompt_tokens") - np.nan_to_num(column("cached_tokens")), processed)
            is_whole = ~(uncached < LEAST_PROCESSED * tokens)  # also where it is not known
            own = (processed / column("server_prompt_ms") * 1e3)[is_whole]
            client = (tokens / column("ttft_ms") * 1e3)[is_whole]
        else:
            own = (column("output_tokens") - 1) / column("server_predict_ms") * 1e3
            client = 1e3 / column("tpot_ms")
    own, client = (rates[np.isfinite(rates) & (rates > 0)] for rates in (own, client))
    return (own.tolist(), False) if len(own) else (client.tolist(), True)
