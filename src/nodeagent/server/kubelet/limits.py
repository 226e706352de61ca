"""How much one client may ask of the agent, and of the API server through it.

docs/behaviour/server.md, "Limits".
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import Final

import anyio

RATE: Final = 5.0
"""Tokens a second, in the long run, about which the API server is asked for one client."""
BURST: Final = 50
"""Such tokens that may come at once."""
MOST_OPEN: Final = 64
"""Questions to the API server that may be open at a time."""
LONGEST_TOKEN: Final = 64 * 1024
MOST_CONNECTIONS: Final = 4096
MOST_OF_ONE: Final = MOST_CONNECTIONS // 2
_MOST_PEERS: Final = 4096
_NETWORK: Final = 64


def client_of(address: str) -> str:
    """Who counts as one client: an address, or the network of one of IP version 6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, _NETWORK), strict=False))
    return str(found)


class PeerLimits:
    """A bucket of ``burst`` for each client, that fills with ``rate`` a second of loop time.

    Args:
        rate: see above.
        burst: see above; at least 1.
    """

    def __init__(self, rate: float = RATE, burst: int = BURST) -> None:
        self._period = 1.0 / rate
        self._slack = self._period * (burst - 1)
        # When the bucket of each will be full again.
        self._full_at: dict[str, float] = {}

    def take(self, client: str) -> bool:
        """Take one from a client's bucket; False when it is empty."""
        now = anyio.current_time()
        turn = max(self._full_at.get(client, now), now)
        if turn - now > self._slack:
            return False
        self._make_room(now)
        self._full_at[client] = turn + self._period
        return True

    def _make_room(self, now: float) -> None:
        if len(self._full_at) < _MOST_PEERS:
            return
        self._full_at = {who: at for who, at in self._full_at.items() if at > now}
        while len(self._full_at) >= _MOST_PEERS:
            del self._full_at[next(iter(self._full_at))]


class PeerCounts:
    """How many of something each client has.

    Args:
        most: that one may have.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def enter(self, client: str) -> bool:
        """Count one more; False when it is one too many."""
        if self._open[client] >= self._most:
            return False
        self._open[client] += 1
        return True

    def leave(self, client: str) -> None:
        """One that was counted is gone."""
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]
