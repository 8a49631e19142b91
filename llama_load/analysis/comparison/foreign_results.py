"""A result file of `vllm bench serve` or vllm-bench, or our summary.json, as a run."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.comparison.compared_metrics import metric_of
from llama_load.analysis.comparison.kept_memory import counted
from llama_load.analysis.comparison.one_formula import tpot_of
from llama_load.analysis.comparison.side import (
    LLAMA_LOAD,
    VLLM_BENCH_SERVE,
    MeasuredRun,
)
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.level import Level
from llama_load.analysis.figures.spoiled import spoiled_latencies
from llama_load.analysis.results.run_summary import (
    OURS,
    RunSummary,
    SummaryVerdict,
    summary_of,
)
from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_files import read_foreign_json
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.vocabulary.verdict_words import BLURRED, VALID, WORDS
from llama_load.servers.apis import APIS, COMPLETIONS

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
# Of these the ones that are the load.
_LOAD = ("max_concurrency", "request_rate", "burstiness")
# What each endpoint type of vLLM's sends to.
_ENDPOINTS = {api.bench_name: api.name for api in reversed(APIS.values())}
_ENDPOINTS["vllm"] = COMPLETIONS.name  # its earlier name
MOST_SERVERS = 16  # of a shared run


def result_run(file: Path, part: str = "") -> MeasuredRun:
    """The run that a result file describes; `part`: a stage of it. Raises UsageError."""
    return counted(run_of(read_json(file), file.name, part))


def run_of(result: Mapping[str, Any], name: str, part: str = "") -> MeasuredRun:
    """The run of a result's object. `part`: a stage of it. Raises UsageError where it is none."""
    missing = [key for key in _NEEDED if key not in result]
    if missing:
        listed = ", no ".join(missing)
        raise UsageError(
            f"{name} is no result of llama-load, vllm bench serve or vllm-bench: "
            f"it has no {listed}"
        )

    if isinstance(result.get(OURS), dict):
        return _own_run(result, summary_of(result), name, part)
    if part:
        raise UsageError(f"{name} has no stages; name it without #{part}")

    values = values_of(result)
    completed = count_or_none(result.get("completed")) or 0
    planned = count_or_none(result.get("num_prompts"))
    if planned is not None and planned < completed:
        planned = None
    setup = {
        "measured with": f"{VLLM_BENCH_SERVE} or vllm-bench",
        "client backend": text(result.get("backend")),
    }
    endpoint_type = text(result.get("endpoint_type")) or text(result.get("backend"))
    return MeasuredRun(
        name=name,
        values=values,
        tool=VLLM_BENCH_SERVE,
        planned=planned,
        samples=_samples(result),
        setup=setup | _load_settings(result),
        load=_load_settings(result, _LOAD),
        endpoint=_ENDPOINTS.get(endpoint_type, ""),
        date=text(result.get("date")),
        identity=identity_of(values),
        label=text(result.get("label")),
        concurrency=count_or_none(result.get("max_concurrency")),
    )


def _load_settings(
    result: Mapping[str, Any], keys: Collection[str] = _SETTINGS
) -> dict[str, str]:
    """The load that a result describes, name to value."""
    settings = {}
    for key in keys:
        value = result.get(key)
        if value is not None:
            settings[_SETTINGS[key]] = text(value)

    return settings


# Latencies that vLLM's formulas count otherwise than ours.
OF_TWO_FORMULAS = ("_ttft_ms", "_tpot_ms", "_e2el_ms")


