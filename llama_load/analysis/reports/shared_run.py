"""A run to show to others: figures, verdict, load, and what the hardware is.

Nothing in it could be private. Every field is chosen here, and its value must be a number, a word
of a list of ours, or a text of a known form; anything else is left out. So host names, addresses,
paths, prompts, labels, names of models and of stages, messages of servers and keys cannot be in it,
whatever a run folder holds. (`run_folder` data is foreign: a run may be somebody else's.)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from llama_load.analysis.checks.verdict import Verdict
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.gpu_figures import GpuFigures
from llama_load.analysis.figures.level import Level, levels_of
from llama_load.analysis.reports.shared_sentences import (
    CLOSED_LOOP,
    figures_sentence,
    hardware_sentence,
    load_sentence,
    server_sentence,
)
from llama_load.analysis.results.keys import configured_load, flat_result, uncertain
from llama_load.analysis.results.results import Results
from llama_load.analysis.results.run_summary import is_number
from llama_load.ground.version import __version__
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import TABLE, Manifest, result_schemas
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.run_folder.probe_file import PROBES
from llama_load.run_folder.result_schemas import VERSIONS
from llama_load.run_folder.telemetry_file import TELEMETRY
from llama_load.run_folder.vocabulary.definitions import EVERY, FIGURES, of_group
from llama_load.run_folder.vocabulary.verdict_words import AS_FAR_AS_SEEN, WORDS
from llama_load.servers.apis import APIS
from llama_load.servers.kinds import KINDS
from llama_load.tables.numbers import NONE

FORMAT = 1
OTHER = "other"
TOO_FEW = "too few values"
SPOILED = "spoiled by a failed check"
MOST_GPUS = 64
# Forms of texts that may be shown. A product's name must begin with a vendor or a family: it comes
# from drivers and exporters.
_GPU = re.compile(
    r"(?:NVIDIA|AMD|Intel|Apple|Tesla|GeForce|Quadro|Radeon|Instinct)"
    r"(?: [A-Za-z0-9()+-]{1,16}){1,8}"
)
_CPU = re.compile(
    r"(?:AMD|Intel(?:\(R\))?|Apple|ARM|Ampere|Neoverse-)(?: ?[A-Za-z0-9()@.+-]{1,16}){1,10}"
)
_QUANTIZATION = re.compile(
    r"(?:all )?(?:I?Q\d(?:_[A-Z0-9]{1,3}){0,3}|TQ\d_\d|B?F16|FP16|F32|FP8|FP4|MXFP4|NVFP4|AWQ|GPTQ)"
    r"(?: - Medium| - Small)?"
)
# A public model: its family, then sizes, versions and kinds, and no word of anybody's own.
_MODEL = re.compile(
    r"(?:demo|(?:meta-)?llama|tinyllama|code-?llama|qwen|qwq|mistral|mixtral|ministral|devstral"
    r"|gemma|phi|deepseek|gpt-oss|glm|smollm|falcon|yi|granite|olmo|command-r|nemotron|exaone|kimi"
    r"|minimax|starcoder|internlm|bge|nomic-embed)"
    r"(?:[-_. ]?(?:[a-z]?\d{1,4}(?:\.\d{1,3})?[bmkex]?|\d{1,2}x\d{1,3}b|a\d{1,3}b"
    r"|instruct|chat|it|base|coder"
    r"|code|math|vl|vision|omni|moe|think(?:ing)?|reason(?:er|ing)?|nano|mini|micro|tiny|small"
    r"|medium|large|xl|plus|pro|air|flash|preview|distill|qwen|llama|text|embed|reranker|h"
    r"|i?q\d(?:[_-][a-z0-9]{1,3}){0,3}|b?f16|f32|fp8|mxfp4|awq|gptq|int[48]|gguf)){0,12}",
    re.IGNORECASE,
)
_BUILD = re.compile(
    r"b\d{1,6}-(?:[0-9a-f]{7,12}|unknown)|v?\d{1,4}(?:\.\d{1,4}){1,3}(?:(?:rc|post|dev)\d{1,4})?"
)
_DEVICE = re.compile(r"(?:CPU|CUDA|ROCm|Vulkan|Metal|SYCL|RPC|BLAS)\d{0,2}")
_KV = re.compile(
    r"[KV]?\s?\(?(?:f16|bf16|f32|q\d_\d|fp8)\)?"
    r"(?:[ ,/]{1,2}[KV]?\s?\(?(?:f16|bf16|f32|q\d_\d|fp8)\)?)?"
)
_LAYERS = re.compile(r"-?\d{1,5}|auto|all")
_PYTHON = re.compile(r"3\.\d{1,2}(?:\.\d{1,2})?")
_VERSION = re.compile(r"\d{1,3}(?:\.\d{1,3}){1,2}(?:\.dev\d{1,4})?")
# Of the names of checks: people read what was checked, not in which unit.
_UNIT = re.compile(r"(_p99)?_(ms|s|ratio|bytes)$")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TABLES = (TELEMETRY, PROBES)
_SYSTEMS = ("Linux", "macOS", "Darwin", "Windows")
_MACHINES = ("x86_64", "aarch64", "arm64", "riscv64", "ppc64le")
_FLASH = ("on", "off", "auto", "1", "0", "enabled", "disabled", "true", "false")
_WORKLOADS = (
    "sharegpt",
    "document",
    "vision",
    "mixed",
    "synthetic",
    "embeddings",
    "rerank",
    "replay",
    "custom",
    "conversations",
    "agent",
)
_BUNDLED = ("sharegpt_sample.json", "sample_document.md", "speculation_prompts.jsonl")
_ENDS = ("complete", "time", "stopped", "interrupted", "aborted", "server")
_ARRIVALS = ("poisson", "gamma", "constant", "trace")
_LOCAL = ("localhost", "127.0.0.1", "::1")
# Whole numbers of a server that may be shown.
COUNTS = (
    "n_params",
    "model_bytes",
    "layers",
    "layers_offloaded",
    "threads",
    "threads_batch",
    "batch",
    "micro_batch",
    "slots",
    "context",
    "context_per_slot",
)


def shared_run(results: Results) -> dict[str, Any]:
    """The JSON to share.

    Figures are under the keys of summary.json, so that `llama-load compare` reads it.
    """
    manifest = results.run.manifest
    total = results.total
    figures = _shared_figures(results)
    few = uncertain(manifest, total)
    uncertain_keys = {}
    for key in uncertain(manifest, total, checks=results.verdict.checks):
        if key in figures:
            uncertain_keys[key] = TOO_FEW if key in few else SPOILED

    hardware = _hardware(results)

    shared: dict[str, Any] = {result_schemas.KEY: VERSIONS[result_schemas.SHARE]}
    shared |= _about(manifest) | figures
    shared["llama_load"] = {
        "version": _form(_VERSION, manifest.version),
        "verdict": _shared_verdict(results.verdict),
        "total_cached_tokens": _finite_number(total.total_cached_tokens),
        "reused_connections": _finite_number(total.reused_connections),
        "uncertain": uncertain_keys,
    }

    shared["share"] = {
        "format": FORMAT,
        "written_by": __version__,
        "hardware": hardware,
        "hardware_id": _hardware_digest(hardware),
        "server": list(map(_server, manifest.servers)),
        "load": _shared_load(results),
        "levels": list(map(_shared_level, levels_of(results.stages))),
        "digests": _digests(manifest),
    }

    return shared


def _about(manifest: Manifest) -> dict[str, Any]:
    """The fields that vLLM's result file has before its figures."""
    most, rate = configured_load(manifest)
    api = APIS.get(manifest.endpoint)
    date = manifest.date[:8]
    is_unlimited = rate is None and manifest.arrival is None

    return {
        "max_concurrency": _finite_number(most),
        "request_rate": "inf" if is_unlimited else _finite_number(rate),
        "burstiness": _finite_number(manifest.burstiness),
        "num_prompts": _finite_number(manifest.num_prompts),
        "endpoint_type": api.bench_name if api else OTHER,
        "date": date if date.isascii() and date.isdigit() else "",
    }


