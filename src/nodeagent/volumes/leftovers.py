"""What is on the disk of a pod's volumes, whoever made it. All functions block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.volumes.removal import Removal, mount_points_below, remove_tree

_DEVICES: Final = "volumeDevices"
_KINDS: Final = ("volumes", _DEVICES)
_POD_SUBDIRECTORIES: Final = ("volumes", "plugins", "containers")


def make_pod_dirs(path: Path) -> None:
    """Make the directory of a pod, and those in it."""
    for directory in (path.parent, path, *(path / name for name in _POD_SUBDIRECTORIES)):
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)


def volumes_on_disk(pod_dir: Path) -> list[tuple[str, str, str]]:
    """Kind (``volumes``, ``volumeDevices``), plugin and name of each volume directory."""
    return [
        (kind, plugin, name)
        for kind in _KINDS
        for plugin in _names(pod_dir / kind)
        for name in _names(pod_dir / kind / plugin, links=kind == _DEVICES)
    ]


def _names(path: Path, *, links: bool = False) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(e.name for e in os.scandir(path) if _counts(e, links))
    return []


def _counts(entry: os.DirEntry[str], links: bool) -> bool:
    # A device of a pod is a link to it.
    return links if entry.is_symlink() else entry.is_dir()


def remove_pod_dir(pod_dir: Path) -> tuple[bool, Removal]:
    """Remove the directory of a pod whose volumes were torn down.

    A volume that is still there belongs to a kind that nobody knows: its directory goes only
    when it is empty, and nothing in it is touched.

    Returns:
        Whether there was a directory, and what is left.
    """
    if not os.path.lexists(pod_dir):
        return False, Removal()
    removal = Removal()
    for left in _unknown_volumes(pod_dir):
        mounts = mount_points_below(left)
        try:
            if mounts:
                removal.mounts.extend(sorted(mounts))
            else:
                left.rmdir()
        except OSError as error:
            removal.failures.append(f"{left}: {error.strerror}")
    if not removal.complete:
        return True, removal
    return True, remove_tree(pod_dir)


def _unknown_volumes(pod_dir: Path) -> Iterator[Path]:
    for kind, plugin, name in volumes_on_disk(pod_dir):
        yield pod_dir / kind / plugin / name


def describe_left(pod_dir: Path, removal: Removal) -> str:
    """What is left of a pod's directory, for people."""
    parts = [f"{pod_dir} is not removed"]
    if removal.mounts:
        parts.append(f"still mounted: {', '.join(removal.mounts)}")
    if removal.failures:
        parts.append("; ".join(removal.failures))
    return ": ".join(parts)


def pods_on_disk(pods: Path) -> list[str]:
    """Names of the directories of pods."""
    return _names(pods)
