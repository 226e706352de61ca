"""Which pods take more of the node's storage than they may. Pure.

docs/behaviour/eviction.md, "Local storage".
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeagent.api import Pod, Quantity
from nodeagent.api.aggregate import aggregate

STORAGE: Final = "ephemeral-storage"


class Signal(enum.StrEnum):
    """What a pod was ended for, as metrics call it."""

    EMPTY_DIR = "emptydirfs.limit"
    POD = "ephemeralpodfs.limit"
    CONTAINER = "ephemeralcontainerfs.limit"


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What a container takes of the node's storage.

    Attributes:
        writable: bytes of its writable layer.
        logs: bytes of its logs.
    """

    writable: int = 0
    logs: int = 0


@dataclass(frozen=True, slots=True)
class PodUse:
    """What a pod takes of the node's storage, as far as that is known.

    Attributes:
        volumes: bytes by volume, of those that lie on the node's own storage.
        containers: by name, of those that run; None when that is not known.
        shared_layers: whether writable layers lie on the node's main file system.
    """

    volumes: Mapping[str, int] = field(default_factory=dict)
    containers: Mapping[str, ContainerUse] | None = None
    shared_layers: bool = True

    @property
    def total(self) -> int | None:
        """All of it; None when it is not known."""
        if self.containers is None:
            return None
        in_containers = sum(one.writable + one.logs for one in self.containers.values())
        return in_containers + sum(self.volumes.values())


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why a pod has to go.

    Attributes:
        signal: what it is counted as.
        message: what its status and its event say.
    """

    signal: Signal
    message: str


def limits_volumes(pod: Pod) -> bool:
    """Whether what volumes of the pod may take is limited."""
    return bool(_volume_limits(pod))


def limits_containers(pod: Pod) -> bool:
    """Whether what containers of the pod may take is limited."""
    spec = pod.spec
    every = (*spec.init_containers, *spec.containers)
    return any(STORAGE in container.resources.limits for container in every)


def too_much(pod: Pod, use: PodUse) -> Eviction | None:
    """Why a pod has to go; None as long as it takes no more than it may.

    Args:
        pod: the pod.
        use: what it takes. What is not known does no harm.
    """
    return _volumes(pod, use) or _whole(pod, use) or _containers(pod, use)


def _volume_limits(pod: Pod) -> dict[str, Quantity]:
    found = {}
    for volume in pod.spec.volumes:
        source = volume.empty_dir
        limit = None if source is None or source.medium else source.size_limit
        if limit is not None and limit > Quantity(0):
            found[volume.name] = limit
    return found


def _volumes(pod: Pod, use: PodUse) -> Eviction | None:
    for name, limit in _volume_limits(pod).items():
        if Quantity(use.volumes.get(name, 0)) > limit:
            text = f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit}". '
            return Eviction(Signal.EMPTY_DIR, text)
    return None


def _whole(pod: Pod, use: PodUse) -> Eviction | None:
    total = use.total
    limit = aggregate(pod.spec, "limits").get(STORAGE)
    if total is None or limit is None or Quantity(total) <= limit:
        return None
    text = f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    return Eviction(Signal.POD, text)


def _containers(pod: Pod, use: PodUse) -> Eviction | None:
    for container in pod.spec.containers:
        limit = container.resources.limits.get(STORAGE)
        taken = (use.containers or {}).get(container.name)
        if limit is None or taken is None:
            continue
        bytes_ = taken.logs + (taken.writable if use.shared_layers else 0)
        if Quantity(bytes_) > limit:
            text = (
                f'Container {container.name} exceeded its local ephemeral storage limit "{limit}". '
            )
            return Eviction(Signal.CONTAINER, text)
    return None