def _own_run(
    result: Mapping[str, Any], summary: RunSummary, name: str, part: str
) -> MeasuredRun:
    """The run of our summary.json, or a stage of it."""
    stage = _figures_of_stage(summary, name, part)
    figures = summary.figures
    ours = summary.ours
    by_vllm: Any = summary.figures
    if stage is not None:
        figures = stage
        ours = stage
        by_vllm = stage.get("vllm_tpot")

    # The top level of summary.json has TTFT, TPOT and E2EL by vLLM's formulas.
    own = {key: value for key, value in ours.items() if key.endswith(OF_TWO_FORMULAS)}
    values = values_of({**figures, **own})
    values |= values_of(summary.telemetry(part))

    vllm_tpot: dict[str, float | None] = {}
    if isinstance(by_vllm, Mapping):
        vllm_tpot = values_of(tpot_of(by_vllm))

    completed = count_or_none(figures.get("completed")) or 0
    failed = count_or_none(figures.get("failed")) or 0
    ended = completed + failed
    reused = count_or_none(ours.get("reused_connections"))
    reused_ratio = None
    if reused is not None and ended:
        reused_ratio = reused / ended

    connect_ms = None
    connect = ours.get("connect")
    if isinstance(connect, dict):
        connect_ms = number(connect.get("mean"))

    words, why = _words_and_cause(summary.verdict, part)

    version = text(summary.ours.get("version"))
    setup = {"measured with": f"{LLAMA_LOAD} {version}".strip()}
    setup |= _load_settings(result) | _shared_setup(result)
    load = _load_settings(result, _LOAD)
    concurrency = count_or_none(result.get("max_concurrency"))
    if stage is not None:
        concurrency = count_or_none(stage.get("users"))
        load = _load_of_stage(stage)
        setup["concurrency"] = f"{part} (stage)"
        setup.pop("requests", None)

    if part:
        name = f"{name}#{part}"

    return MeasuredRun(
        name=name,
        values=values,
        tool=LLAMA_LOAD,
        words=words,
        why=why,
        spoiled=_spoiled(summary.verdict, part),
        cached_tokens=count_or_none(ours.get("total_cached_tokens")),
        reused_ratio=reused_ratio,
        connect_ms=connect_ms,
        setup=setup,
        load=load,
        endpoint=_ENDPOINTS.get(text(result.get("endpoint_type")), ""),
        date=text(result.get("date")),
        identity=identity_of(values, part),
        label=text(result.get("label")),
        concurrency=concurrency,
        vllm_tpot=vllm_tpot,
        levels=_levels(summary, part),
    )


def _levels(summary: RunSummary, part: str) -> list[Level]:
    """The stages whose load is known, for charts; of a part the one that it is."""
    levels = []
    for name, stage in summary.stages.items():
        if part not in ("", name):
            continue

        rate_rps = number(stage.get("rate_rps"))
        users = number(stage.get("users"))
        load = users if rate_rps is None else rate_rps
        if load is None:
            continue

        doubts = summary.doubts(name)
        level = Level(
            load,
            rate_rps is not None,
            number(stage.get("median_ttft_ms")),
            number(stage.get("output_throughput")),
            is_ttft_sure="median_ttft_ms" not in doubts,
            is_rate_sure="output_throughput" not in doubts,
        )
        levels.append(level)

    return levels


def _figures_of_stage(
    summary: RunSummary, name: str, part: str
) -> Mapping[str, Any] | None:
    """The figures of the stage `part`; None for the whole run. UsageError: there is none."""
    if not part:
        return None
    if part in summary.stages:
        return summary.stages[part]
    known = "it has no stages"
    if summary.stages:
        known = f"its stages are {', '.join(map(text, summary.stages))}"
    raise UsageError(f"{name} has no stage {part!r}: {known}")


def _load_of_stage(stage: Mapping[str, Any]) -> dict[str, str]:
    rate = number(stage.get("rate_rps"))
    if rate is not None:
        return {"request rate": f"{rate:g}"}
    return {"concurrency": str(count_or_none(stage.get("users")))}


def _shared_setup(result: Mapping[str, Any]) -> dict[str, str]:
    """What a file of `llama-load share` says of hardware, server and load, name to value."""
    share = result.get("share")
    if not isinstance(share, dict):
        return {}

    setup = {}
    for part in ("hardware", "server", "load"):
        for name, value in _named_fields(share.get(part)):
            if value is None:
                continue
            if isinstance(value, list):
                value = msgspec.json.encode(value).decode()

            words = f"{part} {name}".replace("_", " ")
            setup[text(words)] = text(value)

    return setup


def _named_fields(values: object) -> list[tuple[str, Any]]:
    """The fields of an object, or of the objects in a list, of which several are numbered."""
    if isinstance(values, dict):
        return list(values.items())
    if not isinstance(values, list):
        return []

    objects = values[:MOST_SERVERS]
    fields = []
    for number_of, members in enumerate(objects, 1):
        if not isinstance(members, dict):
            continue

        for name, value in members.items():
            if len(objects) > 1:
                name = f"{number_of} {name}"

            fields.append((name, value))

    return fields


def _words_and_cause(
    verdict: SummaryVerdict | None, part: str
) -> tuple[tuple[str, ...], str]:
    """The words but VALID, and their cause; of a stage those of the checks about it."""
    if verdict is None:
        why = "its summary.json has no verdict that can be read"
        return ("without a verdict",), why

    why = verdict.headline
    if part:
        verdict = verdict.of_stage(part)
        why = ""
        if verdict.checks:
            why = verdict.checks[0].text
    words = []
    for word in verdict.words:
        if word in WORDS and word != VALID:
            words.append(word)

    return tuple(words), text(why)


