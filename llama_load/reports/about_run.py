"""What a run is, in a few words: server, model, load and plan, from its manifest of any version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_load.foreign_text import printable
from llama_load.units import GIB, quantity

# Stages that are named one by one.
MOST_STAGES = 6


def about_run(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and texts; what is not known is left out."""
    parts = {
        "server": ", ".join(servers(manifest)),
        "model": _text(manifest.get("model")),
        "load": load(manifest),
        "plan": " · ".join(_plan(manifest)),
        "label": _text(manifest.get("label")),
    }
    return [(name, text) for name, text in parts.items() if text]


def servers(manifest: Mapping[str, Any]) -> list[str]:
    """The servers' URLs, the first with its kind."""
    urls, kind = server_urls(manifest), _text(manifest.get("backend"))
    return [f"{kind} at {urls[0]}", *urls[1:]] if urls and kind else urls


def server_urls(manifest: Mapping[str, Any]) -> list[str]:
    """The servers' URLs."""
    targets = manifest.get("targets")
    known = targets if isinstance(targets, list) else ()
    return [_text(target["url"]) for target in known if isinstance(target, dict) and target.get("url")]


def server_parts(targets: Sequence[dict[str, Any]]) -> list[str]:
    """Of the first server: backend and build, model with its size, slots; and how many servers there are."""
    if not targets:
        return []
    first = targets[0]
    name = " ".join(str(first[key]) for key in ("backend", "build") if first.get(key))
    parts = [f"{len(targets)} × {name}" if len(targets) > 1 else name]
    if first.get("model"):
        weights = f"{first['model_bytes'] / GIB:.2f} GiB" if first.get("model_bytes") else ""
        parts.append(" ".join(str(part) for part in (first["model"], first.get("quantization"), weights) if part))
    if first.get("slots"):
        context = f" × {first['ctx_per_slot']}" if first.get("ctx_per_slot") else ""
        parts.append(f"{quantity(first['slots'], 'slot')}{context}")
    return [printable(part, 60) for part in parts]


def load(manifest: Mapping[str, Any]) -> str:
    """`8 users`, `2 requests/s (poisson)`, `30 conversations/min (poisson)` or `stages 1, 4, 16`."""
    stages, users = manifest.get("stages"), manifest.get("users")
    if isinstance(stages, list) and stages:
        names = [_text(stage.get("name")) for stage in stages if isinstance(stage, dict)]
        return f"stages {', '.join(names[:MOST_STAGES])}{' …' if len(names) > MOST_STAGES else ''}"
    for key, unit in (("request_rate", "requests/s"), ("conversation_rate", "conversations/min")):
        if isinstance(rate := manifest.get(key), int | float) and not isinstance(rate, bool):
            return f"{rate:g} {unit} ({_text(manifest.get('arrival')) or 'poisson'})"
    if manifest.get("arrival") == "trace":
        return "a trace"
    return quantity(users, "user") if isinstance(users, int) and not isinstance(users, bool) else ""


def _plan(manifest: Mapping[str, Any]) -> Iterator[str]:
    workload, count, time_s = (manifest.get(name) for name in ("workload", "num_prompts", "run_time_s"))
    yield from [_text(workload)] if workload else []
    yield from [quantity(count, "request")] if isinstance(count, int) else []
    yield from [f"{time_s:g} s"] if isinstance(time_s, int | float) else []
    if count is None and time_s is None and not manifest.get("stages"):
        yield "until stopped"


def _text(value: Any) -> str:
    return "" if value is None else printable(str(value))
