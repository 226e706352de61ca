"""Files below one directory, and none beside it. Functions here block."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path


def open_below(root: Path, steps: Sequence[str]) -> int | list[str]:
    """A descriptor of a file below a directory, or the names in a directory below it. Blocking.

    Links are followed as long as they lead to something below ``root``.

    Raises:
        FileNotFoundError: there is no such file or directory, or it is not below ``root``.
        PermissionError: it must not be read.
    """
    if any(step in (".", "..") or "\0" in step for step in steps):
        raise FileNotFoundError
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(root.joinpath(*filter(None, steps)), flags)
    except PermissionError:
        raise
    except OSError as error:
        raise FileNotFoundError from error
    try:
        # The kernel says where it really is; nobody can exchange a link after this.
        real = Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115
        mode = os.fstat(descriptor).st_mode
        if not real.is_relative_to(root.resolve()):
            raise FileNotFoundError
        if stat.S_ISDIR(mode):
            with os.scandir(descriptor) as entries:
                names = [entry.name + "/" * entry.is_dir() for entry in entries]
            os.close(descriptor)
            return sorted(names)
        if not stat.S_ISREG(mode):
            raise FileNotFoundError
    except OSError as error:
        os.close(descriptor)
        raise FileNotFoundError from error
    return descriptor
