"""Names that no stranger can have, against DNS rebinding.

A page of others can give its own name the address 127.0.0.1, and then reads what answers there: its
name stands in Host. Source: Jackson et al., Protecting Browsers from DNS Rebinding Attacks (2007).
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

# Nobody can register a name below these (RFC 6761, RFC 6762, RFC 8375; ICANN's for .internal).
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]*)?")
_ENDINGS = ("localhost", "local", "internal", "test", "home.arpa")


def is_of_strangers(host: str) -> bool:
    """Whether the value of a Host header may be the name of a page of others.

    Addresses may not: nobody resolves them.
    """
    name = name_of(f"//{host}")
    if name is None or not _HOST.fullmatch(host):
        return True
    return not (_is_address(name) or is_local_name(name))


def name_of(url: str) -> str | None:
    """The host of a URL in lower case; None where it cannot be read."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def is_local_name(name: str) -> bool:
    """Whether no stranger can have this name: it is of one part, or below a local ending."""
    if not name or _is_address(name):
        return False
    plain = name.removesuffix(".")
    endings = tuple(f".{ending}" for ending in _ENDINGS)
    return "." not in plain or plain.endswith(endings)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
