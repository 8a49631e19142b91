"""How many connections this process can hold open: file descriptors and local ports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, slots=True)
class Limits:
    """Open files and local ports of this process; None where unknown."""

    open_files: int | None
    local_ports: int | None


def raised_limits() -> Limits:
    """The limits of this process, after raising its soft limit of open files to the hard limit."""
    return Limits(_raise_open_files(), _local_ports())


# Where the number is not known, or not limited.
MANY_FILES = 65_536


def open_files() -> int:
    """How many descriptors this process may have, at present."""
    try:
        import resource
    except ImportError:
        return MANY_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MANY_FILES if soft == resource.RLIM_INFINITY else soft


def _raise_open_files() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        # macOS refuses more than its kernel supports, such as infinity
        except (OSError, ValueError):
            pass
    return None if soft == resource.RLIM_INFINITY else soft


def _local_ports() -> int | None:
    try:
        low, high = map(int, PORT_RANGE.read_text().split())
    except (OSError, ValueError):
        return None
    return high - low + 1
