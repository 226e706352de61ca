"""The end of a container's log, without time stamps. Functions here block.

docs/behaviour/runtime.md, "Termination message".
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Final

MAX_LINES: Final = 80
MAX_BYTES: Final = 2048
_MAX_READ: Final = 256 * 1024
"""Bytes from the end of the file that are looked at, whatever the length of its lines."""


def read_tail(path: str, limit: int) -> bytes:
    """The last bytes of a regular file.

    Whoever may write there is not trusted: nothing waits for the other end of a FIFO.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(0, "not a regular file")
        return os.pread(descriptor, limit, max(facts.st_size - limit, 0))
    finally:
        os.close(descriptor)


def tail_log(path: str) -> str:
    """What a container wrote last: of 80 lines of its log the last 2048 bytes.

    Raises:
        OSError: the log cannot be read.
    """
    found = read_tail(path, _MAX_READ)
    lines = found.splitlines(keepends=True)
    if len(found) == _MAX_READ:
        del lines[0]  # it has no beginning
    words = b"".join(map(_content, lines[-MAX_LINES:]))
    return words[-MAX_BYTES:].decode(errors="replace")


def _content(line: bytes) -> bytes:
    """What the container wrote in a line of the log; a partial one has no end of line."""
    if line.startswith(b"{"):
        return _of_json(line)
    parts = line.split(b" ", 3)
    if len(parts) < 3 or parts[1] not in (b"stdout", b"stderr"):
        return b""
    content = parts[3] if len(parts) > 3 else b"\n"
    partial = parts[2].strip().split(b":")[0] == b"P"
    return content.removesuffix(b"\n") if partial else content


def _of_json(line: bytes) -> bytes:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return b""
    text = entry.get("log") if isinstance(entry, dict) else None
    return text.encode(errors="replace") if isinstance(text, str) else b""
