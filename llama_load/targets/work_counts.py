"""How many requests a server works on now: to see whether it stopped for users who hung up."""

from __future__ import annotations

import re

from llama_load.plain_http import NoAnswerError, Session
from llama_load.targets.target import Target
from llama_load.wire.tls import TlsOptions

TIMEOUT_S = 5.0
_LABELS = r"(?:\{[^}\n]{0,500}\})?[ \t]+(\d{1,9}(?:\.\d{1,9})?)"


def working_on(target: Target, tls: TlsOptions) -> int | None:
    """Busy slots and waiting requests; without a page of slots, running and waiting requests. None: not reported."""
    kind = target.kind
    metrics = kind.metrics
    names = [] if metrics is None else [name for name in ("" if kind.slots_path else metrics.running, metrics.waiting) if name]
    session = Session(target.headers, tls.context)
    try:
        slots = _busy_slots(session, target.control_urls(kind.slots_path)) if kind.slots_path else 0
        text = _pages(session, target.control_urls("/metrics")) if target.has_counters and names else ""
    except (NoAnswerError, ValueError):
        return None
    prefix = re.escape("" if metrics is None else metrics.prefix)
    counts = re.findall(f"^{prefix}(?:{'|'.join(map(re.escape, names))}){_LABELS}", text, re.MULTILINE) if names else []
    if slots is None or not (kind.slots_path or counts):
        return None
    return slots + int(sum(map(float, counts)))


def is_healthy(target: Target, tls: TlsOptions) -> bool:
    """Whether the server answers at /health, or, if it has no such page, at all."""
    try:
        return Session(target.headers, tls.context).get(f"{target.address.url}/health", within_s=TIMEOUT_S).status in (200, 404)
    except NoAnswerError:
        return False


def _busy_slots(session: Session, urls: list[str]) -> int | None:
    busy = 0
    for url in urls:
        answer = session.get(url, within_s=TIMEOUT_S)
        slots = answer.json() if answer.ok else None
        if not isinstance(slots, list):
            return None
        busy += sum(isinstance(slot, dict) and slot.get("is_processing") is True for slot in slots)
    return busy


def _pages(session: Session, urls: list[str]) -> str:
    return "\n".join(session.get(url, within_s=TIMEOUT_S).text for url in urls)
