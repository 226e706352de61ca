"""Cuts a stream of bytes into lines of any length up to a cap. Pure."""

from __future__ import annotations

from typing import Final

LINE_LIMIT: Final = 64 * 1024 * 1024
"""Most bytes of one event of a watch."""


class LineTooLongError(Exception):
    """A line passes the cap."""


class LineSplitter:
    """Collects chunks and gives whole lines, without their ends; empty lines are left out.

    Args:
        limit: most bytes of a line.
    """

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; the lines that it completes.

        Raises:
            LineTooLongError: of a line that goes on past the cap.
        """
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = self.rest() + lines[0]
        self._size += len(rest)
        if rest:
            self._pieces.append(rest)
        if self._size > self._limit or any(len(line) > self._limit for line in lines):
            msg = f"a line of more than {self._limit} bytes"
            raise LineTooLongError(msg)
        return [line for line in lines if line.strip()]

    def rest(self) -> bytes:
        """What has come of the line that has not ended, which is forgotten."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return rest
