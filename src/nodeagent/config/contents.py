"""What configuration files hold: read from the disk, or kept from an earlier time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

_DROP_IN: Final = ".conf"
_LOOKS_LIKE_ONE: Final = (".yaml", ".yml", ".json")
_SHOWN: Final = 12


class Files(Protocol):
    """Where the content of configuration files comes from."""

    def read(self, path: Path) -> bytes:
        """The content of a file.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def drop_ins(self, directory: Path) -> tuple[list[Path], list[Path]]:
        """The drop-ins of a directory in the order in which they count, and files left aside.

        Raises:
            OSError: the directory cannot be read.
        """
        ...


class Disk:
    """The files as they are now. Blocks."""

    def read(self, path: Path) -> bytes:
        """See :class:`Files`."""
        return path.read_bytes()

    def drop_ins(self, directory: Path) -> tuple[list[Path], list[Path]]:
        """See :class:`Files`.

        All directories below are looked through; of a ConfigMap that is mounted only the names
        that people see. Files are left aside that look like drop-ins and do not end in ``.conf``.
        """
        return _drop_ins(directory)


DISK: Final = Disk()
"""The disk, of which nothing is remembered."""


@dataclass(slots=True)
class Recorded:
    """The files as they were read: a disk that remembers what it gave. Blocks.

    Attributes:
        files: content by path.
        directories: the drop-ins of each directory that was looked at.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    directories: dict[str, list[str]] = field(default_factory=dict)

    def read(self, path: Path) -> bytes:
        """See :class:`Files`."""
        data = path.read_bytes()
        self.files[str(path)] = data
        return data

    def drop_ins(self, directory: Path) -> tuple[list[Path], list[Path]]:
        """See :class:`Disk`."""
        taken, aside = _drop_ins(directory)
        self.directories[str(directory)] = [str(path) for path in taken]
        return taken, aside

    @property
    def digest(self) -> str:
        """Short name of the content: the same for the same files with the same content."""
        return _digest(self.files)

    def saved(self) -> dict[str, Any]:
        """As JSON has it, for :meth:`Kept.restored`."""
        files = {path: base64.b64encode(data).decode() for path, data in self.files.items()}
        return {"files": files, "directories": self.directories}


@dataclass(frozen=True, slots=True)
class Kept:
    """Files as they were at an earlier time, whatever the disk holds now."""

    files: Mapping[str, bytes]
    directories: Mapping[str, list[str]]

    @classmethod
    def restored(cls, saved: Any) -> Kept:
        """What :meth:`Recorded.saved` gave.

        Raises:
            ValueError: it is something else.
        """
        try:
            files = {
                str(path): base64.b64decode(text, validate=True)
                for path, text in saved["files"].items()
            }
            listed = {str(at): list(map(str, of)) for at, of in saved["directories"].items()}
        except (KeyError, TypeError, AttributeError, binascii.Error) as error:
            msg = f"holds no files: {type(error).__name__}"
            raise ValueError(msg) from error
        return cls(files, listed)

    @property
    def digest(self) -> str:
        """See :attr:`Recorded.digest`."""
        return _digest(self.files)

    def read(self, path: Path) -> bytes:
        """See :class:`Files`."""
        try:
            return self.files[str(path)]
        except KeyError:
            raise FileNotFoundError(2, "was not kept", str(path)) from None

    def drop_ins(self, directory: Path) -> tuple[list[Path], list[Path]]:
        """See :class:`Files`; nothing was left aside."""
        return [Path(path) for path in self.directories.get(str(directory), ())], []


def _digest(files: Mapping[str, bytes]) -> str:
    found = hashlib.sha256()
    for path, data in sorted(files.items()):
        found.update(os.fsencode(path) + b"\0" + hashlib.sha256(data).digest())
    return found.hexdigest()[:_SHOWN]


def _drop_ins(directory: Path) -> tuple[list[Path], list[Path]]:
    def refuse(error: OSError) -> None:
        raise error

    taken, aside = [], []
    for place, names, files in os.walk(directory, onerror=refuse):
        names[:] = sorted(name for name in names if not name.startswith(".."))
        for name in files:
            path = Path(place, name)
            if path.suffix == _DROP_IN:
                taken.append(path)
            elif path.suffix in _LOOKS_LIKE_ONE:
                aside.append(path)
    return sorted(taken, key=lambda path: path.relative_to(directory).parts), sorted(aside)
