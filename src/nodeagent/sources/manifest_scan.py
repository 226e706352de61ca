"""Looking at manifest files. Blocking: runs in a thread, never on the event loop."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SIZE_LIMIT: Final = 10 * 1024 * 1024
"""Bytes; a manifest of this size or more is refused."""

_LEFTOVERS: Final = re.compile(
    r"\..*|.*~|#.*#|4913|.*\.(?:bak|swp|swo|swx|tmp|temp|new|old|orig|rej|part)|"
    r".*\.(?:dpkg-(?:new|old|tmp|dist|bak)|rpm(?:save|new|orig)|ucf-(?:new|old|dist))|"
    r".*___jb_(?:tmp|old)___",
    re.IGNORECASE,
)
"""What editors and package managers leave beside a file: never a manifest that someone wants."""


@dataclass(frozen=True, slots=True)
class FileSeen:
    """One file of a manifest path.

    Attributes:
        path: as found.
        stamp: changes when the file does; None when it could not be read.
        data: its bytes, None when unchanged since ``known`` or unreadable.
        problem: why it cannot be used; "" when it can.
    """

    path: Path
    stamp: tuple[int, ...] | None
    data: bytes | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PathSeen:
    """One configured path: its files, or why there are none.

    Attributes:
        path: as configured.
        files: in the order in which they count.
        problem: "" or why the path itself is of no use.
        missing: the path does not exist, so it wants no pods.
    """

    path: Path
    files: tuple[FileSeen, ...] = ()
    problem: str = ""
    missing: bool = False


def is_leftover(name: str) -> bool:
    """Whether a file name is an editor's or package manager's leftover, or hidden."""
    return _LEFTOVERS.fullmatch(name) is not None


def scan(
    paths: Sequence[Path], known: dict[Path, tuple[int, ...]], *, fresh: bool = False
) -> list[PathSeen]:
    """Look at all paths.

    Args:
        paths: files and directories, in order.
        known: stamps of files already read; their bytes are read only when they changed.
        fresh: read all bytes again.
    """
    return [_scan_path(path, {} if fresh else known) for path in paths]


def _scan_path(path: Path, known: dict[Path, tuple[int, ...]]) -> PathSeen:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            names = sorted(n for n in os.listdir(path) if not is_leftover(n))  # noqa: PTH208
            return PathSeen(path, tuple(_files(path, names, known)))
    except FileNotFoundError:
        return PathSeen(path, problem="path does not exist, ignoring", missing=True)
    except OSError as error:
        return PathSeen(path, problem=f"cannot be read: {error.strerror}")
    if not stat.S_ISREG(mode):
        return PathSeen(path, problem="path is not a directory or file")
    seen = _look(path, known)
    return PathSeen(path, (seen,) if seen else ())


def _files(
    directory: Path, names: Sequence[str], known: dict[Path, tuple[int, ...]]
) -> Iterator[FileSeen]:
    for name in names:
        seen = _look(directory / name, known)
        if seen is not None:
            yield seen


def _look(path: Path, known: dict[Path, tuple[int, ...]]) -> FileSeen | None:
    """One file; None for a subdirectory or a file that has just vanished."""
    try:
        # Without O_NONBLOCK a FIFO in the directory would hang the scan.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        return _unopened(path, error)
    try:
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode):
            return None
        if not stat.S_ISREG(facts.st_mode):
            return FileSeen(path, None, problem="not a regular file")
        if facts.st_size >= SIZE_LIMIT:
            return FileSeen(path, None, problem=_too_large(facts.st_size))
        stamp = (facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size)
        if known.get(path) == stamp:
            return FileSeen(path, stamp)
        return _read(path, descriptor, stamp)
    except OSError as error:
        return FileSeen(path, None, problem=f"cannot be read: {error.strerror}")
    finally:
        os.close(descriptor)


def _unopened(path: Path, error: OSError) -> FileSeen | None:
    if error.errno == errno.ENOENT:
        if path.is_symlink():
            target = path.readlink()
            return FileSeen(path, None, problem=f"the link leads to {target}, which does not exist")
        return None
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return FileSeen(path, None, problem="not a regular file")
    return FileSeen(path, None, problem=f"cannot be read: {error.strerror}")


def _read(path: Path, descriptor: int, stamp: tuple[int, ...]) -> FileSeen:
    chunks, size = [], 0
    while chunk := os.read(descriptor, 1 << 20):
        chunks.append(chunk)
        size += len(chunk)
        if size >= SIZE_LIMIT:
            return FileSeen(path, None, problem=_too_large(size))
    return FileSeen(path, stamp, b"".join(chunks))


def _too_large(size: int) -> str:
    return f"too large: {size} bytes, the limit is below {SIZE_LIMIT}"
