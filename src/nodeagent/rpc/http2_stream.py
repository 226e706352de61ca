"""One stream of an HTTP/2 connection: who reads it, and what may be sent on it."""

from __future__ import annotations

from typing import Protocol


class Receiver(Protocol):
    """One stream's end on our side.

    Attributes:
        number: the stream; 0 until it is opened.
    """

    number: int

    def take_headers(self, headers: dict[str, str], *, end: bool) -> None:
        """Headers have come: those of the answer, or its trailers."""
        ...

    def take_data(self, data: bytes, *, end: bool) -> None:
        """Bytes have come."""
        ...

    def take_reset(self, code: int) -> None:
        """The server has ended the stream."""
        ...

    def terminate(self, reason: str) -> None:
        """The connection has ended."""
        ...


class Stream:
    """What the connection knows of a stream: its receiver, and what may be sent on it."""

    __slots__ = ("ended", "receiver", "sent_all", "window")

    def __init__(self, receiver: Receiver, window: int) -> None:
        self.receiver = receiver
        self.window = window
        self.sent_all = False
        self.ended = False
