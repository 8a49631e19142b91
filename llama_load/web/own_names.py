"""The names of this machine and of a page, against DNS rebinding."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit


def own_names(options: Any) -> set[str]:
    """The names of this machine, and the one that --web-host gives."""
    machine = socket.gethostname().lower()
    return {
        "localhost",
        machine,
        machine.partition(".")[0],
        host_name(f"//{options.web_host}") or "localhost",
    }


def is_own_name(url: str, names: Collection[str] = ("localhost",)) -> bool:
    """Whether the host of a URL is an IP address or one of these names. (Against DNS rebinding.)"""
    name = host_name(url)
    if name is None:
        return False

    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in names

    return True


def host_name(url: str) -> str | None:
    """The host of a URL; None where it cannot be read."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
