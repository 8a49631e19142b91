"""The names of this machine, against DNS rebinding: the only place that knows them.

A page of others can give its own name the address 127.0.0.1, and then reads what answers there: its
name stands in Host. Source: Jackson et al., Protecting Browsers from DNS Rebinding Attacks (2007).
A name is ours if it is known to be: below `.local` any device of a network can have one.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection
from functools import cache
from urllib.parse import urlsplit

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]*)?")
# Names below it are those of loopback, whoever asks (RFC 6761, section 6.3).
_LOOPBACK = "localhost"
# What programs in containers call the machine below them.
_OF_CONTAINERS = (
    "host.docker.internal",
    "host.containers.internal",
    "host.lima.internal",
)


def is_of_strangers(host: str, also_ours: Collection[str] = ()) -> bool:
    """Whether the value of a Host header may be the name of a page of others: it is no address
    (nobody resolves those), no name of this machine and none of `also_ours`."""
    name = name_of(f"//{host}")
    if name is None or not _HOST.fullmatch(host):
        return True
    return not (_is_address(name) or is_own_name(name, also_ours))


def is_own_name(name: str, also_ours: Collection[str] = ()) -> bool:
    """Whether this name is one of this machine."""
    plain = name.lower().removesuffix(".")
    if plain.endswith(f".{_LOOPBACK}"):
        return True
    return plain in _names_of_machine() or plain in also_ours


def name_of(url: str) -> str | None:
    """The host of a URL in lower case; None where it cannot be read."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


@cache
def _names_of_machine() -> frozenset[str]:
    machine = socket.gethostname().lower()
    first = machine.partition(".")[0]
    return frozenset((_LOOPBACK, machine, first, f"{first}.local", *_OF_CONTAINERS))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
