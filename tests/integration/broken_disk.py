"""A directory on which nothing can be written for a while, as the system calls see it."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_stat = os.stat  # before any guard wraps it
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_MAKING = ("mkdir", "rename", "replace", "link", "symlink")
_CHANGING = ("unlink", "remove", "rmdir", "chmod", "utime")


class BrokenDisk:
    """Fails what writes below some directories.

    A disk that is full (ENOSPC) refuses what makes files or makes them longer; one that is
    read-only (EROFS) refuses removals, too.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *places: Path) -> None:
        self._places = tuple(f"{place}/" for place in places)
        self._error = 0
        self.refused: set[str] = set()
        monkeypatch.setattr(os, "open", self._open(os.open))
        opener = self._io_open(io.open)
        monkeypatch.setattr(io, "open", opener)
        monkeypatch.setattr(builtins, "open", opener)
        monkeypatch.setattr(os, "write", self._write(os.write))
        for name in (*_MAKING, *_CHANGING):
            monkeypatch.setattr(os, name, self._call(name, getattr(os, name)))

    def break_(self, error: int) -> None:
        self._error = error

    def repair(self) -> None:
        self._error = 0

    def _check(self, path: Any, directory: int | None = None) -> None:
        if not self._error or isinstance(path, int):
            return
        where = os.fsdecode(path)
        if directory is not None:
            where = f"{_path_of(directory)}/{where}"
        if where.startswith(self._places):
            self.refused.add(where)
            raise OSError(self._error, os.strerror(self._error), where)

    def _open(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *args: Any, **options: Any) -> int:
            new = flags & os.O_CREAT and not _exists(path)
            if flags & _WRITING and (new or self._error == errno.EROFS):
                self._check(path, options.get("dir_fd"))
            return real(path, flags, *args, **options)

        return call

    def _io_open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if set(mode) & set("wax+"):
                self._check(path)
            return real(path, mode, *args, **options)

        return call

    def _write(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(descriptor: int, data: Any) -> int:
            if self._error:
                self._check(_path_of(descriptor))
            return real(descriptor, data)

        return call

    def _call(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            makes = name in _MAKING and not (name == "mkdir" and _exists(args[0]))
            if makes or (name in _CHANGING and self._error == errno.EROFS):
                self._check(args[0], options.get("dir_fd", options.get("src_dir_fd")))
            return real(*args, **options)

        return call


def _exists(path: Any) -> bool:
    try:
        _stat(path)
    except OSError:
        return False
    return True


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())
