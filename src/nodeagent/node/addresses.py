"""The node's own addresses. Blocking; meant for a thread."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, TypeAlias

from nodeagent.node.facts import FoundAddresses

_Address: TypeAlias = IPv4Address | IPv6Address

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


def is_local(address: str) -> bool:
    """Whether an interface of the machine has the address."""
    family = socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def find_addresses(given: Sequence[str], hostname: str) -> FoundAddresses:
    """The node's addresses (docs/behaviour/node.md, "Addresses").

    Args:
        given: addresses that the configuration names, at most one of each family.
        hostname: the node's host name.
    """
    concrete = [text for text in given if not ip_address(text).is_unspecified]
    for text in concrete:
        if fault := address_fault(text):
            return FoundAddresses(error=fault)
    if concrete:
        return FoundAddresses(ips=tuple(concrete))
    family = 6 if given and ip_address(given[0]).version == 6 else 4
    for found in (_written(hostname), _resolved(hostname, family), _routed(family)):
        if found:
            return FoundAddresses(ips=(found,))
    return FoundAddresses(
        error="cannot find an address of this machine: its name has none that an interface has, "
        "and there is no default route; give one with --node-ip"
    )


def address_fault(text: str) -> str:
    """Why others cannot reach the machine by the address; "" when they can."""
    address = ip_address(text)
    kinds = {
        "a loopback address": address.is_loopback,
        "a multicast address": address.is_multicast,
        "a link-local address": address.is_link_local,
        "an unspecified address": address.is_unspecified,
    }
    for kind, holds in kinds.items():
        if holds:
            return f'node IP: "{text}" is {kind}'
    if not is_local(text):
        return f'node IP: "{text}" not found in the host\'s network interfaces'
    return ""


def _written(hostname: str) -> str:
    """The host name itself, when it is an address."""
    with suppress(ValueError):
        return str(ip_address(hostname))
    return ""


def _resolved(hostname: str, family: int) -> str:
    """The first good address of the name, if there is one of the wanted family."""
    addresses: list[_Address] = []
    with suppress(OSError, UnicodeError):
        for *_, where in socket.getaddrinfo(hostname, None, type=socket.SOCK_DGRAM):
            with suppress(ValueError):
                addresses.append(ip_address(where[0]))
    good = [address for address in addresses if not address_fault(str(address))]
    good.sort(key=lambda address: address.version != family)
    return str(good[0]) if good else ""


def _routed(family: int) -> str:
    kind = socket.AF_INET6 if family == 6 else socket.AF_INET
    found = default_route_address(kind)
    return found if found and not address_fault(found) else ""
