"""Where container logs lie (docs/behaviour/garbage.md, "Log files"). Functions here block."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.runtime.names import PodNames

_ATTEMPT: Final = re.compile(r"(\d+)\.log", re.ASCII)
_MAX_LINK: Final = 251


def pod_log_dir(logs_dir: Path, pod: PodNames) -> Path:
    """The pod's log directory."""
    return logs_dir / pod.log_directory


def plain_names(pod: PodNames, container: str) -> bool:
    """Whether the log of a container lies where it should by these names.

    They come from labels, and anyone who may talk to the runtime writes what he likes there.
    """
    parts = (pod.namespace, pod.name, pod.uid, container)
    return all(part and "/" not in part and "\0" not in part for part in parts) and (
        container not in (".", "..")
    )


def container_log(logs_dir: Path, pod: PodNames, container: str, attempt: int) -> Path:
    """The log file of one run of a container."""
    return logs_dir.joinpath(pod.log_directory, container, f"{attempt}.log")


def make_log_dir(path: Path) -> None:
    """Make a log directory that others may read."""
    path.mkdir(parents=True, exist_ok=True, mode=0o755)


def next_attempt(container_dir: Path) -> int:
    """The attempt that follows the log files that are there; 0 when there are none."""
    found = [int(m[1]) for name in _names(container_dir) if (m := _ATTEMPT.match(name))]
    return max(found) + 1 if found else 0


def _names(directory: Path) -> list[str]:
    try:
        return [entry.name for entry in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def link_name(pod: PodNames, container: str, container_id: str) -> str:
    """The name of the symbolic link that leads to a container's log."""
    base = f"{pod.name}_{pod.namespace}_{container}-{container_id}"
    return base[:_MAX_LINK] + ".log"


def link_log(links_dir: Path, log: Path, pod: PodNames, container: str, container_id: str) -> None:
    """Make the symbolic link to a log file, if there is one."""
    if not log.exists():
        return
    links_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
    with suppress(FileExistsError):
        (links_dir / link_name(pod, container, container_id)).symlink_to(log)


def unlink_log(links_dir: Path | None, pod: PodNames, container: str, container_id: str) -> None:
    """Remove the symbolic link to a container's log, if there is one."""
    if links_dir is not None:
        (links_dir / link_name(pod, container, container_id)).unlink(missing_ok=True)


def remove_container_logs(log: Path) -> None:
    """Remove the log file of one run and what was rotated away from it."""
    for name in _names(log.parent):
        if name == log.name or name.startswith(f"{log.name}."):
            (log.parent / name).unlink(missing_ok=True)
    with suppress(OSError):
        log.parent.rmdir()  # only when nothing else is in it


def pod_log_dirs(logs_dir: Path) -> Iterator[Path]:
    """All pods' log directories."""
    for name in sorted(_names(logs_dir)):
        path = logs_dir / name
        if path.is_dir() and not path.is_symlink():
            yield path


def remove_pod_logs(directory: Path) -> None:
    """Remove a pod's log directory; symbolic links in it are not followed."""
    with suppress(FileNotFoundError):
        shutil.rmtree(directory)


def remove_dangling_links(links_dir: Path, alive: Collection[str]) -> int:
    """Remove links whose log is gone, except those of living containers; returns how many."""
    removed = 0
    for name in _names(links_dir):
        path = links_dir / name
        container_id = name.removesuffix(".log").rpartition("-")[2]
        if container_id not in alive and path.is_symlink() and not path.exists():
            path.unlink(missing_ok=True)
            removed += 1
    return removed
