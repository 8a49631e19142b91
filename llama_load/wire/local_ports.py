"""Whether an address is of this machine."""

from __future__ import annotations

import ipaddress

import psutil

from llama_load.wire.address import Address


def is_here(address: Address) -> bool:
    """Whether the address is one of this machine."""
    addresses = {str(sockaddr[0]).partition("%")[0] for _, sockaddr in address.endpoints}
    if any(ipaddress.ip_address(address_text).is_loopback for address_text in addresses):
        return True
    own = {
        interface_address.address.partition("%")[0]
        for interface in psutil.net_if_addrs().values()
        for interface_address in interface
    }
    return not addresses.isdisjoint(own)