def _digests(manifest: Manifest) -> dict[str, str]:
    """SHA-256 of the run's tables, as it noted them.

    Who has the run can show that it is this one.
    """
    digests = {}
    written = manifest.records
    if written is not None and _SHA256.fullmatch(written.sha256):
        digests[TABLE] = written.sha256
    for name, digest in (manifest.digests or {}).items():
        if name in _TABLES and _SHA256.fullmatch(digest):
            digests[name] = digest
    return digests


def _shared_verdict(verdict: Verdict) -> dict[str, Any]:
    """Words and names of checks that we know; their texts could hold foreign ones."""
    bad = set()
    for check in verdict.checks:
        if not check.ok and check.name in LIMITS:
            bad.add(check.name)

    checks: list[dict[str, Any]] = []
    texts = []
    for name in sorted(bad):
        text = _UNIT.sub("", name).replace("_", " ")
        texts.append(text)
        checks.append({"name": name, "ok": False, "text": text})

    shown = []
    for word in verdict.shown:
        if word in (*WORDS, AS_FAR_AS_SEEN):
            shown.append(word)

    headline = ", ".join(shown)
    if texts:
        headline += f" ({', '.join(texts)})"

    words = [word for word in verdict.words if word in WORDS]

    return {"words": words, "headline": headline, "checks": checks}


