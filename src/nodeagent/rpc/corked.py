"""A transport that sends at once what is written in one turn of the event loop.

grpclib writes the headers of a request, its message, and the headers, the message and the status
of an answer one by one. Each write is a system call and wakes the other side, who then waits for
the rest. Put together, a call costs one write and one wake-up each way.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

_ENOUGH: Final = 256 * 1024
"""Bytes that are not held back: what is large fills a write by itself, and its sender must see
in time that the other side does not keep up. All containers of a node are less, so that the end
of the answer goes with them."""


class Corked(asyncio.Transport):
    """Holds what is written until the loop's next turn, or until it is much.

    Args:
        transport: where it goes; everything but writing is passed on.
        loop: the loop of the transport.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._size = 0
        self._gone = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send soon."""
        if not data:
            return
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(bytes(data))
        self._size += len(data)
        if self._size >= _ENOUGH:
            self.flush()

    def flush(self) -> None:
        """Send now what is held."""
        held, self._held, self._size = self._held, [], 0
        if not held or self.is_closing():
            return
        try:
            self._transport.write(b"".join(held) if len(held) > 1 else held[0])
        except RuntimeError:
            # uvloop closes the transport of a connection whose maker was cancelled, and neither
            # says so to the protocol nor shows it as closing: a write is all that can tell.
            self._gone = True

    def close(self) -> None:
        """Send what is held, then close."""
        self.flush()
        self._gone = True
        self._transport.close()

    def abort(self) -> None:
        """Close now; what was not sent yet is dropped."""
        self._held, self._size = [], 0
        self._gone = True
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._gone or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the transport knows of its socket."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Let nothing in."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let bytes in again."""
        self._transport.resume_reading()
