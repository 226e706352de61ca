"""The streams of a container's first process, for those who attach to it: the monitor's side.

Whoever attaches connects to the socket ``attach.sock`` in the container's directory, whose
messages begin with the number of a channel. The first message says whether input will come.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "attach.sock"
INPUT, STDOUT, STDERR, SIZE = 0, 1, 2, 4
"""The channels, by the numbers that WebSockets have for them."""
LISTENS, SPEAKS = b"\x00", b"\x01"
"""The first message: input will come with the second one only."""
PATIENCE = 30.0
"""Seconds that a client may leave its output unread; so long it holds the container up."""
MOST_CLIENTS = 16
CHUNK = 64 * 1024
_FAREWELL = 5.0
_SET_WINDOW_SIZE = 0x5414
_SIZE_BYTES = 8


def listen(directory: str) -> socket.socket | None:
    """The socket that clients connect to; None where the file system can have none."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    before = os.open(".", os.O_PATH | os.O_CLOEXEC)
    try:
        os.chdir(directory)  # its path may be longer than that of a socket
        found.bind(NAME)
        found.listen(MOST_CLIENTS)
    except OSError:
        found.close()
        return None  # the container can do without
    finally:
        os.fchdir(before)
        os.close(before)
    return found


class _Client:
    __slots__ = ("due", "ended", "greeted", "pending", "sock", "speaks")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.greeted = False
        self.speaks = False
        self.ended = False
        self.pending: list[bytes] = []
        self.due = 0.0


