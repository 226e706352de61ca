"""Files of environment variables that one container writes for another (KEP-3721).

docs/behaviour/runtime.md, "Environment files".
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import PurePosixPath
from typing import Final

MAX_FILE: Final = 64 * 1024
"""Bytes of a file that is read."""
MAX_KEY: Final = 128
MAX_VALUE: Final = 32 * 1024
_ENTRY: Final = re.compile(r"([^\s=#'\"][^\s=]*)='([^']*)'[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_NOTHING: Final = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")


class EnvFileError(Exception):
    """The file is not what it should be; the text says where."""


def parse_env_file(text: str) -> dict[str, str]:
    """Read lines of the form ``KEY='value'``.

    Only single quotes, and everything between them is the value, line breaks included. There
    is no blank around ``=``. Empty lines, lines that begin with ``#`` and a comment after a value
    do not count. Of a key that is given twice the last value counts.

    Raises:
        EnvFileError: a line is something else.
    """
    found: dict[str, str] = {}
    text = text.replace("\r\n", "\n")
    position = 0
    while position < len(text):
        if blank := _NOTHING.match(text, position):
            position = blank.end()
            continue
        entry = _ENTRY.match(text, position)
        if entry is None:
            line = text.count("\n", 0, position) + 1
            msg = f"line {line} is not of the form KEY='value'"
            raise EnvFileError(msg)
        found[entry[1]] = entry[2]
        position = entry.end()
    return found


def read_env_file(volume: str, path: str) -> dict[str, str] | None:
    """Read such a file in a volume; None when it is not there. Blocking.

    Whoever writes to the volume is not trusted: symbolic links are not followed, and nothing
    but a regular file is read.

    Args:
        volume: root of the volume on the host.
        path: where the file is in it.

    Raises:
        EnvFileError: it is not a file of the right form.
        OSError: it cannot be read.
    """
    try:
        descriptor = _open_inside(volume, path)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise EnvFileError("it is not a regular file")
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        msg = f"it is longer than {MAX_FILE} bytes"
        raise EnvFileError(msg)
    return parse_env_file(content.decode("utf-8", "surrogateescape"))


def _open_inside(volume: str, path: str) -> int:
    *parents, name = PurePosixPath(path.lstrip("/")).parts
    here = os.open(volume, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            here, above = _open_part(here, part, os.O_DIRECTORY), here
            os.close(above)
        return _open_part(here, name, os.O_NONBLOCK | os.O_NOCTTY)
    finally:
        os.close(here)


def _open_part(directory: int, name: str, flags: int) -> int:
    if name == "..":
        raise EnvFileError("its path leads out of the volume")
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=directory)
    except NotADirectoryError as error:
        if _is_link(directory, name):
            raise EnvFileError("its path goes through a symbolic link") from error
        raise FileNotFoundError(error.errno, error.strerror) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise EnvFileError("its path goes through a symbolic link") from error
        if error.errno == errno.ENXIO:
            raise EnvFileError("it is not a regular file") from error
        raise


def _is_link(directory: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
