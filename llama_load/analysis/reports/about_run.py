"""What a run is, in a few words: server, model, load and plan, from its manifest of any version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_load.ground.units import GIB, quantity
from llama_load.outside.foreign_text import printable

# The rates that a load may have, by their keys.
_RATES = {"request_rate": "requests/s", "conversation_rate": "conversations/min"}
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
    urls = server_urls(manifest)
    kind = _text(manifest.get("backend"))
    if urls and kind:
        urls[0] = f"{kind} at {urls[0]}"
    return urls


def server_urls(manifest: Mapping[str, Any]) -> list[str]:
    """The servers' URLs."""
    targets = manifest.get("targets")
    if not isinstance(targets, list):
        return []

    urls = []
    for target in targets:
        if isinstance(target, dict) and target.get("url"):
            urls.append(_text(target["url"]))

    return urls


def server_parts(targets: Sequence[dict[str, Any]]) -> list[str]:
    """Of the first server: backend and build, model with its size, slots.

    And how many servers there are.
    """
    if not targets:
        return []

    first = targets[0]
    name = _joined(first.get("backend"), first.get("build"))
    parts = [f"{len(targets)} × {name}" if len(targets) > 1 else name]
    if first.get("model"):
        weights = ""
        if first.get("model_bytes"):
            weights = f"{first['model_bytes'] / GIB:.2f} GiB"

        parts.append(_joined(first["model"], first.get("quantization"), weights))

    if first.get("slots"):
        slots = quantity(first["slots"], "slot")
        if first.get("ctx_per_slot"):
            slots += f" × {first['ctx_per_slot']}"

        parts.append(slots)

    return [printable(part, 60) for part in parts]


def _joined(*known: object) -> str:
    """What is known of these, with spaces."""
    return " ".join(str(part) for part in known if part)


def load(manifest: Mapping[str, Any]) -> str:
    """What the load was.

    `8 users`, `2 requests/s (poisson)`, `30 conversations/min (poisson)` or `stages 1, 4, 16`.
    """
    stages = manifest.get("stages")
    if isinstance(stages, list) and stages:
        return _stages_sentence(stages)

    for key, unit in _RATES.items():
        rate = manifest.get(key)
        if isinstance(rate, int | float) and not isinstance(rate, bool):
            arrival = _text(manifest.get("arrival")) or "poisson"
            return f"{rate:g} {unit} ({arrival})"

    if manifest.get("arrival") == "trace":
        return "a trace"

    users = manifest.get("users")
    if isinstance(users, int) and not isinstance(users, bool):
        return quantity(users, "user")

    return ""


def _stages_sentence(stages: list[Any]) -> str:
    names = [_text(stage.get("name")) for stage in stages if isinstance(stage, dict)]
    text = f"stages {', '.join(names[:MOST_STAGES])}"
    if len(names) > MOST_STAGES:
        text += " …"
    return text


def _plan(manifest: Mapping[str, Any]) -> Iterator[str]:
    workload = manifest.get("workload")
    count = manifest.get("num_prompts")
    time_s = manifest.get("run_time_s")
    if workload:
        yield _text(workload)
    if isinstance(count, int):
        yield quantity(count, "request")
    if isinstance(time_s, int | float):
        yield f"{time_s:g} s"
    if count is None and time_s is None and not manifest.get("stages"):
        yield "until stopped"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return printable(str(value))