class Attached:
    """All who are attached to one container.

    Args:
        listener: what they connect to; None for nothing.
        stdin: where their input goes; -1 for nowhere. Closed here, as ``terminal`` is.
        terminal: the container's; -1 without. Input goes to the same file then.
        once: whether input ends with the first who gives some; that of a terminal does not.
    """

    def __init__(
        self, listener: socket.socket | None, stdin: int, terminal: int, *, once: bool
    ) -> None:
        self._listener = listener
        self._stdin = stdin
        self._terminal = terminal
        self._once = once and terminal < 0
        self._input = b""
        self._closing = False
        self._clients: dict[int, _Client] = {}
        self._poll: select.poll
        if stdin >= 0:
            os.set_blocking(stdin, False)

    def watch(self, poll: select.poll) -> None:
        """Have ``poll`` wait for clients and what they say."""
        self._poll = poll
        if self._listener is not None:
            poll.register(self._listener, select.POLLIN)

    @property
    def held(self) -> bool:
        """Whether somebody has to read before there can be more output."""
        return any(client.pending for client in self._clients.values())

    def wait(self) -> float | None:
        """Seconds until :meth:`give_up` has something to do; None for never."""
        dues = [client.due for client in self._clients.values() if client.pending]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def give_up(self) -> None:
        """Let go of those who have not read for too long."""
        now = time.monotonic()
        for client in [one for one in self._clients.values() if one.pending and one.due <= now]:
            self._drop(client)

    def on_event(self, fd: int, mask: int) -> None:
        """Something has happened to a file that is watched here; others are of no concern."""
        if self._listener is not None and fd == self._listener.fileno():
            self._accept(self._listener)
        elif fd == self._stdin:
            self._write_input()
        elif (client := self._clients.get(fd)) is not None:
            if client.pending:
                self._flush(client)
            if mask & (select.POLLIN | select.POLLHUP) and fd in self._clients:
                self._read(client)

    def say(self, channel: int, data: bytes) -> None:
        """Pass on what the container has written, to everybody."""
        for client in [one for one in self._clients.values() if one.greeted]:
            client.pending.append(bytes([channel]) + data)
            if len(client.pending) == 1:
                client.due = time.monotonic() + PATIENCE
                self._flush(client)

    def close(self) -> None:
        """The container has ended: see that everybody has its last words, and let go."""
        self._close_input()
        if self._terminal >= 0:
            os.close(self._terminal)
        if self._listener is not None:
            self._listener.close()
        deadline = time.monotonic() + _FAREWELL
        poll = select.poll()
        for client in self._clients.values():
            if client.pending:
                poll.register(client.sock, select.POLLOUT)
        while (left := deadline - time.monotonic()) > 0 and self.held:
            for fd, _ in poll.poll(int(left * 1000) + 1):
                client = self._clients[fd]
                if not self._sent(client) or not client.pending:
                    client.pending.clear()
                    poll.unregister(fd)
        for client in self._clients.values():
            client.sock.close()
        self._clients.clear()

    # -- clients

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        if len(self._clients) >= MOST_CLIENTS:
            sock.close()
            return
        sock.setblocking(False)  # noqa: FBT003 - the standard library's
        client = _Client(sock)
        self._clients[sock.fileno()] = client
        self._register(client)

    def _register(self, client: _Client) -> None:
        """Wait for what can happen to a client next."""
        takes = not self._input and not client.ended
        mask = (select.POLLIN if takes else 0) | (select.POLLOUT if client.pending else 0)
        if mask or client.ended:
            self._poll.register(client.sock, mask)
        else:
            self._forget(client.sock.fileno())  # that it hangs up would be told all the time

    def _forget(self, fd: int) -> None:
        try:  # noqa: SIM105 - contextlib is heavy
            self._poll.unregister(fd)
        except KeyError:
            pass  # it was not waited for

    def _drop(self, client: _Client) -> None:
        fd = client.sock.fileno()
        del self._clients[fd]
        self._forget(fd)
        client.sock.close()
        if client.speaks and self._once and not client.ended:
            self._end_input()

    def _sent(self, client: _Client) -> bool:
        """Send what can be sent without waiting; False when the client has gone."""
        try:
            while client.pending:
                client.sock.send(client.pending[0], socket.MSG_NOSIGNAL)
                client.pending.pop(0)
                client.due = time.monotonic() + PATIENCE
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _flush(self, client: _Client) -> None:
        there = self._sent(client)
        heard_all = client.ended and not client.pending and not self._once
        if there and not heard_all:
            self._register(client)
        else:
            self._drop(client)

    def _read(self, client: _Client) -> None:
        if client.ended:  # and now it has hung up
            self._drop(client)
            return
        try:
            data = client.sock.recv(CHUNK + 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data and not client.speaks:
            self._drop(client)
        elif not data:
            client.ended = True
            if self._once:
                self._end_input()
            self._flush(client)
        elif not client.greeted:
            client.greeted = True
            client.speaks = data == SPEAKS and self._stdin >= 0
        elif data[0] == INPUT and client.speaks:
            self._input += data[1:]
            self._write_input()
        elif data[0] == SIZE and self._terminal >= 0 and len(data) == 1 + _SIZE_BYTES:
            fcntl.ioctl(self._terminal, _SET_WINDOW_SIZE, data[1:])

    # -- input

    def _write_input(self) -> None:
        """Give the container what it takes; while it does not take all, nobody is listened to."""
        held = self._stdin >= 0 and bool(self._input)
        try:
            while self._input and self._stdin >= 0:
                self._input = self._input[os.write(self._stdin, self._input) :]
        except BlockingIOError:
            self._poll.register(self._stdin, select.POLLOUT)
            for client in self._speakers():
                self._register(client)
            return
        except OSError:
            self._close_input()
        self._input = b""
        if held and self._stdin >= 0:
            self._forget(self._stdin)
        if self._closing:
            self._close_input()
        for client in self._speakers():
            self._register(client)

    def _speakers(self) -> Iterator[_Client]:
        return (one for one in self._clients.values() if not one.ended)

    def _end_input(self) -> None:
        """There is no more input, of nobody. What was read before goes first."""
        self._closing = True
        if not self._input:
            self._close_input()

    def _close_input(self) -> None:
        if self._stdin >= 0:
            self._forget(self._stdin)
            if self._stdin != self._terminal:
                os.close(self._stdin)
            self._stdin = -1
