"""What becomes of rotated log files (docs/behaviour/garbage.md, "Rotation"). Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

TEMPORARY: Final = ".tmp"
COMPRESSED: Final = ".gz"
_STAMP: Final = "%Y%m%d-%H%M%S"
_STAMPED: Final = re.compile(r"\.(\d{8}-\d{6})(?:\.gz)?$", re.ASCII)


@dataclass(frozen=True, slots=True)
class RotationPolicy:
    """When logs are rotated, and what is kept.

    Attributes:
        max_size: bytes at which a log is rotated; negative for never.
        max_files: files kept of one run of a container, the one that is written included.
        period: seconds between two looks.
        workers: logs that are rotated side by side.
    """

    max_size: int = 10 * 1024**2
    max_files: int = 5
    period: float = 10.0
    workers: int = 1


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """What to do with the files beside a log before it is rotated.

    Attributes:
        remove: names of files that go: leftovers, and the oldest.
        compress: names of files to compress.
    """

    remove: tuple[str, ...]
    compress: tuple[str, ...]


def rotated(log: str, names: Iterable[str]) -> list[str]:
    """The files that were rotated away from a log, leftovers included, oldest first."""
    return sorted(name for name in names if name.startswith(f"{log}."))


def plan_rotation(log: str, names: Collection[str], max_files: int) -> RotationPlan:
    """Make room for one more rotated file.

    Args:
        log: name of the log.
        names: all names in its directory.
        max_files: files to keep, the log and the one that is made of it included.
    """
    siblings = rotated(log, names)
    remove = [name for name in siblings if name.endswith(TEMPORARY)]
    # A compressed file is whole as soon as it has its name: what it was made of may go.
    remove += [name for name in siblings if f"{name}{COMPRESSED}" in siblings]
    left = [name for name in siblings if name not in remove]
    kept = left[max(len(left) - max(max_files - 2, 0), 0) :]
    remove += [name for name in left if name not in kept]
    return RotationPlan(
        tuple(remove), tuple(name for name in kept if not name.endswith(COMPRESSED))
    )


def rotated_name(log: str, names: Iterable[str], now: datetime) -> str:
    """The name that a log gets when it is rotated: after all others, whatever the clock says."""
    stamp = now.astimezone(UTC).replace(microsecond=0)
    for name in rotated(log, names):
        if (match := _STAMPED.search(name)) and (before := _parsed(match[1])) is not None:
            stamp = max(stamp, before + timedelta(seconds=1))
    return f"{log}.{stamp.strftime(_STAMP)}"


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
