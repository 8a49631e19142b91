"""What a run is, in a few words: server, model, load and plan, from its manifest of any version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_load.foreign_text import printable
from llama_load.units import quantity

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
    targets = manifest.get("targets")
    found = (
        [_text(each["url"]) for each in targets if isinstance(each, dict) and each.get("url")] if isinstance(targets, list) else []
    )
    kind = _text(manifest.get("backend"))
    return [f"{kind} at {found[0]}", *found[1:]] if found and kind else found


def load(manifest: Mapping[str, Any]) -> str:
    """`8 users`, `2 requests/s (poisson)`, `30 conversations/min (poisson)` or `stages 1, 4, 16`."""
    stages, rate, users = manifest.get("stages"), manifest.get("request_rate"), manifest.get("users")
    if isinstance(stages, list) and stages:
        names = [_text(stage.get("name")) for stage in stages if isinstance(stage, dict)]
        return f"stages {', '.join(names[:MOST_STAGES])}{' …' if len(names) > MOST_STAGES else ''}"
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        return f"{rate:g} requests/s ({_text(manifest.get('arrival')) or 'poisson'})"
    rate = manifest.get("conversation_rate")
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        return f"{rate:g} conversations/min ({_text(manifest.get('arrival')) or 'poisson'})"
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
