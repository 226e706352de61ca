"""Where a network probe goes: host and port, and sockets that leave nothing behind."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Final

from nodeagent.api import Container, IntOrString

USER_AGENT: Final = "kube-probe/1.36"

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_HIGHEST_PORT: Final = 65535


class ProbeError(Exception):
    """A probe cannot be made; says why."""


def resolve_port(port: IntOrString, container: Container) -> int:
    """The number of a port that is given by number, by name, or by a number in quotes.

    Raises:
        ProbeError: the container has no port of that name, or the number is no port.
    """
    number = port if isinstance(port, int) else _by_name(port, container)
    if not 0 < number <= _HIGHEST_PORT:
        msg = f"invalid port number: {number}"
        raise ProbeError(msg)
    return number


def _by_name(name: str, container: Container) -> int:
    for port in container.ports:
        if port.name == name:
            return port.container_port
    if name.isascii() and name.isdecimal():
        return int(name)
    msg = f"container {container.name} has no port named {name!r}"
    raise ProbeError(msg)


def choose_host(wanted: str, address: str) -> str:
    """The host of the action, or else the pod's address.

    Raises:
        ProbeError: there is neither.
    """
    if not (wanted or address):
        raise ProbeError("the pod has no address yet")
    return wanted or address


def join(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def quick_socket(family: int = socket.AF_INET) -> socket.socket:
    """A TCP socket that is gone as soon as it is closed: nothing stays in TIME-WAIT here."""
    # The loop turns Nagle's algorithm off only where it sees that this is TCP.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setblocking(False)  # noqa: FBT003 - the socket's own word
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    return made


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


def why(error: OSError) -> str:
    """The system's word for an error, in lower case as network tools print it."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror).lower()
    number = error.errno
    return os.strerror(number).lower() if number else str(error).lower()
