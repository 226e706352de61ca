"""Volumes as the runtime mounts them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """One volume of a pod, ready on the host.

    Attributes:
        name: the volume's name in the pod's spec.
        host_path: absolute path of its root on the host; of a block volume, of its device; ""
            for an image volume.
        read_only: whether every mount of it is read-only, whatever the mount says.
        image: what the runtime mounts itself instead of a path; "" for nothing.
        block: whether it is a device and no file system.
        groups: further groups that the pod's processes need to use it.
        relabel: whether the runtime shall give its files the pod's SELinux label.
    """

    name: str
    host_path: str
    read_only: bool = False
    image: str = ""
    block: bool = False
    groups: tuple[int, ...] = ()
    relabel: bool = False


@dataclass(frozen=True, slots=True)
class ServiceAccountToken:
    """A token of a pod's service account.

    Attributes:
        value: the token. Never logged.
        expires: when it is no longer taken, with its zone.
    """

    value: str
    expires: datetime

    def __repr__(self) -> str:
        return f"ServiceAccountToken(expires={self.expires.isoformat()})"


@dataclass(frozen=True, slots=True)
class PodCredentials:
    """A key and the certificates that a signer issued to a pod.

    Attributes:
        key: the private key, PEM. Never logged.
        chain: the certificates, the pod's own first, PEM.
    """

    key: bytes
    chain: bytes

    def __repr__(self) -> str:
        return "PodCredentials()"
