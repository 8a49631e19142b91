"""A result file of `vllm bench serve` or vllm-bench, or our summary.json, as a run."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.run_summary import OURS, RunSummary, SummaryVerdict, summary_of
from llama_load.comparison.compared_metrics import metric_of
from llama_load.comparison.side import LLAMA_LOAD, VLLM_BENCH_SERVE, MeasuredRun
from llama_load.errors import UsageError
from llama_load.foreign_files import read_foreign_json
from llama_load.foreign_text import printable
from llama_load.metrics.check_limits import LIMITS
from llama_load.metrics.spoiled import spoiled_latencies
from llama_load.metrics.verdict_words import BLURRED, VALID, WORDS
from llama_load.targets.apis import APIS, COMPLETIONS

MOST_BYTES = 256 * 1024 * 1024  # of a result with the times of every token
MOST_CHARS = 300  # of a text from a file
_IDENTIFYING = (
    "completed",
    "duration",
    "total_input_tokens",
    "total_output_tokens",
    "mean_ttft_ms",
    "median_ttft_ms",
    "mean_tpot_ms",
)
_COUNT = re.compile(r"count_\w{1,40}|dropped")
# Keys that every result has, of whatever version.
_NEEDED = ("duration", "completed", "request_throughput")
# What a result says of its load, and the flag's name.
_SETTINGS = {
    "model_id": "model",
    "endpoint_type": "endpoint",
    "num_prompts": "requests",
    "max_concurrency": "concurrency",
    "request_rate": "request rate",
    "burstiness": "burstiness",
}
# Of these the ones that are the load, and what each endpoint type of vLLM's sends to.
_LOAD = ("max_concurrency", "request_rate", "burstiness")
_ENDPOINTS = {api.bench_name: api.name for api in reversed(APIS.values())} | {"vllm": COMPLETIONS.name}  # its earlier name
MOST_SERVERS = 16  # of a shared run


def result_run(file: Path, part: str = "") -> MeasuredRun:
    """The run that a result file describes; `part`: a stage of it. Raises UsageError."""
    return run_of(read_json(file), file.name, part)


def run_of(result: Mapping[str, Any], name: str, part: str = "") -> MeasuredRun:
    """The run of a result's object. `part`: a stage of it. Raises UsageError where it is none."""
    if missing := [key for key in _NEEDED if key not in result]:
        raise UsageError(f"{name} is no result of llama-load, vllm bench serve or vllm-bench: it has no {', no '.join(missing)}")
    if isinstance(result.get(OURS), dict):
        return _own_run(result, summary_of(result), name, part)
    if part:
        raise UsageError(f"{name} has no stages; name it without #{part}")
    values = values_of(result)
    completed, planned = whole(result.get("completed")) or 0, whole(result.get("num_prompts"))
    return MeasuredRun(
        name=name,
        values=values,
        tool=VLLM_BENCH_SERVE,
        planned=None if planned is None or planned < completed else planned,
        samples=_samples(result),
        setup={"measured with": f"{VLLM_BENCH_SERVE} or vllm-bench", "client backend": text(result.get("backend"))}
        | _settings(result),
        load=_settings(result, _LOAD),
        endpoint=_ENDPOINTS.get(text(result.get("endpoint_type")) or text(result.get("backend")), ""),
        date=text(result.get("date")),
        identity=identity_of(values),
        label=text(result.get("label")),
        concurrency=whole(result.get("max_concurrency")),
    )


def stages_in(result: Mapping[str, Any]) -> list[str]:
    """The names of the stages of one of our summaries."""
    return list(summary_of(result).stages) if isinstance(result.get(OURS), dict) else []


def _settings(result: Mapping[str, Any], keys: Collection[str] = _SETTINGS) -> dict[str, str]:
    """The load that a result describes, name to value."""
    return {_SETTINGS[key]: text(result[key]) for key in keys if result.get(key) is not None}


def _own_run(result: Mapping[str, Any], summary: RunSummary, name: str, part: str) -> MeasuredRun:
    stage = None
    figures, more = summary.figures, summary.ours
    if part:
        if part not in summary.stages:
            known = f"its stages are {', '.join(map(text, summary.stages))}" if summary.stages else "it has no stages"
            raise UsageError(f"{name} has no stage {part!r}: {known}")
        figures = more = stage = summary.stages[part]
    # TPOT by the tokens between the events, where summary.json has it: its top level has that of vLLM's formula.
    own_tpot = {key: value for key, value in more.items() if key.endswith(("_tpot_ms", "count_tpot"))}
    values = values_of({**figures, **own_tpot}) | values_of(summary.telemetry(part))
    completed, failed = whole(figures.get("completed")) or 0, whole(figures.get("failed")) or 0
    ended = completed + failed
    reused = whole(more.get("reused_connections"))
    connect = more.get("connect")
    words, why = _verdict(summary.verdict, part)
    concurrency = whole(result.get("max_concurrency") if stage is None else stage.get("users"))
    setup, load = _settings(result) | _shared_setup(result), _settings(result, _LOAD)
    if stage is not None:
        rate = number(stage.get("rate_rps"))
        load = {"concurrency": str(concurrency)} if rate is None else {"request rate": f"{rate:g}"}
        setup |= {"concurrency": f"{part} (stage)"}
        setup.pop("requests", None)
    return MeasuredRun(
        name=f"{name}#{part}" if part else name,
        values=values,
        tool=LLAMA_LOAD,
        words=words,
        why=why,
        spoiled=_spoiled(summary.verdict, part),
        cached_tokens=whole(more.get("total_cached_tokens")),
        reused_ratio=reused / ended if reused is not None and ended else None,
        connect_ms=number(connect.get("mean")) if isinstance(connect, dict) else None,
        setup={"measured with": f"{LLAMA_LOAD} {text(summary.ours.get('version'))}".strip()} | setup,
        load=load,
        endpoint=_ENDPOINTS.get(text(result.get("endpoint_type")), ""),
        date=text(result.get("date")),
        identity=identity_of(values, part),
        label=text(result.get("label")),
        concurrency=concurrency,
    )


