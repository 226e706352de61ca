"""Files of a volume that change all at once (docs/behaviour/volumes.md, "Atomic writer").

``..data`` leads to a directory named for the time at which it was written, and each name at
the top leads through ``..data``. A reader that opens one directory sees one version, whole.
All functions block.
"""

from __future__ import annotations

import os
import posixpath
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.clock import Clock, SystemClock

DATA: Final = "..data"
_NEW_DATA: Final = "..data_tmp"
_LONGEST_PATH: Final = 4096
_LONGEST_NAME: Final = 255
_VERSION: Final = re.compile(r"\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+")


@dataclass(frozen=True, slots=True)
class ProjectedFile:
    """One file to be written.

    Attributes:
        data: its content. May be secret: never logged.
        mode: its permission bits.
        owner: the user that it belongs to; None for the agent's.
    """

    data: bytes
    mode: int
    owner: int | None = None

    def __repr__(self) -> str:
        return f"ProjectedFile({len(self.data)} bytes, mode={self.mode:#o}, owner={self.owner})"


Payload = Mapping[str, ProjectedFile]
"""Files by path relative to the volume."""


class PayloadError(ValueError):
    """A path that no file of a volume may have."""


def clean_payload(payload: Payload) -> dict[str, ProjectedFile]:
    """The payload by cleaned paths (``a//b`` is ``a/b``). Pure.

    Raises:
        PayloadError: a path is empty, absolute, too long, steps back, or begins with ``..``; or
            is a file and a directory at once.
    """
    cleaned: dict[str, ProjectedFile] = {}
    for path, file in payload.items():
        _check(path)
        cleaned[posixpath.normpath(path)] = file
    for path in cleaned:
        for above in _parents(path):
            if above in cleaned:
                msg = f"invalid path: {above} is a file and the directory of {path}"
                raise PayloadError(msg)
    return cleaned


def _check(path: str) -> None:
    fault = ""
    if not path or posixpath.normpath(path) == ".":
        fault = f'must not be empty: "{path}"'
    elif path.startswith("/"):
        fault = f"must be relative path: {path}"
    elif len(os.fsencode(path)) > _LONGEST_PATH:
        fault = f"must be less than or equal to {_LONGEST_PATH} characters"
    elif "\0" in path:
        fault = "must not contain a zero byte"
    else:
        fault = _fault_of_parts(path)
    if fault:
        msg = f"invalid path: {fault}"
        raise PayloadError(msg)


def _fault_of_parts(path: str) -> str:
    parts = path.split("/")
    if ".." in parts:
        return f"must not contain '..': {path}"
    if path.startswith(".."):
        return f"must not start with '..': {path}"
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in parts):
        return f"filename must be less than or equal to {_LONGEST_NAME} characters: {path}"
    # "./..data" is the writer's own link all the same.
    return f"must not start with '..': {path}" if _top(posixpath.normpath(path))[:2] == ".." else ""


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _top(path: str) -> str:
    return path.partition("/")[0]


def write_payload(
    directory: Path,
    payload: Payload,
    prepare: Callable[[Path], None] | None = None,
    clock: Clock | None = None,
) -> bool:
    """Make the payload the content of a directory, in one step for whoever reads it.

    What is the same, byte for byte, is not written again (a mode alone is no difference). What
    a killed agent left half done is completed or removed.

    Args:
        directory: the volume; it exists.
        payload: all files that it shall have.
        prepare: what is done about the new directory (its owner) before anybody sees it.
        clock: wall clock, for the new directory's name.

    Returns:
        Whether anything was written.

    Raises:
        PayloadError: a path is not allowed; nothing was written.
        OSError: the disk refuses; what was there is still there.
    """
    files = clean_payload(payload)
    old = _current(directory)
    changed = old is None or _differs(directory / old, files)
    if changed:
        # First, as what a killed agent left may be what fills the disk.
        _remove_versions(directory, old)
        old = _publish(directory, files, prepare, clock or SystemClock())
    _link_tops(directory, files, old)
    return changed


def has_payload(directory: Path) -> bool:
    """Whether a directory has content, be it of a killed agent; its names are completed.

    Raises:
        OSError: the disk refuses.
    """
    current = _current(directory)
    if current is None:
        return False
    _link_tops(directory, _files_below(directory / current), current)
    return True


def _current(directory: Path) -> str | None:
    """The name of the directory that ``..data`` leads to; None when it leads to none."""
    with suppress(OSError):
        name = str((directory / DATA).readlink())
        if _VERSION.fullmatch(name) and (directory / name).is_dir():
            return name
    return None


def _differs(version: Path, files: Mapping[str, ProjectedFile]) -> bool:
    found = _files_below(version)
    if found != files.keys():
        return True
    try:
        return any((version / path).read_bytes() != file.data for path, file in files.items())
    except OSError:
        return True


def _files_below(version: Path) -> set[str]:
    found: set[str] = set()
    for base, _, names in os.walk(version):
        prefix = os.path.relpath(base, version)
        found.update(posixpath.normpath(posixpath.join(prefix, name)) for name in names)
    return found


def _publish(
    directory: Path,
    files: Mapping[str, ProjectedFile],
    prepare: Callable[[Path], None] | None,
    clock: Clock,
) -> str:
    name = _new_version(directory, clock)
    version = directory / name
    try:
        for path, file in files.items():
            _write(version, path, file)
        if prepare is not None:
            prepare(version)
        with suppress(FileNotFoundError):
            (directory / _NEW_DATA).unlink()
        (directory / _NEW_DATA).symlink_to(name)
        (directory / _NEW_DATA).rename(directory / DATA)
    except BaseException:
        shutil.rmtree(version, ignore_errors=True)
        raise
    return name


def _new_version(directory: Path, clock: Clock) -> str:
    stamp = clock.now().strftime("..%Y_%m_%d_%H_%M_%S")
    while True:
        name = f"{stamp}.{secrets.randbelow(10**10)}"
        with suppress(FileExistsError):
            (directory / name).mkdir()
            (directory / name).chmod(0o755)
            return name


def _write(version: Path, path: str, file: ProjectedFile) -> None:
    for above in _parents(path):
        with suppress(FileExistsError):
            (version / above).mkdir()
            (version / above).chmod(0o755)
    target = version / path
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb", buffering=0) as out:  # noqa: PTH123 - of a descriptor
        view = memoryview(file.data)
        while view:
            view = view[out.write(view) :]
        if file.owner is not None:
            os.fchown(descriptor, file.owner, -1)
        os.fchmod(descriptor, file.mode)


def _link_tops(directory: Path, files: Iterable[str], current: str | None) -> None:
    """Give the content its names, and remove what is of other versions."""
    tops = {_top(path) for path in files}
    for top in sorted(tops):
        _link_top(directory, top)
    _sweep(directory, tops, current)


def _link_top(directory: Path, top: str) -> None:
    link, target = directory / top, f"{DATA}/{top}"
    with suppress(OSError):
        if str(link.readlink()) == target:
            return
    with suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(target)


def _sweep(directory: Path, tops: set[str], current: str | None) -> None:
    """Remove old versions, and names that lead to nothing any more."""
    for entry in list(directory.iterdir()):
        if entry.is_symlink():
            own = str(entry.readlink()) == f"{DATA}/{entry.name}"
            if own and entry.name not in tops:
                entry.unlink()
    _remove_versions(directory, current)


def _remove_versions(directory: Path, current: str | None) -> None:
    for entry in list(directory.iterdir()):
        if entry.is_symlink() or entry.name == current:
            continue
        if _VERSION.fullmatch(entry.name):
            shutil.rmtree(entry)