def shared_markdown(shared: Mapping[str, Any]) -> str:
    """The same for people: a row, four sentences, and three tables that are folded."""
    ours = shared["llama_load"]
    share = shared["share"]
    figures = []
    for key, value in shared.items():
        if _is_figure(key) and value is not None and key not in ours["uncertain"]:
            figures.append((key, f"{value:.6g}"))

    headline = ours["verdict"]["headline"]
    version = ours["version"] or ""
    lines = [*shared_row(shared), "", f"**{headline}**", ""]
    sentences = (
        figures_sentence(shared),
        f"Load: {load_sentence(shared)}",
        f"Server: {server_sentence(shared)}",
        f"Hardware: {hardware_sentence(shared)} ({share['hardware_id']})",
    )
    for sentence in filter(None, sentences):
        lines.append(f"- {sentence}")
    summary = f"<summary>All figures and settings, llama-load {version}</summary>"
    lines += ["", "<details>", summary, ""]
    machines = [*_flat(share["hardware"]), *_flat({"server": share["server"]})]
    lines += _markdown_table("Hardware and server", machines)
    lines += _markdown_table("Load", list(_flat(share["load"])))
    if share["levels"]:
        stages = list(_flat({"stage": share["levels"]}))
        lines += _markdown_table("Stages", stages)
    lines += _markdown_table("Figures", figures)
    lines += ["</details>", ""]

    return "\n".join(lines)


def shared_row(shared: Mapping[str, Any]) -> list[str]:
    """The run as a row of Markdown under its headings: to post."""
    server = (shared["share"]["server"] or [{}])[0]
    cells = [
        server.get("model") or "a model",
        server.get("quantization") or NONE,
        hardware_sentence(shared),
        load_sentence(shared).partition(",")[0],
        figures_sentence(shared) or NONE,
        shared["llama_load"]["verdict"]["headline"],
    ]
    heads = ("Model", "Quantization", "GPU or CPU", "Load", "Figures", "Verdict")
    return [
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
        f"| {' | '.join(cells)} |",
    ]


def _markdown_table(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    lines = [f"| {title} | |", "|---|---|"]
    for name, value in rows:
        lines.append(f"| {name} | {value} |")
    lines.append("")
    return lines


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Each leaf that is known, by the names on the way to it."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(part, f"{name} {key}".strip())
    elif isinstance(value, list):
        for number, part in enumerate(value, 1):
            yield from _flat(part, f"{name} {number}" if len(value) > 1 else name)
    elif value is not None:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        yield name, printable(text, 200)


# ---------------------------------------------------------------------- what is chosen


def _shared_figures(results: Results) -> dict[str, Any]:
    flat = flat_result(results.run.manifest, results.total)
    figures = {}
    for key, value in flat.items():
        if _is_figure(key):
            figures[key] = _finite_number(value)

    return figures


_FIGURE_KEYS = frozenset(figure.key for figure in FIGURES)
_LATENCIES = "|".join(latency.key for latency in of_group(EVERY))
_LATENCY_KEY = re.compile(
    rf"(?:(?:mean|median|std|p\d{{1,2}}(?:\.\d{{1,3}})?)_(?:{_LATENCIES})_ms"
    rf"|count_(?:{_LATENCIES})|dropped)"
)


def _is_figure(key: str) -> bool:
    return key in _FIGURE_KEYS or _LATENCY_KEY.fullmatch(key) is not None


def _hardware(results: Results) -> dict[str, Any]:
    """GPUs of the server, by telemetry, and the client's machine.

    The client's machine is the server's where the server is local.
    """
    manifest = results.run.manifest
    host = manifest.host
    urls = [urlsplit(str(target.get("url"))).hostname for target in manifest.targets]
    platform = str(host.get("platform") or "")
    cpu = " ".join(str(host.get("cpu") or "").split())

    return {
        "gpus": [_gpu(gpu) for gpu in results.telemetry.gpus[:MOST_GPUS]],
        "client_cpu": _form(_CPU, cpu),
        "client_cores": _finite_number(host.get("cores")),
        "client_memory_gib": _finite_number(host.get("memory_gib")),
        "client_system": next(
            (name for name in _SYSTEMS if platform.startswith(name)), OTHER
        ),
        "client_machine": next((name for name in _MACHINES if name in platform), OTHER),
        "client_python": _form(_PYTHON, host.get("python")),
        "server_on_the_clients_machine": bool(urls)
        and all(url in _LOCAL for url in urls),
        "servers": len(manifest.targets),
        "workers": max(1, len(manifest.workers)),
    }


def _gpu(gpu: GpuFigures) -> dict[str, Any]:
    memory_mib = _finite_number(gpu.vram_total_mib)
    memory_gib = None if memory_mib is None else round(memory_mib / 1024, 1)
    return {"name": _form(_GPU, gpu.name), "vram_gib": memory_gib}


def _server(server: ServerDescription) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "kind": _word(tuple(KINDS), server.backend),
        "model": shared_model(server.model),
        "build": _form(_BUILD, server.build),
        "quantization": _form(_QUANTIZATION, server.quantization),
    }
    for name in COUNTS:
        plain[name] = _finite_number(getattr(server, name))

    devices = [_form(_DEVICE, device) for device in server.devices]
    return plain | {
        "n_gpu_layers": _form(_LAYERS, server.n_gpu_layers),
        "kv_types": _form(_KV, server.kv_types),
        "flash_attention": _word(_FLASH, server.flash_attention),
        "devices": [device for device in devices if device is not None],
        "rpc_workers": len(server.rpc),
        "draft_model": server.draft is not None,
    }


