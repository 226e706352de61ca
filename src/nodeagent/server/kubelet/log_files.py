"""Files of container logs. Functions here block.

docs/behaviour/server.md, "Container logs".
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.server.kubelet.log_lines import LogLines

CHUNK: Final = 256 * 1024
_BLOCK: Final = 64 * 1024


class LogFileError(Exception):
    """A log cannot be read; says which and why."""


@dataclass(slots=True)
class Piece:
    """What one reading gave.

    Attributes:
        output: for the client.
        at_end: the file has no more at present.
    """

    output: bytes
    at_end: bool


@dataclass(slots=True)
class LogFile:
    """An open log, and how far it has been read.

    Attributes:
        path: where it was opened.
        descriptor: of the file.
        identity: of the file, whatever its name is by now.
    """

    path: Path
    descriptor: int
    identity: tuple[int, int]

    def read(self, lines: LogLines) -> Piece:
        """Read on; ``lines`` says what of it the client gets.

        Raises:
            UnsupportedLogError: it is no log.
            LogFileError: it cannot be read.
        """
        try:
            data = os.read(self.descriptor, CHUNK)
        except OSError as error:
            raise LogFileError(_trouble(self.path, error)) from error
        return Piece(lines.feed(data) if data else b"", at_end=len(data) < CHUNK)

    def replaced(self) -> bool:
        """Whether another file has its name by now."""
        try:
            facts = os.stat(self.path)  # noqa: PTH116 - follows links, as the opening does
        except OSError:
            return False  # renamed, and the new one is not there yet
        return (facts.st_dev, facts.st_ino) != self.identity

    def shrunk(self) -> bool:
        """Whether the file was emptied; it is then read from its beginning again."""
        if os.fstat(self.descriptor).st_size >= os.lseek(self.descriptor, 0, os.SEEK_CUR):
            return False
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        return True

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


def open_log(path: Path, tail: int | None = None) -> LogFile:
    """Open a log where the last ``tail`` lines begin; None for its beginning.

    Raises:
        LogFileError: it cannot be opened, or is no regular file.
    """
    # Whoever may write there is not trusted: nothing waits for the other end of a FIFO.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise LogFileError(_trouble(path, error)) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            msg = f"failed to open log file {str(path)!r}: not a regular file"
            raise LogFileError(msg)
        if tail is not None:
            os.lseek(descriptor, tail_start(descriptor, facts.st_size, tail), os.SEEK_SET)
    except OSError as error:
        os.close(descriptor)
        raise LogFileError(_trouble(path, error)) from error
    except LogFileError:
        os.close(descriptor)
        raise
    return LogFile(path, descriptor, (facts.st_dev, facts.st_ino))


def tail_start(descriptor: int, size: int, lines: int) -> int:
    """Where the last lines of a file begin; one without an end comes in addition.

    Reads backwards from the end, only as far as needed.
    """
    right, missing = size, lines + 1
    while right > 0:
        left = max(right - _BLOCK, 0)
        block = os.pread(descriptor, right - left, left)
        found = block.count(b"\n")
        if found >= missing:
            at = len(block)
            for _ in range(missing):
                at = block.rfind(b"\n", 0, at)
            return left + at + 1
        missing -= found
        right = left
    return 0


def _trouble(path: Path, error: OSError | ValueError) -> str:
    reason = getattr(error, "strerror", None) or "no file can have this name"
    return f"failed to open log file {str(path)!r}: {reason.lower()}"
