"""The TCP connections from a server to its RPC workers, as this machine's kernel counts them.

Payload bytes and round trip times, read with `ss` (iproute2), which needs no rights. None are found
if the server runs on another machine.
"""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from llama_load.ground.own_modules import child_environment

COMMAND = ("ss", "-tinH", "state", "established")
ANSWERS_WITHIN_S = 5.0
MOST_CHARS = 10**7
_FIGURE = re.compile(r"\b(bytes_sent|bytes_received|minrtt|rtt):(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of one worker: bytes sent to it and received from it since the connections were opened.

    `rtt_ms`: the shortest round trip seen.
    """

    sent_bytes: int
    received_bytes: int
    rtt_ms: float | None


def traffic_to(addresses: Iterable[str]) -> dict[str, Traffic]:
    """The traffic to each of these workers (HOST:PORT) that this machine is connected to."""
    endpoints = {address: _endpoints(address) for address in addresses}
    if not endpoints:
        return {}
    try:
        done = subprocess.run(
            COMMAND,
            env=child_environment(),
            capture_output=True,
            timeout=ANSWERS_WITHIN_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return read_ss(done.stdout[:MOST_CHARS].decode(errors="replace"), endpoints)


def read_ss(text: str, endpoints: dict[str, set[str]]) -> dict[str, Traffic]:
    """The traffic in the output of `ss`.

    A line with both ends of a connection, then an indented one with its figures.
    """
    traffic_of: dict[str, Traffic] = {}
    worker = None
    for line in text.splitlines():
        if line[:1].strip():
            worker = _worker_of(line, endpoints)
        elif worker is not None:
            before = traffic_of.get(worker, Traffic(0, 0, None))
            traffic_of[worker] = _with_figures(before, line)
    return traffic_of


def _worker_of(line: str, endpoints: dict[str, set[str]]) -> str | None:
    """The worker at the far end of the connection of this line; None if it is none of them."""
    ends = []
    for word in line.split():
        _, colon, port = word.rpartition(":")
        if colon and port.isdigit():
            ends.append(word)
    if len(ends) < 2:
        return None

    for worker, its_ends in endpoints.items():
        if ends[1] in its_ends:
            return worker
    return None


def _with_figures(before: Traffic, line: str) -> Traffic:
    """The traffic with that of one more connection, which this line describes."""
    figures: dict[str, float] = {}
    for name, figure in _FIGURE.findall(line):
        figures.setdefault(name, float(figure))  # the first counts

    rtts_ms = [before.rtt_ms, figures.get("minrtt", figures.get("rtt"))]
    return Traffic(
        sent_bytes=before.sent_bytes + int(figures.get("bytes_sent", 0)),
        received_bytes=before.received_bytes + int(figures.get("bytes_received", 0)),
        rtt_ms=min((rtt_ms for rtt_ms in rtts_ms if rtt_ms), default=None),
    )


def _endpoints(address: str) -> set[str]:
    """How `ss` shows the worker's end: its IP addresses with the port.

    IPv6 addresses are in brackets; IPv4 ones may be mapped to them.
    """
    host, _, port = address.rpartition(":")
    ends = set()
    with suppress(OSError, UnicodeError):
        for found in socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM
        ):
            ip = found[4][0]
            ends.add(f"{ip}:{port}")
            ends.add(f"[{ip}]:{port}")
            ends.add(f"[::ffff:{ip}]:{port}")
    return ends
