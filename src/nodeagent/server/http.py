"""An HTTP listener with a scope: open inside the block, gone after it."""

from __future__ import annotations

import errno
import logging
import sys
from types import TracebackType
from typing import Any, Final, Self

import anyio
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from nodeagent.log import Log

log = Log("server")

_SHUTDOWN_SECONDS = 2.0
_ADDRESS_FLAGS: Final = {"healthz": "--healthz-bind-address", "read-only": "--address"}
_NO_ADDRESS: Final = "could not bind on any address"
"""What asyncio says since Python 3.13, without a number, for an address that nobody has here."""


def bind_error(name: str, address: str, port: int, error: OSError) -> str:
    """One line that says why a listener could not open, and what to do."""
    host = f"[{address}]" if ":" in address else address
    where = f"{name} cannot listen on {host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where}: the port is taken, perhaps by another agent or a kubelet. "
            f"Choose another one with --{name}-port, or 0 for none"
        )
    if error.errno == errno.EACCES:
        return f"{where}: not permitted. Choose a port above 1023 with --{name}-port"
    if error.errno == errno.EADDRNOTAVAIL or str(error).startswith(_NO_ADDRESS):
        flag = _ADDRESS_FLAGS.get(name, "its address flag")
        return f"{where}: this machine does not have the address. Choose another one with {flag}"
    return f"{where}: {error.strerror or error}"


class _RequestLog(logging.Logger):
    """Where the HTTP library reports. A malformed request is the client's fault: no traceback."""

    def exception(self, msg: object, *args: object, **details: Any) -> None:
        """Report a fault of a handler in full, a malformed request in one line for debugging."""
        error = details.get("exc_info") or sys.exc_info()[1]
        if isinstance(error, tuple):
            error = error[1]
        if isinstance(error, HttpProcessingError):
            log.debug("bad_request", cause=str(error.message))
        elif isinstance(error, BaseException):
            log.fault("request_failed", error, detail=str(msg) % args if args else str(msg))

    error = exception


class HttpListener:
    """Serves one application on one address.

    Args:
        name: ``healthz`` or ``read-only``; names the flag in errors.
        app: what to serve.
        address: IP address to bind to.
        port: TCP port; 0 lets the system choose (see :attr:`port` afterwards).
    """

    def __init__(self, name: str, app: web.Application, address: str, port: int) -> None:
        self.name = name
        self.address = address
        self.port = port
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_RequestLog("nodeagent.server.http"),
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            keepalive_timeout=15.0,
        )

    async def __aenter__(self) -> Self:
        """Start listening.

        Raises:
            OSError: the port is taken or not permitted; the text says what to do.
        """
        try:
            await self._runner.setup()
            await web.TCPSite(self._runner, self.address, self.port).start()
        except OSError as error:
            await self._cleanup()
            text = bind_error(self.name, self.address, self.port, error)
            raise OSError(error.errno, text) from error
        except BaseException:
            # Cancelled while it opened: nothing may stay open.
            await self._cleanup()
            raise
        self.port = self._runner.addresses[0][1]
        log.info("listening", listener=self.name, address=self.address, port=self.port)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._cleanup()

    async def _cleanup(self) -> None:
        # Connections are closed also when the agent is being cancelled.
        with anyio.CancelScope(deadline=anyio.current_time() + 2 * _SHUTDOWN_SECONDS, shield=True):
            await self._runner.cleanup()
