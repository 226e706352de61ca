"""Loopback ports that nobody uses at the moment."""

import socket


def free_port() -> int:
    """A TCP port that is free on all addresses right now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
