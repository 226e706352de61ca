"""The ways from a device that a driver shows to the containers of a pod. All functions block.

docs/behaviour/csi.md, "Devices".
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from nodeagent.volumes import csi_names as names
from nodeagent.volumes.mounter import Mounter, MountError, is_mounted

_TIMEOUT: Final = 30.0


class DeviceLocks(Protocol):
    """Keep devices open, so that nobody can take one away that is in use. Blocking."""

    def hold(self, path: Path) -> None:
        """Keep the device at a path open; it may be open already.

        Raises:
            MountError: it cannot be.
        """
        ...

    def let_go(self, path: Path) -> None:
        """Keep it open no longer; it may not be open.

        Raises:
            MountError: it is in use.
        """
        ...


class LoopLocks:
    """Keep devices open by loop devices, which outlive the agent; needs the rights of root."""

    def hold(self, path: Path) -> None:
        """Put a loop device on top, unless there is one."""
        if not _loops(path):
            _losetup("--find", "--show", str(path))

    def let_go(self, path: Path) -> None:
        """Take it away."""
        for loop in _loops(path):
            _losetup("--detach", loop)


def _loops(path: Path) -> list[str]:
    lines = _losetup("--associated", str(path)).splitlines()
    return [line.partition(":")[0] for line in lines if line.startswith("/dev/")]


def _losetup(*arguments: str) -> str:
    command = ["losetup", *arguments]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT)
    except FileNotFoundError:
        raise MountError("there is no program 'losetup' on this node") from None
    except subprocess.TimeoutExpired:
        msg = f"{' '.join(command)}: no answer within {_TIMEOUT:g}s"
        raise MountError(msg) from None
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip() or f"exit {error.returncode}"
        msg = f"{' '.join(command)}: {said}"
        raise MountError(msg) from None
    return done.stdout


def map_device(root: Path, uid: str, spec: str, mounter: Mounter, locks: DeviceLocks) -> Path:
    """Give a published device to a pod; where the pod finds it.

    Raises:
        MountError: it cannot be mounted or held.
        OSError: a file cannot be made.
    """
    device = names.block_publish_path(root, spec, uid)
    shown = names.block_dir(root, spec) / "dev" / uid
    shown.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    shown.touch(mode=0o600, exist_ok=True)
    if not is_mounted(mounter, shown):
        mounter.bind(device, shown)
    locks.hold(shown)
    link = names.device_link(root, uid, spec)
    link.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    if link.is_symlink():
        link.unlink()
    link.symlink_to(device)
    return link


def unmap_device(root: Path, uid: str, spec: str, mounter: Mounter, locks: DeviceLocks) -> None:
    """Take it away again; the link stays, to say that the driver still shows it.

    Raises:
        MountError: it is in use.
        OSError: a file cannot be removed.
    """
    shown = names.block_dir(root, spec) / "dev" / uid
    if shown.exists():
        locks.let_go(shown)
        while is_mounted(mounter, shown):
            mounter.unmount(shown)
        shown.unlink(missing_ok=True)


def remove_published(root: Path, uid: str, spec: str) -> None:
    """Remove what is left once the driver shows the device no longer.

    Raises:
        OSError: something cannot be removed.
    """
    path = names.block_publish_path(root, spec, uid)
    path.unlink(missing_ok=True)
    with suppress(OSError):  # other pods have it
        path.parent.rmdir()
    names.device_link(root, uid, spec).unlink(missing_ok=True)
    with suppress(OSError):
        names.device_link(root, uid, spec).parent.rmdir()
