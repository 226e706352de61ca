"""How a monitor serves those who attach: docs/embedded-runtime.md, "Streams"."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from nodeagent.embedded.process.launcher import attach

LONG = "d" * 120
"""Too long for the path of a socket."""


class Monitor:
    """What a monitor does with those who attach, one look at a time."""

    def __init__(self, directory: Path, *, once: bool = False) -> None:
        self.reading, writing = os.pipe()
        os.set_blocking(self.reading, False)
        listener = attach.listen(str(directory))
        assert listener is not None
        self.directory = directory
        self.attached = attach.Attached(listener, writing, -1, once=once)
        self.poll = select.poll()
        self.attached.watch(self.poll)

    def turn(self) -> None:
        """Do all there is to do."""
        while ready := self.poll.poll(0):
            for fd, mask in ready:
                self.attached.on_event(fd, mask)

    def client(self, first: bytes = attach.SPEAKS) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        at = os.open(self.directory, os.O_PATH)
        sock.connect(f"/proc/self/fd/{at}/{attach.NAME}")
        os.close(at)
        sock.send(first)
        self.turn()
        return sock

    def read(self) -> bytes | None:
        """What the container finds in its input; empty at its end, None for nothing yet."""
        try:
            return os.read(self.reading, 2**20)
        except BlockingIOError:
            return None


def drain(sock: socket.socket) -> None:
    """Read all that has come."""
    with suppress(BlockingIOError):
        while True:
            sock.recv(2**20)


@contextmanager
def monitor(tmp_path: Path, *, once: bool = False) -> Iterator[Monitor]:
    directory = tmp_path / LONG
    directory.mkdir()
    found = Monitor(directory, once=once)
    try:
        yield found
    finally:
        found.attached.close()
        os.close(found.reading)


def test_output_goes_to_all_and_input_comes_from_those_who_said_so(tmp_path: Path) -> None:
    with monitor(tmp_path) as found, found.client() as one, found.client(attach.LISTENS) as two:
        found.attached.say(attach.STDOUT, b"out")
        found.attached.say(attach.STDERR, b"err")
        for each in (one, two):
            assert (each.recv(100), each.recv(100)) == (b"\x01out", b"\x02err")
        two.send(bytes([attach.INPUT]) + b"not me")
        one.send(bytes([attach.INPUT]) + b"me")
        found.turn()
        assert found.read() == b"me"


def test_a_client_that_does_not_read_holds_output_up_for_so_long_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitor(tmp_path) as found, found.client() as slow, found.client() as quick:
        assert found.attached.wait() is None
        while found.attached.wait() is None:
            found.attached.say(attach.STDOUT, b"x" * 10_000)
            quick.recv(20_000)
        wait = found.attached.wait()
        assert wait is not None
        assert 0 < wait <= attach.PATIENCE
        found.attached.give_up()
        assert found.attached.wait() is not None
        drain(slow)
        found.turn()
        assert found.attached.wait() is None
        monkeypatch.setattr(attach, "PATIENCE", 0.0)
        while found.attached.wait() is None:
            found.attached.say(attach.STDOUT, b"x" * 10_000)
            quick.recv(20_000)
        found.attached.give_up()
        assert found.attached.wait() is None
        found.attached.say(attach.STDOUT, b"on")
        assert quick.recv(100) == b"\x01on"


def test_input_that_is_not_read_holds_up_who_gives_it(tmp_path: Path) -> None:
    with monitor(tmp_path, once=True) as found, found.client() as one:
        sent = 0
        while True:
            try:
                one.send(bytes([attach.INPUT]) + b"x" * 1000)
            except BlockingIOError:
                break
            sent += 1000
            found.turn()
        assert sent < 2**22
        one.shutdown(socket.SHUT_WR)
        found.turn()
        got = 0
        while (data := found.read()) != b"":
            assert data, "what was sent before the end of input comes before it"
            got += len(data)
            found.turn()
        assert got == sent
        found.attached.say(attach.STDOUT, b"still heard")
        assert one.recv(100) == b"\x01still heard"


@pytest.mark.parametrize("once", [True, False])
def test_the_end_of_a_clients_input(tmp_path: Path, once: bool) -> None:
    with monitor(tmp_path, once=once) as found, found.client() as one:
        one.send(bytes([attach.INPUT]) + b"last")
        one.shutdown(socket.SHUT_WR)
        found.turn()
        assert found.read() == b"last"
        if once:
            assert found.read() == b""
            found.attached.say(attach.STDOUT, b"yes")
            assert one.recv(100) == b"\x01yes"
        else:
            assert found.read() is None
            assert one.recv(100) == b"", "it is let go"
            with found.client() as two:
                two.send(bytes([attach.INPUT]) + b"more")
                found.turn()
                assert found.read() == b"more"


def test_a_client_that_hangs_up_ends_input_that_is_there_once(tmp_path: Path) -> None:
    with monitor(tmp_path, once=True) as found:
        found.client(attach.LISTENS).close()
        found.turn()
        assert found.read() is None
        found.client().close()
        found.turn()
        assert found.read() == b""
        with found.client() as late:
            late.send(bytes([attach.INPUT]) + b"too late")
            found.turn()


def test_so_many_are_taken_and_no_more(tmp_path: Path) -> None:
    with monitor(tmp_path) as found:
        socks = [found.client() for _ in range(attach.MOST_CLIENTS)]
        with found.client() as more, suppress(OSError):
            assert more.recv(100) == b"", "it is let go"
        for sock in socks:
            sock.close()


def test_a_container_that_ends_says_its_last_words_first(tmp_path: Path) -> None:
    with monitor(tmp_path) as found, found.client() as one:
        found.attached.say(attach.STDOUT, b"last words")
        found.attached.close()
        assert one.recv(100) == b"\x01last words"
        assert one.recv(100) == b""


def test_a_place_without_sockets(tmp_path: Path) -> None:
    assert attach.listen(str(tmp_path / "missing")) is None
