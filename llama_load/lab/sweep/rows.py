"""The rows of a sweep: what every cell measured, one row per stage, under the names of `values`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from llama_load.analysis.run_summary import RunSummary, is_number, read_summary
from llama_load.errors import LlamaLoadError
from llama_load.foreign_files import read_foreign_json
from llama_load.foreign_text import printable, printable_json
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.gguf_facts import gguf_facts
from llama_load.lab.sweep.grammar import URL
from llama_load.lab.sweep.server_spec import backend_name, gpu_count, model_name, model_path, uses_rpc, words_of
from llama_load.lab.sweep.tests_load import PROCESS, parse_test
from llama_load.lab.sweep.values import ARGUMENT, BY_GPU, CONSTANT, PATH, VARIABLE
from llama_load.metrics.latencies import predict_per_s, prompt_per_s
from llama_load.metrics.verdict_words import FAILED, INCOMPLETE, NOT_COMPARABLE
from llama_load.observed.records import Records
from llama_load.reports.request_table import request_rows
from llama_load.run_folder import load_run
from llama_load.tables.numbers import decimal_size

MOST_SUMMARY_BYTES = 64 << 20
SEARCH_JSON = "search.json"
NOT_RANKED = (FAILED, INCOMPLETE, NOT_COMPARABLE)
LEAST_PROCESSED = 0.9  # of a test's prompt tokens: BOS and the beginning of a cached prefix may differ by a few
IN_CACHE = "its prompt tokens came from the server's cache; restart the server, or give another seed"
CLIENT_TIMES = "‡"  # behind a rate computed from TTFT or TPOT
Measured = float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cell ended: `reason` says why it has no figures. `extra` holds what was measured outside the run: the server's start,
    perplexity."""

    folder: Path
    reason: str = ""
    extra: Mapping[str, float] = field(default_factory=dict)
    extra_reasons: Mapping[str, str] = field(default_factory=dict)


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
    requests: Sequence[Sequence[str]] = ()  # of reports.request_table
    words: Sequence[str] = ()  # of the server's command line
    env: Mapping[str, Any] = field(default_factory=dict)

    def fact(self, name: str) -> str:
        """A fact as text; empty if the row has none of that name."""
        if name.startswith(CONSTANT):
            return name.removeprefix(CONSTANT)
        if name.startswith(ARGUMENT):
            return _argument(self.words, name.removeprefix(ARGUMENT))
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

    def why_missing(self, name: str) -> str:
        """Why a figure is missing."""
        return self.reason or self.reasons.get(name) or f"the run has no {name}"


def rows_of(cell: Cell, outcome: Outcome, place: int) -> list[Row]:
    """The rows of a cell that has ended: one per stage of its run, or one."""
    base = _facts(cell)
    words, env = words_of(cell.server), cell.server.settings.get("env", {})

    def row(**rest: Any) -> Row:
        return Row(**({"facts": dict(base), "repeat": cell.repeat, "place": place, "words": words, "env": env} | rest))

    if cell.load.search is not None and not outcome.reason:
        return [row(**_searched(outcome.folder, base))]
    if outcome.reason:
        places = [base | {"concurrency": users} for users in planned_concurrency(cell)]
        return [
            row(
                facts=facts,
                stage=stage,
                is_stage=len(places) > 1,
                reason=outcome.reason,
                is_ranked=False,
                figures=dict(outcome.extra),
            )
            for stage, facts in enumerate(places)
        ]
    try:
        summary = read_summary(outcome.folder, MOST_SUMMARY_BYTES)
    except (OSError, ValueError) as error:
        return [row(reason=f"its run folder cannot be read: {printable(str(error), 200)}", is_ranked=False)]
    if cell.server.kind == URL:
        base["model"] = str(summary.figures.get("model_id") or "")
        base["backend"] = cell.server.backend or backend_name(str(summary.figures.get("backend") or ""))
    if (threads := _server_threads(summary)) is not None:
        base["server_threads"] = str(threads)
    common = {"verdict": summary.words[0] if summary.words else ""}
    # The server's own timings of a test are not blurred by how its answers arrive.
    excluding = NOT_RANKED[:2] if cell.load.test else NOT_RANKED
    is_ranked = not set(summary.words) & set(excluding)
    rows: list[Row] = []
    for name in summary.stages or [""]:
        doubts, telemetry = summary.doubts(name), summary.telemetry(name)
        flat = summary.certain(name) | dict(outcome.extra)
        ended = (flat.get("completed") or 0) + (flat.get("failed") or 0)
        facts = base | common | {"concurrency": _concurrency(name, flat, summary.figures), **_failures(flat)}
        flat |= {
            "success_rate": 100 * (flat.get("completed") or 0) / ended if ended else None,
            "chars_per_s": flat.get("output_chars_per_s"),
            "vram_mib": telemetry.get("vram_peak_mib"),
        }
        peaks = [gpu.get("vram_peak_mib") for gpu in telemetry.get("by_gpu") or [] if isinstance(gpu, Mapping)]
        flat |= {f"{BY_GPU}.{number}": peak for number, peak in enumerate(peaks)}
        rates = flat.get("spec_decode_per_position_acceptance_rates") or []
        facts["accepted_by_position"] = " / ".join(f"{rate:.2f}" for rate in rates if isinstance(rate, int | float))
        if not facts["gpus"] and isinstance(count := telemetry.get("gpus"), int | float):
            facts["gpus"] = f"{count:.0f}"
        reasons = dict(outcome.extra_reasons) | doubts | dict.fromkeys(("vram_mib", f"{BY_GPU}.0"), "telemetry saw no GPU in use")
        rows.append(
            row(
                facts=facts,
                stage=len(rows),
                is_stage=bool(name),
                figures=flat,
                reasons=reasons,
                is_ranked=is_ranked and bool(flat.get("completed")),
            )
        )
        rows[-1].cause = summary.headline or "no verdict"
        if not flat.get("completed"):
            rows[-1].reasons |= dict.fromkeys(flat, f"no request succeeded: {facts['reasons'] or 'none ended'}")
    _add_requests(rows, cell, outcome.folder)
    return rows


