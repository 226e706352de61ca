"""Files of container logs. Functions here block.

docs/behaviour/server.md, "Container logs" and "Following a log".
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.server.kubelet.log_lines import LogLines

CHUNK: Final = 256 * 1024
_BLOCK: Final = 64 * 1024
_PACKED: Final = ".gz"
_UNFINISHED: Final = ".tmp"


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
    """An open log, or one that was rotated, and how far it has been read.

    Attributes:
        log: where the container's log is, whatever this file is called by now.
        descriptor: of the file.
        rotated: names of rotated files that were there when the log was opened.
        name: what this file is called since it was rotated, without the end that says that it is
            packed; "" as long as that is not known.
        take: reads so many bytes.
    """

    log: Path
    descriptor: int
    rotated: frozenset[str]
    name: str
    take: Callable[[int], bytes]

    def read(self, lines: LogLines) -> Piece:
        """Read on; ``lines`` says what of it the client gets.

        Raises:
            UnsupportedLogError: it is no log.
            LogFileError: it cannot be read.
        """
        try:
            data = self.take(CHUNK)
        except (OSError, EOFError, zlib.error) as error:
            raise LogFileError(_trouble(self.log, error)) from error
        return Piece(lines.feed(data) if data else b"", at_end=len(data) < CHUNK)

    def successor(self) -> LogFile | None:
        """The file in which the log goes on; None while this is the newest.

        Raises:
            LogFileError: it cannot be opened.
        """
        if not self.name and not self._replaced():
            return None
        present = self._present()
        before = self.name or self._name_among(present)
        while True:
            if later := next_name(before, present):
                if found := _open_rotated(self.log, later):
                    return found
                before = later  # it was removed while we looked
                continue
            try:
                newest = open_log(self.log)
            except LogFileError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    return None  # renamed, and the new one is not there yet
                raise
            present = self._present()
            if not next_name(before, present):
                return newest
            newest.close()  # rotated after the first look: others come before it

    def start_again(self) -> bool:
        """Whether the file was emptied; then it is read from its beginning."""
        if self.name or os.fstat(self.descriptor).st_size >= _position(self.descriptor):
            return False
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        return True

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)

    def _present(self) -> list[str]:
        try:
            return rotated_names(self.log.name, _names_in(self.log.parent))
        except OSError:
            return []  # the pod's logs have been removed

    def _replaced(self) -> bool:
        """Whether another file has the log's name by now."""
        try:
            facts = os.stat(self.log)  # noqa: PTH116 - follows links, as the opening does
        except OSError:
            return False  # renamed, and the new one is not there yet
        return not _same(facts, os.fstat(self.descriptor))

    def _name_among(self, present: Iterable[str]) -> str:
        """What this file is called now."""
        own = os.fstat(self.descriptor)
        for name in present:
            with suppress(OSError):
                if _same(os.stat(self.log.with_name(name)), own):  # noqa: PTH116
                    return name
        # Packed meanwhile: names grow, so it is the first of those that are new.
        return min((name for name in present if name not in self.rotated), default="")


def rotated_names(log: str, names: Iterable[str]) -> list[str]:
    """The names of a log's rotated files, the oldest first, whether or not they are packed."""
    found = {
        name.removesuffix(_PACKED)
        for name in names
        if name.startswith(f"{log}.") and not name.endswith(_UNFINISHED)
    }
    return sorted(found)


def next_name(name: str, present: Iterable[str]) -> str:
    """The rotated file that came after ``name``; "" when that is the log itself."""
    return min((other for other in present if other > name), default="") if name else ""


def open_log(path: Path, tail: int | None = None) -> LogFile:
    """Open a log where the last ``tail`` lines begin; None for its beginning.

    Raises:
        LogFileError: it cannot be opened, or is no regular file.
    """
    present: frozenset[str] = frozenset()
    with suppress(OSError, ValueError):
        # Before the file: what is rotated from here on is new.
        present = frozenset(rotated_names(path.name, _names_in(path.parent)))
    return _opened(path, path, present, "", tail)


def _open_rotated(log: Path, name: str) -> LogFile | None:
    for end in ("", _PACKED):
        with suppress(LogFileError):
            return _opened(log.with_name(name + end), log, frozenset(), name, None)
    return None


def _opened(path: Path, log: Path, rotated: frozenset[str], name: str, tail: int | None) -> LogFile:
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
    take = _unpacking(descriptor) if path.name.endswith(_PACKED) else _reading(descriptor)
    return LogFile(log, descriptor, rotated, name, take)


def _reading(descriptor: int) -> Callable[[int], bytes]:
    return lambda size: os.read(descriptor, size)


def _unpacking(descriptor: int) -> Callable[[int], bytes]:
    packed = gzip.GzipFile(fileobj=os.fdopen(descriptor, "rb", closefd=False))
    return packed.read


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


def _names_in(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()]


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _position(descriptor: int) -> int:
    return os.lseek(descriptor, 0, os.SEEK_CUR)


def _trouble(path: Path, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    return f"failed to open log file {str(path)!r}: {reason.lower()}"
