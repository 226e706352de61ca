"""Volumes as the runtime mounts them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """One volume of a pod, ready on the host.

    Attributes:
        name: the volume's name in the pod's spec.
        host_path: absolute path of its root on the host.
        read_only: whether every mount of it is read-only, whatever the mount says.
    """

    name: str
    host_path: str
    read_only: bool = False
