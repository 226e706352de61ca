"""The node's own addresses. Blocking; meant for a thread."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

_DOCUMENTATION_NETS: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses of RFC 5737 and RFC 3849 that nobody has; connecting a datagram socket to one sends
nothing."""


def default_route_address(family: socket.AddressFamily = socket.AF_INET) -> str:
    """The address that the default route of the family uses; "" when there is no such route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_DOCUMENTATION_NETS[family], 9))
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return ""


def primary_address() -> str:
    """The address that the default route uses, or the loopback address when there is none."""
    return default_route_address() or "127.0.0.1"


def host_address(given: Sequence[str]) -> str:
    """The address for pods on the host network.

    Args:
        given: addresses that the configuration names; an unspecified one stands for any of its
            family.
    """
    for text in given:
        address = ip_address(text)
        if not address.is_unspecified:
            return text
        if address.version == 6:
            return default_route_address(socket.AF_INET6) or "::1"
    return primary_address()
