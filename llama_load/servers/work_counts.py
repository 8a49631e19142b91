"""How many requests a server works on now: to see whether it stopped for users who hung up."""

from __future__ import annotations

import re
from typing import NamedTuple

from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.servers.api_location import MODELS
from llama_load.servers.target import Target
from llama_load.servers.tls import TlsOptions

TIMEOUT_S = 5.0
_LABELS = r"(?:\{[^}\n]{0,500}\})?[ \t]+(\d{1,9}(?:\.\d{1,9})?)"


class WorkCount(NamedTuple):
    """Requests at work."""

    at_work: int
    is_all: bool  # with those that wait for a slot; else all slots are busy, and more may wait


def working_on(target: Target, tls: TlsOptions) -> WorkCount | None:
    """Running and waiting requests by the server's metrics; without them its busy slots.

    None: not reported.
    """
    session = Session(target.headers, tls.context)
    try:
        counted = _by_metrics(session, target)
        return _by_slots(session, target) if counted is None else counted
    except (NoAnswerError, ValueError):
        return None


def is_healthy(target: Target, tls: TlsOptions) -> bool:
    """Whether the server still answers. (Not at /health, for which a gateway may send a request
    to each of its models.)"""
    session = Session(target.headers, tls.context)
    try:
        answer = session.get(target.address.url_of(MODELS), within_s=TIMEOUT_S)
    except NoAnswerError:
        return False
    return answer.status < 500


def _by_metrics(session: Session, target: Target) -> WorkCount | None:
    names = target.kind.metrics
    if not target.has_counters or names is None or not names.running:
        return None
    pages = []
    for url in target.control_urls("/metrics"):
        answer = session.get(url, within_s=TIMEOUT_S)
        if not answer.ok:
            return None
        pages.append(answer.text)

    text = "\n".join(pages)
    running = _sum_of_gauge(text, names.prefix + names.running)
    waiting = _sum_of_gauge(text, names.prefix + names.waiting)
    if running is None:
        return None
    return WorkCount(running + (waiting or 0), waiting is not None)


def _sum_of_gauge(text: str, name: str) -> int | None:
    """The sum of a gauge over its labels; None: it is not on the page."""
    values = re.findall(f"^{re.escape(name)}{_LABELS}", text, re.MULTILINE)
    return int(sum(map(float, values))) if values else None


def _by_slots(session: Session, target: Target) -> WorkCount | None:
    if not target.kind.slots_path:
        return None

    busy = 0
    has_idle = True
    for url in target.control_urls(target.kind.slots_path):
        answer = session.get(url, within_s=TIMEOUT_S)
        slots = answer.json() if answer.ok else None
        if not isinstance(slots, list):
            return None

        working = 0
        for slot in slots:
            if isinstance(slot, dict) and slot.get("is_processing") is True:
                working += 1
        busy += working
        has_idle = has_idle and working < len(slots)
    return WorkCount(busy, has_idle)
