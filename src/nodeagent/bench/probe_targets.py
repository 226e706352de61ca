"""The process that a measurement of probes asks: HTTP and gRPC health on loopback.

Run as ``python -m nodeagent.bench.probe_targets``; it writes its ports as one line of JSON, and
ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

from grpclib.server import Server

from nodeagent.proto.grpc.health.v1 import (
    HealthBase,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthCheckResponseServingStatus,
)

_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n"
    b"Connection: close\r\n\r\nok"
)


class _Health(HealthBase):
    async def check(self, message: HealthCheckRequest) -> HealthCheckResponse:
        del message
        return HealthCheckResponse(status=HealthCheckResponseServingStatus.SERVING)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_ANSWER)
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # a TCP probe only connects
    finally:
        writer.close()


async def _serve() -> None:
    web = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=1024)
    health = Server([_Health()])
    await health.start("127.0.0.1", 0)
    sockets = health._server.sockets  # type: ignore[union-attr]  # grpclib does not tell the port
    ports = {"http": web.sockets[0].getsockname()[1], "grpc": sockets[0].getsockname()[1]}
    print(json.dumps(ports), flush=True)  # noqa: T201 - what the parent waits for
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(_serve())
    except ImportError:
        asyncio.run(_serve())