def shared_model(name: str | None) -> str | None:
    """Qwen3-4B of `Qwen/Qwen3-4B` or `/models/Qwen3-4B.gguf`; None of a model that is not a public
    one."""
    last = (name or "").rpartition("/")[2]
    return _form(_MODEL, last.removesuffix(".gguf"))


def _shared_load(results: Results) -> dict[str, Any]:
    manifest = results.run.manifest
    total = results.total
    most, rate = configured_load(manifest)
    return {
        "concurrency": _finite_number(most),
        "requests_per_s": _finite_number(rate),
        "arrivals": _word(_ARRIVALS, manifest.arrival)
        if manifest.arrival
        else CLOSED_LOOP,
        "stages": len(manifest.stages) or None,
        "workload": _word(_WORKLOADS, manifest.workload),
        "endpoint": _word(tuple(APIS), manifest.endpoint),
        "data": _word(_BUNDLED, _name_of_data(manifest)),
        "fixed_lengths": bool(manifest.fixed_lengths),
        "prompt_cache_intended": bool(manifest.cache_meant),
        "ended": _word(_ENDS, manifest.end),
        "mean_prompt_tokens": _mean_tokens(total.total_input_tokens, total.completed),
        "mean_output_tokens": _mean_tokens(total.total_output_tokens, total.completed),
    }


def _shared_level(level: Level) -> dict[str, float | None]:
    """A stage by its load, never by its name; without figures that are not sure."""
    return {
        "users": None if level.is_rate else _finite_number(level.load),
        "requests_per_s": _finite_number(level.load) if level.is_rate else None,
        "output_throughput": (
            _finite_number(level.tok_per_s) if level.is_rate_sure else None
        ),
        "median_ttft_ms": (
            _finite_number(level.ttft_ms) if level.is_ttft_sure else None
        ),
    }


def _name_of_data(manifest: Manifest) -> str:
    """The file name of the data set; empty if there is none."""
    if not isinstance(manifest.prompts, dict):
        return ""
    data = manifest.prompts.get("dataset")
    if not isinstance(data, dict):
        return ""
    return str(data.get("path") or "").rpartition("/")[2]


def _mean_tokens(tokens: int | None, requests: int) -> float | None:
    if tokens is None or not requests:
        return None
    return tokens / requests


# ---------------------------------------------------------------------- forms


def _finite_number(value: object) -> float | int | None:
    """A finite number; None for anything else."""
    if is_number(value):
        return value
    return None


def _word(known: Sequence[str], value: object) -> str:
    """A word of a list; `other` for anything else."""
    if isinstance(value, str) and value in known:
        return value
    return OTHER


def _form(pattern: re.Pattern[str], value: object) -> str | None:
    """A text of this form as a whole; None for anything else."""
    if isinstance(value, str) and len(value) <= 100 and pattern.fullmatch(value):
        return value
    return None


def _hardware_digest(value: Mapping[str, Any]) -> str:
    """Twelve digits that are equal for equal hardware."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:12]
