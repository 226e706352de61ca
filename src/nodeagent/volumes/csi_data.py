"""What is written beside a volume, so that the next agent can undo it. All functions block."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nodeagent.volumes import csi_names as names

FILE: Final = "vol_data.json"
PERSISTENT: Final = "Persistent"
EPHEMERAL: Final = "Ephemeral"


@dataclass(frozen=True, slots=True)
class VolumeData:
    """What must be known of a volume without its pod.

    Attributes:
        driver: who serves it.
        handle: the driver's name of it.
        spec_name: name of the PersistentVolume, or of the pod's volume.
        node: the node.
        attachment: name of its VolumeAttachment.
        lifecycle: ``Persistent`` or ``Ephemeral``.
    """

    driver: str
    handle: str
    spec_name: str = ""
    node: str = ""
    attachment: str = ""
    lifecycle: str = PERSISTENT

    @property
    def persistent(self) -> bool:
        """Whether it outlives its pod."""
        return self.lifecycle != EPHEMERAL


def save(directory: Path, data: VolumeData) -> None:
    """Write it into a directory, which is made; a reader never sees a part of it."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o750)
    content: dict[str, Any] = {
        "specVolID": data.spec_name,
        "volumeHandle": data.handle,
        "driverName": data.driver,
        "nodeName": data.node,
        "attachmentID": data.attachment,
        "volumeLifecycleMode": data.lifecycle,
        "seLinuxMountContext": "",
    }
    target, fresh = directory / FILE, directory / f".{FILE}.new"
    text = json.dumps(content).encode()
    with suppress(OSError):
        if target.read_bytes() == text:
            return
    with fresh.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(target)


def load(directory: Path) -> VolumeData | None:
    """Read it; None when it is not there, or is nothing that can be used."""
    try:
        found = json.loads((directory / FILE).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None

    def text(key: str) -> str:
        value = found.get(key)
        return value if isinstance(value, str) else ""

    driver, handle = text("driverName"), text("volumeHandle")
    if not driver or not handle:
        return None
    return VolumeData(
        driver,
        handle,
        text("specVolID"),
        text("nodeName"),
        text("attachmentID"),
        text("volumeLifecycleMode") or PERSISTENT,
    )


def remove(directory: Path) -> None:
    """Remove it, and its directory if that is empty then."""
    for name in (FILE, f".{FILE}.new"):
        (directory / name).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        directory.rmdir()


def is_there(path: Path) -> bool:
    """Whether something lies at a path, be it a link that leads nowhere."""
    return path.is_symlink() or path.exists()


def published(root: Path) -> Iterator[tuple[str, str, VolumeData]]:
    """Pod, name and data of each volume that pods have, file systems and devices."""
    for pod in _entries(root / "pods"):
        for path in _entries(pod / names.VOLUMES / names.DIRECTORY):
            if (data := load(path)) is not None:
                yield pod.name, path.name, data
        for path in _entries(pod / names.DEVICES / names.DIRECTORY):
            data = load(names.block_dir(root, path.name) / "data")
            if data is not None:
                yield pod.name, path.name, data


def staged(root: Path) -> Iterator[tuple[bool, Path, VolumeData]]:
    """Whether it is a device, staging path and data of each volume that is staged."""
    top = names.drivers_dir(root)
    for driver in _entries(top):
        if driver.name == names.DEVICES:
            for path in _entries(driver):
                if (data := load(path / "data")) is not None:
                    yield True, names.block_staging_path(root, path.name), data
            continue
        for path in _entries(driver):
            if (data := load(path)) is not None:
                yield False, path / "globalmount", data


def _entries(path: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(path.iterdir())
    return []
