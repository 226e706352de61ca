"""Looking at manifest files. Blocking: runs in a thread, never on the event loop."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from nodeagent.sources.origin import shown_path
from nodeagent.sources.settling import HINT_DELAY, FileFacts

SIZE_LIMIT: Final = 10 * 1024 * 1024
"""Bytes; a manifest of this size or more is refused."""

_LEFTOVERS: Final = re.compile(
    r"\..*|.*~|#.*#|4913|.*\.(?:bak|swp|swo|swx|tmp|temp|new|old|orig|rej|part)|"
    r".*\.(?:save(?:\.[0-9]+)?|pac(?:new|save|orig))|"
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
        data: its bytes, None when unchanged since ``known``, not whole yet, or unreadable.
        problem: why it cannot be used; "" when it can.
        due: loop time from which it may be read, when it may still be being written; else 0.
        keys: the paths under which its changes are told.
    """

    path: Path
    stamp: tuple[int, ...] | None
    data: bytes | None = None
    problem: str = ""
    due: float = 0.0
    keys: tuple[str, ...] = ()


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


class Readable(Protocol):
    """Tells whether changed files are whole."""

    def __call__(self, file: FileFacts, now: float, /) -> float:
        """The loop time from which the file may be read; ``now`` or earlier when it may be."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """When a look happens.

    Attributes:
        now: loop time.
        wall_ns: wall time, nanoseconds since the epoch.
        readable_at: see there.
    """

    now: float
    wall_ns: int
    readable_at: Readable


def is_leftover(name: str) -> bool:
    """Whether a file name is an editor's or package manager's leftover, or hidden."""
    return _LEFTOVERS.fullmatch(name) is not None


def kept_aside(path: Path, inode: int) -> bool:
    """Whether a file that has gone lies beside its old place as a leftover: an editor's backup."""
    try:
        with os.scandir(path.parent) as entries:
            return any(entry.inode() == inode and is_leftover(entry.name) for entry in entries)
    except OSError:
        return False


def scan(
    paths: Sequence[Path], known: Mapping[Path, tuple[int, ...]], moment: Moment | None = None
) -> list[PathSeen]:
    """Look at all paths.

    Args:
        paths: files and directories, in order.
        known: stamps of files already read; their bytes are read only when they changed.
        moment: leaves out what may still be being written; None reads all that has changed.
    """
    look = _Look(known, moment)
    return [look.at(path) for path in paths]


class _Look:
    """One look at files."""

    def __init__(self, known: Mapping[Path, tuple[int, ...]], moment: Moment | None) -> None:
        self._known = known
        self._moment = moment

    def at(self, path: Path) -> PathSeen:
        """Look at one configured path."""
        try:
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                names = sorted(n for n in os.listdir(path) if not is_leftover(n))  # noqa: PTH208
                return PathSeen(path, tuple(self._files(path, names)))
        except FileNotFoundError:
            return PathSeen(path, problem="path does not exist, ignoring", missing=True)
        except OSError as error:
            return PathSeen(path, problem=f"cannot be read: {error.strerror}")
        if not stat.S_ISREG(mode):
            return PathSeen(path, problem="path is not a directory or file")
        seen = self._file(path)
        return PathSeen(path, (seen,) if seen else ())

    def _files(self, directory: Path, names: Sequence[str]) -> Iterator[FileSeen]:
        for name in names:
            seen = self._file(directory / name)
            if seen is not None:
                yield seen

    def _file(self, path: Path) -> FileSeen | None:
        """One file; None for a subdirectory or a file that has just vanished."""
        try:
            facts = path.stat()
            if stat.S_ISDIR(facts.st_mode):
                return None
            if not stat.S_ISREG(facts.st_mode):
                # Not even opened: to open a device may do something.
                return FileSeen(path, None, problem="not a regular file")
            return self._regular(path, facts)
        except OSError as error:
            return _refused(path, error)

    def _regular(self, path: Path, facts: os.stat_result) -> FileSeen:
        stamp, keys = _stamp(facts), _keys(path)
        if self._known.get(path) == stamp:
            return FileSeen(path, stamp, keys=keys)
        due = self._due(path, facts, keys)
        if due > 0.0:
            return FileSeen(path, stamp, due=due, keys=keys)
        data, after = _read(path)
        size = len(data) if data is not None else after.st_size
        if data is None or size >= SIZE_LIMIT:
            return FileSeen(path, None, problem=too_large(size), keys=keys)
        if self._moment is not None and _stamp(after) != stamp:
            # Someone has written it meanwhile: what was read may be half of it.
            return FileSeen(path, stamp, due=self._moment.now + HINT_DELAY, keys=keys)
        return FileSeen(path, stamp, data, keys=keys)

    def _due(self, path: Path, facts: os.stat_result, keys: tuple[str, ...]) -> float:
        """When the file may be read; 0 for now."""
        if self._moment is None:
            return 0.0
        changed_ns = max(facts.st_mtime_ns, facts.st_ctime_ns)
        file = FileFacts(
            keys=keys,
            name=path.name,
            stamp=_stamp(facts),
            size=facts.st_size,
            links=facts.st_nlink,
            age=(self._moment.wall_ns - changed_ns) / 1e9,
        )
        due = self._moment.readable_at(file, self._moment.now)
        return due if due > self._moment.now else 0.0


def _stamp(facts: os.stat_result) -> tuple[int, ...]:
    return (facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size)


def _keys(path: Path) -> tuple[str, ...]:
    """Its own path and, of a link, where it leads and the ``..data`` it may lead through."""
    if not path.is_symlink():
        return (str(path),)
    return (str(path), str(path.parent / "..data"), os.path.realpath(path))


def _refused(path: Path, error: OSError) -> FileSeen | None:
    if error.errno == errno.ENOENT:
        if path.is_symlink():
            target = shown_path(str(path.readlink()))
            return FileSeen(path, None, problem=f"the link leads to {target}, which does not exist")
        return None
    return FileSeen(path, None, problem=f"cannot be read: {error.strerror}")


def _read(path: Path) -> tuple[bytes | None, os.stat_result]:
    """All bytes, or None when they are too many, and how the file looks after that."""
    # Without O_NONBLOCK what has become a FIFO by now would hang the scan.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        facts = os.fstat(descriptor)
        if facts.st_size >= SIZE_LIMIT:
            return None, facts
        chunks, size = [], 0
        while size < SIZE_LIMIT and (chunk := os.read(descriptor, 1 << 20)):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks), os.fstat(descriptor)
    finally:
        os.close(descriptor)


def too_large(size: int) -> str:
    """What is said of manifests of that many bytes."""
    return f"too large: {size} bytes, the limit is below {SIZE_LIMIT}"