def _searched(folder: Path, base: dict[str, str]) -> dict[str, Any]:
    """The row of a cell whose capacity was searched. One that is only a lower bound is not ranked."""
    try:
        document = printable_json(read_foreign_json(folder / SEARCH_JSON))
    except (OSError, ValueError) as error:
        return {"reason": f"its search cannot be read: {printable(str(error), 200)}", "is_ranked": False}
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
            "size": model.size,
            "params": model.params_text,
            "quantization": model.quantization,
            "file_size": model.file_size,
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


def _failures(figures: Mapping[str, Any]) -> dict[str, str]:
    completed, failed = figures.get("completed") or 0, figures.get("failed") or 0
    classes: dict[str, int] = {}
    for failure in figures.get("failures") or []:
        if isinstance(failure, Mapping):
            name = str(failure.get("kind") or failure.get("status") or failure.get("name") or "failed")
            classes[name] = classes.get(name, 0) + int(failure.get("count") or 1)
    reasons = ", ".join(f"{name} {count}" for name, count in classes.items())
    return {"reasons": reasons, "succeeded": f"{completed}/{completed + failed}"}


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
        row.requests = [[cell.text for cell in cells] for cells in request_rows(own)]
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
    ok = records.ok()
    names = (
        "server_prompt_tokens",
        "server_prompt_ms",
        "output_tokens",
        "server_predict_ms",
        "prompt_tokens",
        "cached_tokens",
        "ttft_ms",
        "tpot_ms",
    )
    columns = {name: [None if np.isnan(value) else float(value) for value in ok.numbers(name)] for name in names}
    kind, tokens = parse_test(test)
    if kind == PROCESS:
        uncached = [
            processed if processed is not None or sent is None else sent - (cached or 0.0)
            for processed, sent, cached in zip(
                columns["server_prompt_tokens"], columns["prompt_tokens"], columns["cached_tokens"], strict=True
            )
        ]
        is_whole = [count is None or count >= LEAST_PROCESSED * tokens for count in uncached]
        own = [prompt_per_s(n, ms) for n, ms in zip(columns["server_prompt_tokens"], columns["server_prompt_ms"], strict=True)]
        client = [prompt_per_s(float(tokens), ms) for ms in columns["ttft_ms"]]
        own, client = ([rate if whole else None for rate, whole in zip(rates, is_whole, strict=True)] for rates in (own, client))
    else:
        own = [predict_per_s(n, ms) for n, ms in zip(columns["output_tokens"], columns["server_predict_ms"], strict=True)]
        client = [1e3 / ms if ms else None for ms in columns["tpot_ms"]]
    known = [rate for rate in own if rate]
    return (known, False) if known else ([rate for rate in client if rate], True)


def _argument(words: Sequence[str], flag: str) -> str:
    """The value of a flag on a command line, the last one given: `-t 8` or `--threads=8`."""
    value = ""
    for place, word in enumerate(words):
        if word == flag and place + 1 < len(words):
            value = words[place + 1]
        elif word.startswith(f"{flag}="):
            value = word.removeprefix(f"{flag}=")
    return value
