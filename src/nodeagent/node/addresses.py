"""The node's own address. Blocking; meant for a thread."""

from __future__ import annotations

import socket

_DOCUMENTATION_NET = "192.0.2.1"
"""An address of RFC 5737 that nobody has; connecting a datagram socket to it sends nothing."""


def primary_address() -> str:
    """The address that the default route uses, or the loopback address when there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_DOCUMENTATION_NET, 9))
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address
