"""Loopback ports that nobody uses at the moment."""

import itertools
import os
import socket
from typing import Final

_FIRST: Final = 20_000
_EACH: Final = 1_000
"""Ports of each worker: below those that the system gives to outgoing connections."""
_WORKERS: Final = 12

_numbers = itertools.count()


def free_port() -> int:
    """A TCP port that is free on all addresses right now, and that no other worker is given.

    Raises:
        OSError: all ports of this worker are in use.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    for _ in range(_EACH):
        port = _FIRST + worker * _EACH + next(_numbers) % _EACH
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError(f"all {_EACH} ports of worker {worker} are in use")
