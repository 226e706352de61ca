"""Small files of state that survive a crash: written whole or not at all.

A damaged or unknown file is moved aside and reported; the caller rebuilds what it held.
All functions block: call them in a thread.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from pathlib import Path
from typing import Any, Final

import msgspec

from nodeagent.log import Log

log = Log("state")

_MODE: Final = 0o600
_DIR_MODE: Final = 0o700
_NEW: Final = ".new"


class StateFile:
    """One file of JSON state with a version and a checksum.

    Args:
        path: where it lies; its directory is made with mode 0700 when missing.
        version: format of the content; another version counts as damage.

    Attributes:
        path: see Args.
        problem: what was wrong with the file at the last :meth:`load`, and where it is now;
            "" when nothing was.
        refused: why the last :meth:`save` failed; "" when it did not.
    """

    def __init__(self, path: Path, version: int = 1) -> None:
        self.path = path
        self.problem = ""
        self.refused = ""
        self._version = version

    def save(self, content: Any) -> None:
        """Write ``content`` (JSON-able) atomically and durably, with mode 0600.

        Raises:
            OSError: it could not be written; the old content is untouched.
        """
        body = msgspec.json.encode(content)
        envelope = {"version": self._version, "crc32": zlib.crc32(body)}
        data = msgspec.json.encode({**envelope, "content": msgspec.Raw(body)})
        try:
            self.path.parent.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
            write_atomically(self.path, data)
        except OSError as error:
            self.refused = error.strerror or str(error)
            raise
        self.refused = ""

    def load(self) -> Any:
        """The content, or None when there is none or it is damaged (then moved aside)."""
        self.problem = ""
        _remove_leftovers(self.path)
        try:
            data = _read(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.problem = f"cannot be read: {error.strerror}"
            log.warning("state_unreadable", file=str(self.path), cause=error.strerror)
            return None
        if data is None:
            return self._set_aside("no regular file")
        try:
            envelope = msgspec.json.decode(data, type=_Envelope)
            if envelope.version != self._version:
                return self._set_aside(f"written by another version ({envelope.version})")
            if zlib.crc32(bytes(envelope.content)) != envelope.crc32:
                return self._set_aside("checksum does not match")
            return msgspec.json.decode(envelope.content)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._set_aside(str(error))

    def _set_aside(self, cause: str) -> None:
        aside = self.path.with_name(self.path.name + ".damaged")
        try:
            self.path.replace(aside)
        except OSError as error:
            self.problem = f"{cause}; it cannot be moved aside: {error.strerror}"
            log.warning("state_damaged", file=str(self.path), cause=cause, kept=error.strerror)
        else:
            self.problem = f"{cause}; moved to {aside.name}"
            log.warning("state_damaged", file=str(self.path), cause=cause, moved_to=str(aside))


class _Envelope(msgspec.Struct):
    version: int
    crc32: int
    content: msgspec.Raw


def _read(path: Path) -> bytes | None:
    """All bytes of a file; None when it is not a regular one, which is not read.

    A FIFO would hang its reader, and a device may never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def write_atomically(path: Path, data: bytes, mode: int = _MODE) -> None:
    """Replace a file's content: temporary file, fsync, rename, fsync of the directory.

    Raises:
        OSError: it could not be written; the old content is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_NEW}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _fsync_directory(path.parent)


def remove_leftovers(directory: Path) -> None:
    """Remove what writers left in a directory that were killed in the middle, and are gone.

    Another program may be writing there: what it is at is left alone.
    """
    for leftover in directory.glob(f".*{_NEW}"):
        writer = leftover.name.removesuffix(_NEW).rpartition(".")[2]
        if writer.isdecimal() and not Path("/proc", writer).exists():
            _remove(leftover)


def _remove_leftovers(path: Path) -> None:
    """Remove what writers left that were killed in the middle; a disk could fill up with it."""
    for leftover in path.parent.glob(f".{path.name}.*{_NEW}"):
        _remove(leftover)


def _remove(leftover: Path) -> None:
    try:
        leftover.unlink(missing_ok=True)
    except OSError as error:
        log.debug("leftover_not_removed", file=str(leftover), cause=error.strerror)


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot sync a directory; the rename itself is done.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
