"""A run to show to others: figures, verdict, load, and what the hardware is. Nothing that could be private.

Every field is chosen here, and its value must be a number, a word of a list of ours, or a text of a known form; anything else is
left out. So host names, addresses, paths, prompts, labels, names of models and of stages, messages of servers and keys cannot be
in it, whatever a run folder holds. (`run_folder` data is foreign: a run may be somebody else's.)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from llama_load.analysis.keys import configured_load, flat_result, uncertain
from llama_load.analysis.results import Results
from llama_load.analysis.run_summary import is_number
from llama_load.foreign_text import printable
from llama_load.metrics.check_limits import LIMITS
from llama_load.metrics.definitions import EVERY, FIGURES, of_group
from llama_load.metrics.verdict_words import AS_FAR_AS_SEEN, WORDS
from llama_load.observed.server_description import ServerDescription
from llama_load.targets.apis import APIS
from llama_load.targets.servers import KINDS
from llama_load.version import __version__

VERSION = 1
OTHER = "other"
TOO_FEW, SPOILED = "too few values", "spoiled by a failed check"
MOST_GPUS = 64
# Forms of texts that may be shown. A product's name must begin with a vendor or a family: it comes from drivers and exporters.
_GPU = re.compile(r"(?:NVIDIA|AMD|Intel|Apple|Tesla|GeForce|Quadro|Radeon|Instinct)(?: [A-Za-z0-9()+-]{1,16}){1,8}")
_CPU = re.compile(r"(?:AMD|Intel(?:\(R\))?|Apple|ARM|Ampere|Neoverse-)(?: ?[A-Za-z0-9()@.+-]{1,16}){1,10}")
_QUANTIZATION = re.compile(
    r"(?:all )?(?:I?Q\d(?:_[A-Z0-9]{1,3}){0,3}|TQ\d_\d|B?F16|FP16|F32|FP8|FP4|MXFP4|NVFP4|AWQ|GPTQ)(?: - Medium| - Small)?"
)
_BUILD = re.compile(r"b\d{1,6}-(?:[0-9a-f]{7,12}|unknown)|v?\d{1,4}(?:\.\d{1,4}){1,3}(?:(?:rc|post|dev)\d{1,4})?")
_DEVICE = re.compile(r"(?:CPU|CUDA|ROCm|Vulkan|Metal|SYCL|RPC|BLAS)\d{0,2}")
_KV = re.compile(r"[KV]?\s?\(?(?:f16|bf16|f32|q\d_\d|fp8)\)?(?:[ ,/]{1,2}[KV]?\s?\(?(?:f16|bf16|f32|q\d_\d|fp8)\)?)?")
_LAYERS = re.compile(r"-?\d{1,5}|auto|all")
_PYTHON = re.compile(r"3\.\d{1,2}(?:\.\d{1,2})?")
_VERSION = re.compile(r"\d{1,3}(?:\.\d{1,3}){1,2}(?:\.dev\d{1,4})?")
_SYSTEMS, _MACHINES = ("Linux", "macOS", "Darwin", "Windows"), ("x86_64", "aarch64", "arm64", "riscv64", "ppc64le")
_WORKLOADS = (
    *("sharegpt", "document", "vision", "mixed", "synthetic", "embeddings", "rerank", "replay", "custom", "conversations", "agent"),
)
_BUNDLED = ("sharegpt_sample.json", "sample_document.md", "speculation_prompts.jsonl")
_ENDS = ("complete", "time", "stopped", "interrupted", "aborted", "server")
_ARRIVALS = ("poisson", "gamma", "constant", "trace")
_LOCAL = ("localhost", "127.0.0.1", "::1")
# Whole numbers of a server that may be shown.
_COUNTS = (
    *("n_params", "model_bytes", "layers", "layers_offloaded", "threads", "threads_batch", "batch", "micro_batch", "slots"),
    *("context", "context_per_slot"),
)


def shared_run(results: Results) -> dict[str, Any]:
    """The JSON to share: figures under the keys of summary.json, so that `llama-load compare` reads it."""
    manifest, verdict = results.run.manifest, results.verdict
    bad = sorted({check.name for check in verdict.checks if not check.ok and check.name in LIMITS})
    checks: list[dict[str, Any]] = [{"name": name, "ok": False, "text": name.replace("_", " ")} for name in bad]
    words = [word for word in verdict.words if word in WORDS]
    shown = [word for word in verdict.shown if word in (*WORDS, AS_FAR_AS_SEEN)]
    headline = ", ".join(shown) + (f" ({', '.join(check['text'] for check in checks)})" if checks else "")
    most, rate = configured_load(manifest)
    about = {
        "max_concurrency": _number(most),
        "request_rate": "inf" if rate is None and manifest.arrival is None else _number(rate),
        "burstiness": _number(manifest.burstiness),
        "num_prompts": _number(manifest.num_prompts),
        "endpoint_type": api.bench_name if (api := APIS.get(manifest.endpoint)) else OTHER,
        "date": date if (date := manifest.date[:8]).isdigit() else "",
    }
    total = results.total
    few = uncertain(manifest, total)
    doubts = uncertain(manifest, total, checks=verdict.checks)
    reasons = {key: TOO_FEW if key in few else SPOILED for key in doubts}
    return (
        about
        | _figures(results)
        | {
            "llama_load": {
                "version": _form(_VERSION, manifest.version),
                "verdict": {"words": words, "headline": headline, "checks": checks},
                "total_cached_tokens": _number(total.total_cached_tokens),
                "reused_connections": _number(total.reused_connections),
                "uncertain": {key: why for key, why in reasons.items() if key in _figures(results)},
            },
            "share": {
                "format": VERSION,
                "written_by": __version__,
                "hardware": (hardware := _hardware(results)),
                "hardware_id": _digest(hardware),
                "server": [_server(server) for server in manifest.servers],
                "load": _load(results),
            },
        }
    )


def shared_markdown(shared: Mapping[str, Any]) -> str:
    """The same for people: a paragraph and three tables."""
    ours, share = shared["llama_load"], shared["share"]
    verdict = ours["verdict"]
    uncertain_keys = ours["uncertain"]
    rows = [
        (key, f"{value:.6g}")
        for key, value in shared.items()
        if _is_figure(key) and value is not None and key not in uncertain_keys
    ]
    lines = [f"**{verdict['headline']}** · llama-load {ours['version'] or ''} · hardware {share['hardware_id']}", ""]
    lines += _table("Hardware and server", [*_flat(share["hardware"]), *_flat({"server": share["server"]})])
    lines += _table("Load", list(_flat(share["load"])))
    lines += _table("Figures", rows)
    return "\n".join(lines)


def _table(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    return [f"| {title} | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Each leaf that is known, by the names on the way to it."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(part, f"{name} {key}".strip())
    elif isinstance(value, list):
        for number, part in enumerate(value, 1):
            yield from _flat(part, f"{name} {number}" if len(value) > 1 else name)
    elif value is not None:
        yield name, printable(f"{value:.6g}" if isinstance(value, float) else str(value), 200)


# ---------------------------------------------------------------------- what is chosen


def _figures(results: Results) -> dict[str, Any]:
    flat = flat_result(results.run.manifest, results.total)
    return {key: _number(value) for key, value in flat.items() if _is_figure(key)}


_FIGURE_KEYS = frozenset(figure.key for figure in FIGURES)
_LATENCY_KEY = re.compile(
    rf"(?:(?:mean|median|std|p\d{{1,2}}(?:\.\d{{1,3}})?)_(?:{'|'.join(latency.key for latency in of_group(EVERY))})_ms"
    rf"|count_(?:{'|'.join(latency.key for latency in of_group(EVERY))})|dropped)"
)


def _is_figure(key: str) -> bool:
    return key in _FIGURE_KEYS or _LATENCY_KEY.fullmatch(key) is not None


def _hardware(results: Results) -> dict[str, Any]:
    """GPUs of the server, by telemetry; the client's machine, which is the server's where the server is local."""
    manifest = results.run.manifest
    host = manifest.host
    urls = [urlsplit(str(target.get("url"))).hostname for target in manifest.targets]
    platform = str(host.get("platform") or "")
    gpus = [
        {"name": _form(_GPU, gpu.name), "vram_gib": None if (mib := _number(gpu.vram_total_mib)) is None else round(mib / 1024, 1)}
        for gpu in results.telemetry.gpus[:MOST_GPUS]
    ]
    return {
        "gpus": gpus,
        "client_cpu": _form(_CPU, " ".join(str(host.get("cpu") or "").split())),
        "client_cores": _number(host.get("cores")),
        "client_memory_gib": _number(host.get("memory_gib")),
        "client_system": next((name for name in _SYSTEMS if platform.startswith(name)), OTHER),
        "client_machine": next((name for name in _MACHINES if name in platform), OTHER),
        "client_python": _form(_PYTHON, host.get("python")),
        "server_on_the_clients_machine": bool(urls) and all(url in _LOCAL for url in urls),
        "servers": len(manifest.targets),
        "workers": max(1, len(manifest.workers)),
    }


def _server(server: ServerDescription) -> dict[str, Any]:
    return {
        "kind": _word(tuple(KINDS), server.backend),
        "build": _form(_BUILD, server.build),
        "quantization": _form(_QUANTIZATION, server.quantization),
        **{name: _number(getattr(server, name)) for name in _COUNTS},
        "n_gpu_layers": _form(_LAYERS, server.n_gpu_layers),
        "kv_types": _form(_KV, server.kv_types),
        "flash_attention": _word(("on", "off", "auto", "1", "0", "enabled", "disabled", "true", "false"), server.flash_attention),
        "devices": [name for device in server.devices if (name := _form(_DEVICE, device)) is not None],
        "rpc_workers": len(server.rpc),
        "draft_model": server.draft is not None,
    }


def _load(results: Results) -> dict[str, Any]:
    manifest, total = results.run.manifest, results.total
    most, rate = configured_load(manifest)
    data = manifest.prompts.get("dataset") if isinstance(manifest.prompts, dict) else None
    name = str(data.get("path") or "").rpartition("/")[2] if isinstance(data, dict) else ""
    mean = {
        f"mean_{kind}_tokens": tokens / total.completed if tokens is not None and total.completed else None
        for kind, tokens in (("prompt", total.total_input_tokens), ("output", total.total_output_tokens))
    }
    return {
        "concurrency": _number(most),
        "requests_per_s": _number(rate),
        "arrivals": _word(_ARRIVALS, manifest.arrival) if manifest.arrival else "closed loop",
        "stages": len(manifest.stages) or None,
        "workload": _word(_WORKLOADS, manifest.workload),
        "endpoint": _word(tuple(APIS), manifest.endpoint),
        "data": _word(_BUNDLED, name),
        "fixed_lengths": bool(manifest.fixed_lengths),
        "prompt_cache_intended": bool(manifest.cache_meant),
        "ended": _word(_ENDS, manifest.end),
        **mean,
    }


# ---------------------------------------------------------------------- forms


def _number(value: object) -> float | int | None:
    """A finite number; None for anything else."""
    return value if is_number(value) else None


def _word(known: Sequence[str], value: object) -> str:
    """A word of a list; `other` for anything else."""
    return value if isinstance(value, str) and value in known else OTHER


def _form(pattern: re.Pattern[str], value: object) -> str | None:
    """A text of this form as a whole; None for anything else."""
    return value if isinstance(value, str) and len(value) <= 100 and pattern.fullmatch(value) else None


def _digest(value: Mapping[str, Any]) -> str:
    """Twelve digits that are equal for equal hardware."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:12]
