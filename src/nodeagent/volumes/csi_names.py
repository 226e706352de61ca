"""Names and places of volumes that storage drivers serve. Pure.

docs/behaviour/csi.md, "Volumes".
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

PLUGIN: Final = "kubernetes.io/csi"
DIRECTORY: Final = "kubernetes.io~csi"
VOLUMES: Final = "volumes"
DEVICES: Final = "volumeDevices"


def unique_name(driver: str, handle: str) -> str:
    """How the Node lists a volume."""
    return f"{PLUGIN}/{driver}^{handle}"


def attachment_name(driver: str, handle: str, node: str) -> str:
    """The VolumeAttachment of a volume and a node."""
    return f"csi-{_digest(handle + driver + node)}"


def inline_handle(uid: str, volume: str) -> str:
    """The handle of a volume that is made for one pod."""
    return f"csi-{_digest(uid + volume)}"


def volume_dir(root: Path, uid: str, spec: str) -> Path:
    """What a pod has of a volume: its data, and its mount."""
    return root / "pods" / uid / VOLUMES / DIRECTORY / spec


def device_link(root: Path, uid: str, spec: str) -> Path:
    """What a pod has of a volume that is a device: a link to it."""
    return root / "pods" / uid / DEVICES / DIRECTORY / spec


def drivers_dir(root: Path) -> Path:
    """Where volumes are staged that are file systems, and all of those that are devices."""
    return root / "plugins" / PLUGIN


def staging_path(root: Path, driver: str, handle: str) -> Path:
    """Where a volume is made ready for all pods."""
    return drivers_dir(root) / driver / _digest(handle) / "globalmount"


def block_dir(root: Path, spec: str) -> Path:
    """What the node has of a volume that is a device."""
    return drivers_dir(root) / DEVICES / spec


def block_staging_path(root: Path, spec: str) -> Path:
    """Where a device is made ready for all pods."""
    return drivers_dir(root) / DEVICES / "staging" / spec


def block_publish_path(root: Path, spec: str, uid: str) -> Path:
    """Where the driver shows a device to one pod."""
    return drivers_dir(root) / DEVICES / "publish" / spec / uid


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
