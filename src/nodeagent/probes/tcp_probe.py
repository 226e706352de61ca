"""Probes that open a TCP connection."""

from __future__ import annotations

import anyio

from nodeagent.probes.address import ProbeError, choose_host, connect, join, resolve_port, why
from nodeagent.probes.outcome import Outcome, Target, failure, success, unknown, unreachable


class TcpProbe:
    """A connection that opens is success; it is closed at once, and nothing is sent."""

    async def aclose(self) -> None:
        """Nothing is kept open."""

    async def __call__(self, target: Target) -> Outcome:
        """Connect once."""
        action = target.probe.tcp_socket
        assert action is not None
        try:
            host = choose_host(action.host, target.address)
            port = resolve_port(action.port, target.container)
        except ProbeError as error:
            return unknown(str(error))
        where = f"dial tcp {join(host, port)}"
        try:
            with anyio.fail_after(target.timeout):
                made = await connect(host, port)
        except TimeoutError:
            return failure(f"{where}: i/o timeout")
        except OSError as error:
            return unreachable(f"{where}: connect: {why(error)}", error)
        made.close()
        return success()
