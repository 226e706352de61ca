"""Where the cgroups of containers are, and what their files say. Blocking; meant for a thread."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from nodeagent.stats.cgroup_usage import FILES_V1, FILES_V2, usage_v1, usage_v2
from nodeagent.stats.records import Usage

_DEEPEST: Final = 8
_MOST: Final = 20_000
"""Cgroups that are looked at in one search."""
_LARGEST: Final = 1 << 20
_PIECE: Final = 1 << 16
_ID: Final = re.compile(r"(?:.*[-_])?([0-9a-zA-Z]{12,})(?:\.scope)?")
"""How runtimes name the cgroup of a container: its id, or <word>-<id>.scope."""
_AGAIN_AFTER: Final = 60
"""Searches are not made for ids that were not found before, save once in so many readings."""


class Cgroups:
    """The cgroups of a machine, of either version.

    Args:
        root: where ``sys/fs/cgroup`` and ``proc`` are found.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._base = root / "sys/fs/cgroup"
        self._proc = root / "proc"
        self._unified = (self._base / "cgroup.controllers").exists()
        self._known: dict[str, str] = {}
        self._missing: dict[str, int] = {}

    @property
    def version(self) -> int:
        """1 or 2."""
        return 2 if self._unified else 1

    def find(self, ids: Collection[str]) -> dict[str, str]:
        """The cgroups of containers and sandboxes, as paths that begin with a slash.

        Args:
            ids: at the runtime; those that are not named any more are forgotten.
        """
        wanted = set(ids)
        self._known = {id_: path for id_, path in self._known.items() if id_ in wanted}
        unknown = wanted - self._known.keys()
        self._missing = {id_: n - 1 for id_, n in self._missing.items() if id_ in unknown}
        if any(self._missing.get(id_, 0) <= 0 for id_ in unknown):
            for id_, path in self._search():
                if id_ in unknown:
                    self._known.setdefault(id_, path)
            self._missing = dict.fromkeys(unknown - self._known.keys(), _AGAIN_AFTER)
        return dict(self._known)

    def usage(self, path: str, now: int) -> Usage:
        """What a cgroup uses now; empty when it is gone.

        Args:
            path: as :meth:`find` gives it; "/" is the machine.
            now: wall time.
        """
        if self._unified:
            return usage_v2(self._texts(f"{self._base}{path}", FILES_V2), now)
        texts: dict[str, str] = {}
        for controller, names in FILES_V1.items():
            texts |= self._texts(f"{self._base}/{controller}{path}", names)
        return usage_v1(texts, now)

    def first_process(self, path: str) -> int | None:
        """A process in a cgroup; None when there is none."""
        base = self._base if self._unified else self._base / "memory"
        pids = (read(f"{base}{path}/cgroup.procs") or "").split()
        return int(pids[0]) if pids and pids[0] != "0" else None

    def _texts(self, directory: str, names: Collection[str]) -> dict[str, str]:
        found = {}
        for name in names:
            text = read(f"{directory}/{name}")
            if text is not None:
                found[name] = text
        return found

    def _search(self) -> Iterator[tuple[str, str]]:
        base = str(self._base if self._unified else self._base / "memory")
        left = _MOST
        todo = [("", 0)]
        while todo and left:
            path, depth = todo.pop()
            try:
                with os.scandir(base + path) as entries:
                    below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError:
                continue
            for name in below:
                left -= 1
                found = _ID.fullmatch(name)
                if found is not None:
                    yield found[1], f"{path}/{name}"
                if depth < _DEEPEST:
                    todo.append((f"{path}/{name}", depth + 1))


def read(path: str) -> str | None:
    """The text of a small file; None when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # The kernel gives long files in pieces, whatever the size that is asked for.
        whole = piece = os.read(descriptor, _PIECE)
        while piece and len(whole) < _LARGEST:
            piece = os.read(descriptor, _PIECE)
            whole += piece
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return whole.decode("utf-8", "replace")
