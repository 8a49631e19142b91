"""How many requests a server works on now: to see whether it stopped for users who hung up."""

from __future__ import annotations

import re

import requests

from llama_load.targets.control import control_session, json_of
from llama_load.targets.target import LLAMA_SERVER, Target
from llama_load.wire.tls import TlsOptions

TIMEOUT_S = 5.0
_COUNT = re.compile(
    r"^(?:vllm:num_requests_(?:running|waiting)|llamacpp:requests_deferred)(?:\{[^}\n]{0,500}\})?[ \t]+(\d{1,9}(?:\.\d{1,9})?)",
    re.MULTILINE,
)


def working_on(target: Target, tls: TlsOptions) -> int | None:
    """Busy slots of llama-server, with its queue if it has counters; running and waiting requests of vLLM. None: not reported."""
    try:
        slots = _busy_slots(target, tls) if target.backend == LLAMA_SERVER else None
        counts = _COUNT.findall(_metrics(target, tls)) if target.has_counters else []
    except (requests.RequestException, ValueError):
        return None
    if target.backend == LLAMA_SERVER:
        return None if slots is None else slots + int(sum(map(float, counts)))
    return int(sum(map(float, counts))) if counts else None


def is_healthy(target: Target, tls: TlsOptions) -> bool:
    """Whether the server answers at /health, or, if it has no such page, at all."""
    with control_session(target.headers, tls) as session:
        try:
            return bool(session.get(f"{target.address.url}/health", timeout=TIMEOUT_S).status_code in (200, 404))
        except requests.RequestException:
            return False


def _busy_slots(target: Target, tls: TlsOptions) -> int | None:
    busy = 0
    with control_session(target.headers, tls) as session:
        for url in target.control_urls("/slots"):
            answer = session.get(url, timeout=TIMEOUT_S)
            slots = json_of(answer) if answer.ok else None
            if not isinstance(slots, list):
                return None
            busy += sum(isinstance(slot, dict) and slot.get("is_processing") is True for slot in slots)
    return busy


def _metrics(target: Target, tls: TlsOptions) -> str:
    with control_session(target.headers, tls) as session:
        return "\n".join(session.get(url, timeout=TIMEOUT_S).text for url in target.control_urls("/metrics"))
