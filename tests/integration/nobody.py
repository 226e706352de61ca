"""Running commands as a user without privileges, whoever runs the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nodeagent.embedded.process.trees import remove_tree

NOBODY: Final = 65534


def prefix() -> Sequence[str]:
    """What to put before a command; nothing when this user has no privileges anyway."""
    if os.geteuid() != 0:
        return ()
    become = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    # By way of a shell, because setpriv itself still finds what only root does.
    again = ("sh", "-c", 'exec "$@"', "sh", sys.executable, "-c", "import nodeagent.cli")
    check = subprocess.run([*become, *again], check=False, capture_output=True)
    if check.returncode == 0:
        return become
    # The interpreter or the checkout lie in somebody's home: reading is all that this adds.
    return (*become, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


@contextmanager
def home() -> Iterator[Path]:
    """A directory of that user's own: pytest's directories are closed to others."""
    path = Path(tempfile.mkdtemp(prefix="nodeagent-nobody-", dir=_open_to_all()))
    try:
        give_away(path)
        yield path
    finally:
        assert remove_tree(path)  # overlays leave directories that are closed to their owner


def give_away(path: Path) -> None:
    """Let that user own it."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)


def _open_to_all() -> str:
    """A directory for temporary files that every user can get to."""
    for place in (Path(tempfile.gettempdir()).resolve(), Path("/var/tmp")):
        if all(one.stat().st_mode & 0o001 for one in (place, *place.parents)):
            return str(place)
    raise AssertionError("no directory for temporary files is open to all")
