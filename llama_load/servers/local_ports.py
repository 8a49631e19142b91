"""Addresses and ports of this machine."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from llama_load.ground.errors import UsageError
from llama_load.servers.address import Address


def is_here(address: Address) -> bool:
    """Whether the address is one of this machine."""
    addresses = {
        str(sockaddr[0]).partition("%")[0] for _, sockaddr in address.endpoints
    }
    if any(
        ipaddress.ip_address(address_text).is_loopback for address_text in addresses
    ):
        return True
    own = {
        interface_address.address.partition("%")[0]
        for interface in psutil.net_if_addrs().values()
        for interface_address in interface
    }
    return not addresses.isdisjoint(own)


def is_loopback(host: str) -> bool:
    """Whether this name or address, IPv6 perhaps in brackets, is one of this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port


def refuse_taken(host: str, port: int) -> None:
    """UsageError: a server could not listen there."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as sock:
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # like servers: connections of an earlier server do not matter
            sock.bind(address)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else "there is no such port"
        raise UsageError(
            f"cannot listen on {host}:{port}: {why}; choose another --port (0 takes a free one)"
        ) from None
