"""Whether an address is of this machine."""

from __future__ import annotations

import ipaddress

import psutil

from llama_load.wire.address import Address


def is_here(address: Address) -> bool:
    """Whether the address is one of this machine."""
    found = {str(sockaddr[0]).partition("%")[0] for _, sockaddr in address.endpoints}
    if any(ipaddress.ip_address(each).is_loopback for each in found):
        return True
    own = {each.address.partition("%")[0] for interface in psutil.net_if_addrs().values() for each in interface}
    return not found.isdisjoint(own)
