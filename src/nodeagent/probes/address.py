"""Where a network probe goes: host and port, and sockets that leave nothing behind."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Final

from nodeagent.http_action import AddressError, choose_host, join, quick_socket, resolve_port, why

__all__ = [
    "USER_AGENT",
    "ProbeError",
    "choose_host",
    "connect",
    "join",
    "quick_socket",
    "resolve_port",
    "why",
]

USER_AGENT: Final = "kube-probe/1.36"

ProbeError = AddressError
"""A probe cannot be made; says why."""


async def connect(host: str, port: int) -> socket.socket:
    """Connect to the first address of the host that answers. Has no deadline of its own.

    Raises:
        OSError: none does, or the host has no address.
    """
    loop = asyncio.get_running_loop()
    last: OSError = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for family, address in await _addresses(host, port):
        with ExitStack() as until_connected:
            made = until_connected.enter_context(quick_socket(family))
            try:
                await loop.sock_connect(made, address)
            except OSError as error:
                last = error
                continue
            until_connected.pop_all()
            return made
    raise last


async def _addresses(host: str, port: int) -> list[tuple[int, tuple[object, ...]]]:
    try:
        version = ip_address(host).version
    except ValueError:
        # A name is looked up in a thread.
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]
    return [(socket.AF_INET if version == 4 else socket.AF_INET6, (host, port))]
