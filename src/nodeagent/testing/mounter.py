"""Mounts that are only written down, for tests that must not, or may not, mount."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.volumes.mounter import MountError
from nodeagent.volumes.mounts import MountPoint


@dataclass(slots=True)
class RecordedMounter:
    """A mounter that keeps a list.

    A file system that is "mounted" is the directory that it was mounted on; what is "bound" is
    not to be seen there.

    Attributes:
        calls: what was asked for, in order, in words: ``mount tmpfs /x size=1``.
        points: what is mounted now.
        before: called first with each of those words; may raise ``MountError``, or hang.
    """

    calls: list[str] = field(default_factory=list)
    points: list[MountPoint] = field(default_factory=list)
    before: Callable[[str], None] = lambda _call: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def mount(
        self, fs_type: str, target: Path, *, source: str = "none", options: Sequence[str] = ()
    ) -> None:
        """Write down a mount."""
        self._add(f"mount {fs_type}", fs_type, target, source, options)

    def mount_with_helper(
        self, fs_type: str, target: Path, *, source: str, options: Sequence[str] = ()
    ) -> None:
        """Write down a mount of the system's program."""
        self._add(f"mount_with_helper {fs_type} {source}", fs_type, target, source, options)

    def bind(self, source: Path | str, target: Path, *, read_only: bool = False) -> None:
        """Write down a bind mount, by the real path of what a descriptor has open."""
        source = os.path.realpath(source)
        options = ("ro",) if read_only else ()
        self._add(f"bind {source}", "bind", target, source, options)

    def unmount(self, target: Path, *, lazy: bool = False) -> None:
        """Take the newest mount at a path off the list."""
        word = "unmount --lazy" if lazy else "unmount"
        call = f"{word} {target}"
        self.before(call)
        with self._lock:
            self.calls.append(call)
            path = os.path.realpath(target)
            newest = next((p for p in reversed(self.points) if p.path == path), None)
            if newest is not None:
                self.points.remove(newest)

    def mounts(self, below: Path) -> list[MountPoint]:
        """What is on the list at or below a path."""
        top = os.path.realpath(below)
        with self._lock:
            return [p for p in self.points if p.path == top or p.path.startswith(f"{top}/")]

    def _add(
        self, words: str, fs_type: str, target: Path, source: str, options: Sequence[str]
    ) -> None:
        call = " ".join((words, str(target), *options))
        self.before(call)
        with self._lock:
            self.calls.append(call)
            if not os.path.lexists(target):
                msg = f"{call}: No such file or directory"
                raise MountError(msg)
            path = os.path.realpath(target)
            self.points.append(MountPoint(path, fs_type, source, "/", frozenset(options)))
