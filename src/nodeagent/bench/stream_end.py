"""The far end of measured streams: takes an upgrade, and is as fast as a socket can be.

It runs in threads of the simulated runtime's process, and stands in for its streaming server.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Final

from nodeagent.embedded.stream_server import StreamServer

if TYPE_CHECKING:
    from nodeagent.embedded.stream_server import Serve

SWITCHED: Final = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
)
TO_CLIENT: Final = "to-client"
TO_RUNTIME: Final = "to-runtime"
PART: Final = 256 * 1024


class Elsewhere(StreamServer):
    """Sends every client to one address.

    Args:
        url: the address.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    async def promise(self, kind: str, serve: Serve) -> str:
        """The address, whatever is to be served."""
        del kind, serve
        return self._url


class StreamEnd:
    """Listens on loopback until the process ends.

    Attributes:
        port: where.
        direction: ``TO_CLIENT`` or ``TO_RUNTIME``: who sends on the next connections.
        size: bytes that are sent.
    """

    def __init__(self) -> None:
        self.direction = TO_CLIENT
        self.size = 1
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def _start(self, target: object, *arguments: object) -> None:
        assert callable(target)
        threading.Thread(target=target, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while True:
            self._start(self._serve, self._listener.accept()[0])

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._stream(connection)
            except OSError:
                return  # its client has gone

    def _stream(self, connection: socket.socket) -> None:
        """Send or take the bytes, then wait for the end."""
        direction, size = self.direction, self.size
        head = b""
        while b"\r\n\r\n" not in head:
            if not (data := connection.recv(65536)):
                return
            head += data
        connection.sendall(SWITCHED)
        if direction == TO_CLIENT:
            part = bytes(PART)
            for at in range(0, size, PART):
                connection.sendall(part[: size - at])
        else:
            buffer, left = bytearray(PART), size
            while left > 0:
                if not (count := connection.recv_into(buffer)):
                    return
                left -= count
            connection.sendall(b"!")
        connection.recv(1)
