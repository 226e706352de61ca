"""Removing what containers leave on disk. Blocks."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def remove_tree(root: Path) -> bool:
    """Remove a directory with all that is in it; whether it has gone.

    Also where a directory was closed to its owner, as overlays do with their work directory.
    """
    shutil.rmtree(root, ignore_errors=True)
    if not root.exists():
        return True
    for directory, names, _ in os.walk(root):
        for name in names:
            _open_up(os.path.join(directory, name))  # noqa: PTH118
    shutil.rmtree(root, ignore_errors=True)
    return not root.exists()


def _open_up(path: str) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.chmod(path, 0o700)  # noqa: PTH101
