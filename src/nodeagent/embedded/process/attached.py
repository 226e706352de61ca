"""Attaching to the first process of a container, from the server's side."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

from nodeagent.embedded.process.execution import not_running
from nodeagent.embedded.process.launcher.attach import CHUNK, INPUT, LISTENS, NAME, SIZE, SPEAKS
from nodeagent.rpc import Unavailable
from nodeagent.streaming.protocols import Channel, Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nodeagent.streaming.commands import Say

_PART: Final = 32 * 1024
_NO_SOCKET: Final = (
    "cannot attach to the container: it was started by a version that could not do it, or the "
    "file system of the state directory can have no sockets; read its log"
)


class AttachedProcess:
    """A process that runs: :class:`nodeagent.streaming.commands.Command`.

    Args:
        sock: to its monitor.
        speaks: whether input will come.
    """

    def __init__(self, sock: socket.socket, *, speaks: bool) -> None:
        self._sock = sock
        self._speaks = speaks
        self._size = b""

    async def follow(self, say: Say) -> Outcome:
        """Pass on what it writes until it ends, or lets go; how is told elsewhere."""
        cut = False
        while True:
            try:
                data = self._sock.recv(CHUNK + 1)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
                continue
            except OSError:
                if not cut:
                    cut = True  # input was left unread: that is told before the last words
                    continue
                data = b""
            if not data:
                return Outcome()
            await say(Channel(data[0]), data[1:])

    async def write(self, data: bytes) -> None:
        """Give it input; what nobody takes any more is dropped."""
        for at in range(0, len(data) if self._speaks else 0, _PART):
            while not self._sent(bytes([INPUT]) + data[at : at + _PART]):
                await anyio.wait_writable(self._sock)
        self._tell_size()

    def end_input(self) -> None:
        """There is no more input."""
        if self._speaks:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                return  # it has ended

    def resize(self, columns: int, rows: int) -> None:
        """Its terminal has that size now."""
        self._size = bytes([SIZE]) + struct.pack("HHHH", rows, columns, 0, 0)
        self._tell_size()

    def _tell_size(self) -> None:
        if self._size and self._sent(self._size):
            self._size = b""

    def _sent(self, message: bytes) -> bool:
        """Whether it was sent, or nobody takes it any more; False when one has to wait."""
        try:
            self._sock.send(message)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


@asynccontextmanager
async def attached_process(directory: Path, *, speaks: bool) -> AsyncIterator[AttachedProcess]:
    """Be attached to a container inside the context.

    Args:
        directory: of the container.
        speaks: whether input will come.

    Raises:
        FailedPrecondition: the container has ended.
        Unavailable: its monitor takes nobody.
    """
    sock = await to_thread.run_sync(_connect, directory)
    try:
        sock.setblocking(False)  # noqa: FBT003 - the standard library's
        sock.send(SPEAKS if speaks else LISTENS)
        yield AttachedProcess(sock, speaks=speaks)
    finally:
        sock.close()


def _connect(directory: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(10)
        # The path may be longer than that of a socket.
        at = os.open(directory, os.O_PATH | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{at}/{NAME}")
        finally:
            os.close(at)
    except ConnectionRefusedError as error:
        sock.close()
        raise not_running() from error
    except FileNotFoundError as error:
        sock.close()
        raise Unavailable(_NO_SOCKET) from error
    except OSError as error:
        sock.close()
        msg = f"cannot attach to the container: {error.strerror or error}"
        raise Unavailable(msg) from error
    return sock
