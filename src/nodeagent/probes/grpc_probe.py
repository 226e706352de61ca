"""Probes that ask the gRPC health service."""

from __future__ import annotations

import socket

import anyio

from nodeagent.duration import format_duration
from nodeagent.probes.address import (
    USER_AGENT,
    ProbeError,
    choose_host,
    connect,
    join,
    resolve_port,
    why,
)
from nodeagent.probes.outcome import (
    MAX_TEXT,
    Outcome,
    Target,
    failure,
    success,
    unknown,
    unreachable,
)
from nodeagent.rpc import RpcError, Unimplemented, call_once

_METHOD = "/grpc.health.v1.Health/Check"


class GrpcProbe:
    """``grpc.health.v1.Health/Check`` that answers SERVING is success."""

    async def aclose(self) -> None:
        """Nothing is kept open."""

    async def __call__(self, target: Target) -> Outcome:
        """Ask once, over a connection of its own."""
        action = target.probe.grpc
        assert action is not None
        try:
            host = choose_host("", target.address)
            port = resolve_port(action.port, target.container)
        except ProbeError as error:
            return unknown(str(error))
        place, limit = join(host, port), format_duration(target.timeout)
        from nodeagent.proto.grpc.health import v1 as _loaded  # noqa: F401 - not in its time

        late = f'timeout: failed to connect service "{place}" within {limit}'
        try:
            with anyio.fail_after(target.timeout):
                made = await connect(host, port)
                late = f"timeout: health rpc did not complete within {limit}"
                return await _check(made, place, action.service or "")
        except TimeoutError:
            return failure(late)
        except OSError as error:
            text = f'error: failed to connect service at "{place}": {why(error)}'
            return unreachable(text, error)


async def _check(made: socket.socket, place: str, service: str) -> Outcome:
    from nodeagent.proto.grpc.health.v1 import HealthCheckRequest, HealthCheckResponse

    try:
        reply = await call_once(
            made,
            _METHOD,
            HealthCheckRequest(service=service),
            HealthCheckResponse,
            authority=place,
            user_agent=USER_AGENT,
            limit=MAX_TEXT,
        )
    except Unimplemented as error:
        protocol = "the grpc health protocol (grpc.health.v1.Health)"
        return failure(f"error: this server does not implement {protocol}: {error.message}")
    except RpcError as error:
        return failure(f"error: health rpc probe failed: {error}")
    name = reply.status.name or str(int(reply.status))
    if name == "SERVING":
        return success("service healthy")
    return failure(f'service unhealthy (responded with "{name}")')