def _shared_setup(result: Mapping[str, Any]) -> dict[str, str]:
    """What a file of `llama-load share` says of hardware, server and load, name to value."""
    share = result.get("share")
    parts = {name: share.get(name) for name in ("hardware", "server", "load")} if isinstance(share, dict) else {}
    return {
        text(f"{part} {name}".replace("_", " ")): text(msgspec.json.encode(value).decode() if isinstance(value, list) else value)
        for part, values in parts.items()
        for name, value in _named(values)
        if value is not None
    }


def _named(values: object) -> list[tuple[str, Any]]:
    """The fields of an object, or of the objects in a list, of which several are numbered."""
    if isinstance(values, dict):
        return list(values.items())
    several = values[:MOST_SERVERS] if isinstance(values, list) else []
    return [
        (f"{number} {name}" if len(several) > 1 else name, value)
        for number, fields in enumerate(several, 1)
        if isinstance(fields, dict)
        for name, value in fields.items()
    ]


def _verdict(verdict: SummaryVerdict | None, part: str) -> tuple[tuple[str, ...], str]:
    """The words but VALID, and their cause; of a stage those of its own checks and of the whole run's."""
    if verdict is None:
        return ("without a verdict",), "its summary.json has no verdict that can be read"
    if not part:
        return tuple(word for word in verdict.words if word in WORDS and word != VALID), text(verdict.headline)
    bad = [check for check in verdict.checks if not check.ok and check.stage in (None, part) and check.word is not None]
    words = {check.word for check in bad}
    return tuple(word for word in WORDS if word in words), text(bad[0].text if bad else "")


def _samples(result: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Values in ms of each latency in a detailed result (`--save-detailed`), whose times are in seconds. Failed requests have
    no output."""
    samples = {}
    ttfts, outputs, itls, latencies = (result.get(key) for key in ("ttfts", "output_lens", "itls", "latencies"))
    if isinstance(ttfts, list) and isinstance(outputs, list) and len(ttfts) == len(outputs):
        samples["ttft"] = _ms([value for value, tokens in zip(ttfts, outputs, strict=True) if tokens])
    if isinstance(itls, list):
        lists = [[gap for gap in map(number, gaps) if gap is not None] if isinstance(gaps, list) else [] for gaps in itls]
        samples["itl"] = _ms([gap for gaps in lists for gap in gaps])
        if isinstance(outputs, list) and len(outputs) == len(lists):
            counts = [whole(tokens) or 0 for tokens in outputs]
            samples["tpot"] = _ms([sum(gaps) / (tokens - 1) for gaps, tokens in zip(lists, counts, strict=True) if tokens > 1])
    if isinstance(latencies, list):
        samples["e2el"] = _ms(latencies)
    return {key: values for key, values in samples.items() if len(values)}


def _ms(seconds: list[Any]) -> NDArray[np.float64]:
    known = [value for value in map(number, seconds) if value is not None and math.isfinite(value)]
    return np.asarray(known, dtype=np.float64) * 1e3


# ---------------------------------------------------------------------- values of JSON


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises UsageError."""
    if not file.is_file():
        raise UsageError(f"{file} is no file; name a run folder or a result JSON")
    try:
        return read_foreign_json(file, MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        why = printable(str(error), 200)
        raise UsageError(f"{file} is no result: {why}; name a summary.json, or what vllm bench serve --save-result wrote") from None


def values_of(result: Mapping[str, Any]) -> dict[str, float | None]:
    """Its figures and counts, by key; None where it has no usable number."""
    return {key: number(value) for key, value in result.items() if metric_of(key) is not None or _COUNT.fullmatch(key)}


def number(value: object) -> float | None:
    """A finite number that is not negative; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def whole(value: object) -> int | None:
    """A count; None for anything else."""
    figure = number(value)
    return None if figure is None else int(figure)


def text(value: object) -> str:
    """A text for a table or a message; empty where there is none."""
    return "" if value is None else printable(str(value), MOST_CHARS)


def identity_of(values: Mapping[str, float | None], part: str = "") -> str:
    """Equal for the same run read twice, from its folder or a result file: by figures that both have. No two runs last equally long
    and have the same mean TTFT and TPOT."""
    figures = [values.get(key) for key in _IDENTIFYING]
    return hashlib.sha256(json.dumps([figures, part]).encode()).hexdigest() if any(figures) else ""


def _spoiled(verdict: SummaryVerdict | None, part: str) -> tuple[str, ...]:
    """The latencies that failed checks spoil, where the run can be compared otherwise.

    Of a stage: by its own checks and those of the whole run."""
    checks = [] if verdict is None else verdict.checks
    failed = [check for check in checks if check.word == BLURRED and not check.ok]
    own = [check for check in failed if not part or check.stage in (None, part)]
    keys = [key for check in own for key in spoiled_latencies(check.spoils or LIMITS[check.name].spoils)]
    return tuple(dict.fromkeys(keys))
