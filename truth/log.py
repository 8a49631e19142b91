"""The server's log: what it received and what it sent, and when.

JSON lines: an object per request, and one with the key `server` about the server itself.
`log.schema.json` has the schema. Instants are CLOCK_MONOTONIC, ns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from truth.foreign import lines_of, refuse_large, text_of, value_of
from truth.problem import Problem
from truth.units import NS_PER_MS, percentile

SCHEMA = "truth/1"
OK = "ok"
BY_THE_CLIENT = ("client closed", "unfinished")
MOST_NUMBER = 2**63
_TYPES = {"int": int, "str": str, "bool": bool, "tuple[int, ...]": int}


@dataclass(frozen=True, slots=True)
class Entry:
    """A request as the server saw it.

    `received_ns`: its last byte, by the kernel's clock. `sent_ns`: each token event, just before it
    was passed to the kernel. `kernel_ns`: the same by the kernel, as many or only the first, 0
    where unknown. `event_tokens`: tokens of each event where it is not one each. `outcome` is `ok`
    where the whole answer was sent, else what happened.
    """

    number: int
    received_ns: int
    sent_ns: tuple[int, ...] = ()
    kernel_ns: tuple[int, ...] = ()
    event_tokens: tuple[int, ...] = ()
    ended_ns: int = 0
    late_max_ns: int = 0
    request_id: str = ""
    outcome: str = OK
    status: int = 200
    path: str = ""
    body_bytes: int = 0
    body_sha256: str = ""
    prompt_sha256: str = ""
    prompt_tokens: int = 0
    choices: int = 1
    ignore_eos: bool = False
    tokens: int = 0

    @property
    def is_failed(self) -> bool:
        """A fault of the server ended it. What the client hung up has not failed."""
        return self.outcome not in (OK, *BY_THE_CLIENT)

    @property
    def output_tokens(self) -> int:
        """Tokens that were sent, of all choices."""
        if self.event_tokens:
            return sum(self.event_tokens)
        return len(self.sent_ns)


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one case; `server` is what the server measured of itself."""

    entries: tuple[Entry, ...]
    server: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answered(self) -> list[Entry]:
        """The requests whose whole answer was sent."""
        return [entry for entry in self.entries if entry.outcome == OK]

    @property
    def late_p99_ms(self) -> float:
        """How late the server sent against its schedule. This is in the log's instants, so in no
        client's error."""
        late_ns = self.server.get("late_p99_ns", 0)
        return float(late_ns) / NS_PER_MS

    @property
    def bound_ms(self) -> float | None:
        """How far the log's instants of sending may be from the kernel's: p99. None: there are no
        timestamps of the kernel."""
        delays = [ns for entry in self.entries for ns in _delays_ns(entry)]
        if not delays:
            return None
        return percentile(delays, 99) / NS_PER_MS


def _delays_ns(entry: Entry) -> list[int]:
    pairs = zip(entry.sent_ns, entry.kernel_ns, strict=False)
    return [kernel - sent for sent, kernel in pairs if kernel]


def read_log(path: Path) -> Log:
    """Problem: there is no such file, or a line is not of the schema."""
    try:
        text = text_of(path)
        refuse_large(text)
        lines = list(lines_of(text))
    except (OSError, ValueError) as error:
        raise Problem(f"the log cannot be read: {error}") from error

    entries: list[Entry] = []
    server: Mapping[str, Any] = {}
    for number, line in enumerate(lines, 1):
        try:
            value = _object(value_of(line))
            if "server" in value:
                server = _object(value["server"])
            else:
                entries.append(_checked(entry_of(value)))
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise Problem(
                f"{path}, line {number} is not of the log's schema ({reason})"
            ) from error
    return Log(tuple(entries), server)


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("the server is no object")
    return value


def _checked(entry: Entry) -> Entry:
    """TypeError: a field of it has another type. ValueError: a number is beyond all instants."""
    for each in fields(entry):
        value = getattr(entry, each.name)
        wanted = _TYPES[str(each.type)]
        for part in value if isinstance(value, tuple) else (value,):
            if not isinstance(part, wanted):
                raise TypeError(f"{each.name} is no {wanted.__name__}")
            if isinstance(part, int) and abs(part) > MOST_NUMBER:
                raise ValueError(f"{each.name} is too large")
    return entry


def entry_of(value: Mapping[str, Any]) -> Entry:
    """A request of the log. KeyError: it has no number or instant of receipt."""
    kernel = value.get("kernel_mono_ns")
    if kernel is None:
        first = value.get("kernel_first_mono_ns")
        kernel = [first] if first else []

    return Entry(
        number=value["number"],
        received_ns=value["received_mono_ns"],
        sent_ns=tuple(value["sent_mono_ns"]),
        kernel_ns=tuple(kernel),
        event_tokens=tuple(value.get("event_tokens", ())),
        ended_ns=value.get("ended_mono_ns") or 0,
        late_max_ns=value.get("late_max_ns", 0),
        request_id=value.get("request_id") or "",
        outcome=value["outcome"],
        status=value.get("status", 200),
        path=value.get("path", ""),
        body_bytes=value.get("body_bytes", 0),
        body_sha256=value.get("body_sha256", ""),
        prompt_sha256=value.get("prompt_sha256", ""),
        prompt_tokens=value.get("prompt_tokens", 0),
        choices=value.get("choices", 1),
        ignore_eos=value.get("ignore_eos", False),
        tokens=value.get("tokens", 0),
    )


def object_of(entry: Entry) -> dict[str, Any]:
    """The request as a line of the log has it."""
    return {
        "number": entry.number,
        "request_id": entry.request_id,
        "outcome": entry.outcome,
        "status": entry.status,
        "path": entry.path,
        "body_bytes": entry.body_bytes,
        "body_sha256": entry.body_sha256,
        "prompt_sha256": entry.prompt_sha256,
        "prompt_tokens": entry.prompt_tokens,
        "choices": entry.choices,
        "ignore_eos": entry.ignore_eos,
        "tokens": entry.tokens,
        "received_mono_ns": entry.received_ns,
        "ended_mono_ns": entry.ended_ns,
        "late_max_ns": entry.late_max_ns,
        "sent_mono_ns": list(entry.sent_ns),
        "kernel_mono_ns": list(entry.kernel_ns),
        "event_tokens": list(entry.event_tokens),
    }


def write_log(path: Path, entries: Iterable[Entry], server: Mapping[str, Any]) -> None:
    """The requests, then the server."""
    lines = [json.dumps(object_of(entry)) for entry in entries]
    about = {"schema": SCHEMA, **server}
    lines.append(json.dumps({"server": about}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
