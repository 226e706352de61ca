"""Log files in the format of the CRI: ``TIME stdout|stderr P|F CONTENT``.

F ends a line of the program, P says that its line goes on in the next record.
"""

from __future__ import annotations

import os
import time

MAX_LINE = 16 * 1024
"""Bytes of content in one record."""


def open_log(directory: str, path: str) -> int:
    """Open ``path`` below ``directory`` for appending; missing directories are made.

    No component of ``path`` may be a symbolic link, so nobody who can write to the log
    directory can have another file written to.

    Raises:
        OSError: it cannot be opened, or leads out of the directory.
    """
    parts = path.split("/")
    if not all(parts) or {".", ".."} & set(parts):
        raise OSError(22, f"log path {path!r} is not a plain relative path")
    os.makedirs(directory, mode=0o755, exist_ok=True)  # noqa: PTH103 - pathlib is heavy
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            at = _enter(at, part)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(parts[-1], flags, 0o640, dir_fd=at)
    finally:
        os.close(at)
    os.set_blocking(fd, True)
    return fd


def _enter(at: int, name: str) -> int:
    """Go from one directory into another one below it; closes the first."""
    try:  # noqa: SIM105 - contextlib is heavy
        os.mkdir(name, 0o755, dir_fd=at)
    except FileExistsError:
        pass  # usually it is there
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    below = os.open(name, flags, dir_fd=at)
    os.close(at)
    return below


def stamp(now_ns: int) -> bytes:
    """A moment in nanoseconds since the epoch as RFC 3339 in UTC."""
    seconds, rest = divmod(now_ns, 1_000_000_000)
    return (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09}Z").encode()


class LineCutter:
    """Cuts what a program writes to one of its outputs into records."""

    __slots__ = ("_pending", "_stream", "is_stderr")

    def __init__(self, stream: str) -> None:
        self.is_stderr = stream == "stderr"
        self._stream = b" " + stream.encode() + b" "
        self._pending = b""

    def feed(self, data: bytes, now_ns: int) -> bytes:
        """Take in what was written; returns the records that are complete."""
        head = stamp(now_ns) + self._stream
        *lines, self._pending = (self._pending + data).split(b"\n")
        out = []
        for line in lines:
            while len(line) > MAX_LINE:
                out.append(head + b"P " + line[:MAX_LINE] + b"\n")
                line = line[MAX_LINE:]  # noqa: PLW2901 - what is left of it
            out.append(head + b"F " + line + b"\n")
        while len(self._pending) >= MAX_LINE:
            out.append(head + b"P " + self._pending[:MAX_LINE] + b"\n")
            self._pending = self._pending[MAX_LINE:]
        return b"".join(out)

    def finish(self, now_ns: int) -> bytes:
        """There is no more; returns the record of a last line without its end."""
        rest, self._pending = self._pending, b""
        return stamp(now_ns) + self._stream + b"P " + rest + b"\n" if rest else b""


class LogFile:
    """An open log file. What cannot be written, for want of space, is lost."""

    __slots__ = ("_directory", "_fd", "_path")

    def __init__(self, directory: str, path: str) -> None:
        self._directory = directory
        self._path = path
        self._fd = open_log(directory, path)

    def write(self, records: bytes) -> None:
        """Append records."""
        view = memoryview(records)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            return  # a full disk must not end the container, nor block it

    def reopen(self) -> None:
        """Go on in a new file under the same path; in the old one if that fails."""
        try:
            fd = open_log(self._directory, self._path)
        except OSError:
            return
        os.close(self._fd)
        self._fd = fd
