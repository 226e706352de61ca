"""An address of this machine under which the API server reaches a node.

A node's address must not be a loopback one. One of a private network, on the loopback interface,
is as good, and nobody else can reach it.
"""

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.e2e.lab.host import run

_BESIDE: Final = 1 << 16


@contextmanager
def node_address(subnet: str) -> Iterator[str]:
    """Give this machine an address for a while.

    Args:
        subnet: of the pods; the address is taken from the same place of the next larger network,
            so that laboratories side by side do not meet.
    """
    first = ipaddress.ip_network(subnet).network_address
    address = str(first + _BESIDE + 1)
    run("ip", "address", "replace", f"{address}/32", "dev", "lo")
    try:
        yield address
    finally:
        run("ip", "address", "delete", f"{address}/32", "dev", "lo")
