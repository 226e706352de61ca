"""An HTTP listener with a scope: open inside the block, gone after it."""

from __future__ import annotations

import asyncio
import errno
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import TaskGroup

from nodeagent.log import Log
from nodeagent.server.app import App
from nodeagent.server.connection import Connection

log = Log("server")

_SHUTDOWN_SECONDS: Final = 2.0
_MOST_CONNECTIONS: Final = 256
_ADDRESS_FLAGS: Final = {
    "healthz": "--healthz-bind-address",
    "read-only": "--address",
    "api": "--address",
}
_PORT_FLAGS: Final = {"api": "--port"}
_NO_ADDRESS: Final = "could not bind on any address"
"""What asyncio says since Python 3.13, without a number, for an address that nobody has here."""


def bind_error(name: str, address: str, port: int, error: OSError) -> str:
    """One line that says why a listener could not open, and what to do."""
    host = f"[{address}]" if ":" in address else address
    where = f"{name} cannot listen on {host}:{port}"
    port_flag = _PORT_FLAGS.get(name, f"--{name}-port")
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where}: the port is taken, perhaps by another agent or a kubelet. "
            f"Choose another one with {port_flag}, or 0 for none"
        )
    if error.errno == errno.EACCES:
        return f"{where}: not permitted. Choose a port above 1023 with {port_flag}"
    if error.errno == errno.EADDRNOTAVAIL or str(error).startswith(_NO_ADDRESS):
        flag = _ADDRESS_FLAGS.get(name, "its address flag")
        return f"{where}: this machine does not have the address. Choose another one with {flag}"
    return f"{where}: {error.strerror or error}"


class HttpListener:
    """Serves one application on one address.

    Args:
        name: ``healthz`` or ``read-only``; names the flag in errors.
        app: what to serve.
        address: IP address to bind to.
        port: TCP port; 0 lets the system choose (see :attr:`port` afterwards).
    """

    def __init__(self, name: str, app: App, address: str, port: int) -> None:
        self.name = name
        self.address = address
        self.port = port
        self._app = app
        self._tasks: TaskGroup | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._drained = anyio.Event()

    async def __aenter__(self) -> Self:
        """Start listening.

        Raises:
            OSError: the port is taken or not permitted; the text says what to do.
        """
        self._tasks = tasks = anyio.create_task_group()
        await tasks.__aenter__()
        try:
            self._server = await asyncio.start_server(self._connected, self.address, self.port)
        except BaseException as error:
            await tasks.__aexit__(None, None, None)
            if not isinstance(error, OSError):
                raise  # cancelled while it opened
            text = bind_error(self.name, self.address, self.port, error)
            raise OSError(error.errno, text) from error
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("listening", listener=self.name, address=self.address, port=self.port)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        assert self._server is not None
        self._server.close()
        for connection in tuple(self._connections):
            connection.finish()
        # Answers under way are given also when the agent is being cancelled.
        with anyio.move_on_after(_SHUTDOWN_SECONDS, shield=True):
            while self._connections:
                await self._drained.wait()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._tasks is not None
        if len(self._connections) >= _MOST_CONNECTIONS:
            log.warning("too_many_connections", listener=self.name, limit=_MOST_CONNECTIONS)
            writer.transport.abort()
            return
        connection = Connection(self._app, reader, writer)
        self._connections.add(connection)
        self._tasks.start_soon(self._serve, connection)

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.serve()
        finally:
            connection.close()
            self._connections.discard(connection)
            self._drained.set()
            self._drained = anyio.Event()
