"""The TCP connections from a server to its RPC workers, as this machine's kernel counts them: payload bytes and round trip time.

Read with `ss` (iproute2), which needs no rights. None are found if the server runs on another machine.
"""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

COMMAND = ("ss", "-tinH", "state", "established")
ANSWERS_WITHIN_S = 5.0
MOST_CHARS = 10**7
_NUMBERS = {name: re.compile(rf"\b{name}:(\d+(?:\.\d+)?)") for name in ("bytes_sent", "bytes_received", "minrtt", "rtt")}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of one worker: bytes sent to it and received from it since the connections were opened; the shortest round trip seen."""

    sent_bytes: int
    received_bytes: int
    rtt_ms: float | None


def traffic_to(addresses: Iterable[str]) -> dict[str, Traffic]:
    """The traffic to each of these workers (HOST:PORT) that this machine is connected to."""
    endpoints = {each: _endpoints(each) for each in addresses}
    if not endpoints:
        return {}
    try:
        done = subprocess.run(COMMAND, capture_output=True, timeout=ANSWERS_WITHIN_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return read_ss(done.stdout[:MOST_CHARS].decode(errors="replace"), endpoints)


def read_ss(text: str, endpoints: dict[str, set[str]]) -> dict[str, Traffic]:
    """The traffic in the output of `ss`: a line with both ends of a connection, then an indented one with its figures."""
    found: dict[str, Traffic] = {}
    worker = None
    for line in text.splitlines():
        if line[:1].strip():
            ends = [word for word in line.split() if word.rpartition(":")[2].isdigit() and ":" in word]
            worker = next((name for name, ours in endpoints.items() if len(ends) > 1 and ends[1] in ours), None)
        elif worker is not None:
            numbers = {name: float(match[1]) for name, pattern in _NUMBERS.items() if (match := pattern.search(line))}
            rtt_ms = numbers.get("minrtt", numbers.get("rtt"))
            before = found.get(worker, Traffic(0, 0, None))
            found[worker] = Traffic(
                before.sent_bytes + int(numbers.get("bytes_sent", 0)),
                before.received_bytes + int(numbers.get("bytes_received", 0)),
                min(filter(None, (rtt_ms, before.rtt_ms)), default=None),
            )
    return found


def _endpoints(address: str) -> set[str]:
    """How `ss` shows the worker's end: its IP addresses with the port; IPv6 in brackets, IPv4 perhaps mapped."""
    host, _, port = address.rpartition(":")
    found = set()
    with suppress(OSError, UnicodeError):
        for _, _, _, _, sockaddr in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            ip = sockaddr[0]
            found |= {f"{ip}:{port}", f"[{ip}]:{port}", f"[::ffff:{ip}]:{port}"}
    return found