def _samples(result: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Values in ms of each latency in a detailed result (`--save-detailed`).

    Its times are in seconds. Failed requests have no output.
    """
    ttfts = result.get("ttfts")
    outputs = result.get("output_lens")
    itls = result.get("itls")
    latencies = result.get("latencies")

    samples = {}
    if (
        isinstance(ttfts, list)
        and isinstance(outputs, list)
        and len(ttfts) == len(outputs)
    ):
        answered = []
        for ttft, tokens in zip(ttfts, outputs, strict=True):
            if tokens:
                answered.append(ttft)

        samples["ttft"] = _ms(answered)

    if isinstance(itls, list):
        gaps_of_requests = list(map(_numbers, itls))
        all_gaps: list[float] = []
        for gaps in gaps_of_requests:
            all_gaps += gaps

        samples["itl"] = _ms(all_gaps)
        if isinstance(outputs, list) and len(outputs) == len(gaps_of_requests):
            tpots = _tpots(gaps_of_requests, outputs)
            samples["tpot"] = _ms(tpots)

    if isinstance(latencies, list):
        samples["e2el"] = _ms(latencies)

    known = {}
    for latency, values in samples.items():
        if len(values):
            known[latency] = values

    return known


def _numbers(values: Any) -> list[float]:
    """The usable numbers of a list; none of anything else."""
    if not isinstance(values, list):
        return []

    numbers = []
    for value in values:
        figure = number(value)
        if figure is not None:
            numbers.append(figure)

    return numbers


def _tpots(
    gaps_of_requests: Sequence[Sequence[float]], outputs: Sequence[Any]
) -> list[float]:
    """Of each request the sum of its gaps / (output tokens - 1)."""
    tpots = []
    for gaps, output in zip(gaps_of_requests, outputs, strict=True):
        tokens = count_or_none(output) or 0
        if tokens > 1:
            tpots.append(sum(gaps) / (tokens - 1))
    return tpots


def _ms(seconds: list[Any]) -> NDArray[np.float64]:
    return np.asarray(_numbers(seconds), dtype=np.float64) * 1e3


# ---------------------------------------------------------------------- values of JSON


def read_json(file: Path, *, inside: Path | None = None) -> dict[str, Any]:
    """The JSON object in a file. `inside`: the run folder that it is in. Raises UsageError."""
    if not file.is_file():
        raise UsageError(f"{file} is no file; name a run folder or a result JSON")
    try:
        return read_foreign_json(file, MOST_BYTES, inside=inside)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        why = printable(str(error), 200)
        raise UsageError(
            f"{file} is no result: {why}; "
            "name a summary.json, or what vllm bench serve --save-result wrote"
        ) from None


def values_of(result: Mapping[str, Any]) -> dict[str, float | None]:
    """Its figures and counts, by key; None where it has no usable number."""
    values = {}
    for key, value in result.items():
        if metric_of(key) is not None or _COUNT.fullmatch(key):
            values[key] = number(value)
    return values


def number(value: object) -> float | None:
    """A finite number that is not negative; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or value < 0:
        return None
    return float(value)


def count_or_none(value: object) -> int | None:
    """A count; None for anything else."""
    figure = number(value)
    if figure is None:
        return None
    return int(figure)


def text(value: object) -> str:
    """A text for a table or a message; empty where there is none."""
    if value is None:
        return ""
    return printable(str(value), MOST_CHARS)


def identity_of(values: Mapping[str, float | None], part: str = "") -> str:
    """Equal for the same run read twice, from its folder or a result file.

    By figures that both have. No two runs last equally long and have the same mean TTFT and TPOT.
    """
    figures = [values.get(key) for key in _IDENTIFYING]
    if not any(figures):
        return ""

    identifying = json.dumps([figures, part])

    return hashlib.sha256(identifying.encode()).hexdigest()


def _spoiled(verdict: SummaryVerdict | None, part: str) -> tuple[str, ...]:
    """The latencies that failed checks spoil, where the run can be compared otherwise; of a stage
    by those about it."""
    if verdict is None:
        return ()

    if part:
        verdict = verdict.of_stage(part)
    spoiled: dict[str, None] = {}
    for check in verdict.checks:
        if check.word == BLURRED and not check.ok:
            spoils = check.spoils or LIMITS[check.name].spoils
            spoiled |= dict.fromkeys(spoiled_latencies(spoils))
    return tuple(spoiled)
