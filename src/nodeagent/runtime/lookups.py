"""What pods refer to by name, and who knows it: protocols that others implement.

Without an API server nobody does: the defaults find nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from nodeagent.api.quantity import Quantity
from nodeagent.api.service import Service
from nodeagent.model import ContainerID, PodUID, SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.proto.runtime import v1

Describe: TypeAlias = Callable[[], Awaitable[v1.StatusResponse]]
"""Has the runtime describe itself: its conditions, and what its handlers can do."""


class ObjectReader(Protocol):
    """Gives ConfigMaps and Secrets by name."""

    async def get_config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """The text values of a ConfigMap by key; None when there is none of that name.

        Raises:
            SyncError: nobody can tell now.
        """
        ...

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """The decoded values of a Secret by key; None when there is none of that name.

        Raises:
            SyncError: nobody can tell now.
        """
        ...


class NoObjects:
    """Finds no ConfigMap and no Secret."""

    async def get_config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Nothing."""
        del namespace, name
        return None

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Nothing."""
        del namespace, name
        return None


class RuntimeClasses(Protocol):
    """Where the names of runtime classes lead."""

    def handler(self, name: str) -> str | None:
        """The handler of the runtime class; None when there is no such class."""
        ...


class NoRuntimeClasses:
    """Knows no runtime class."""

    def handler(self, name: str) -> str | None:
        """Nothing."""
        del name
        return None


class Services(Protocol):
    """The services of the cluster."""

    @property
    def synced(self) -> bool:
        """Whether they have all been seen; without an API server there are none."""
        ...

    def in_namespaces(self, namespaces: Iterable[str]) -> Iterable[Service]:
        """Those of some namespaces; the same one may be named twice."""
        ...


class NoServices:
    """There are none."""

    synced = True

    def in_namespaces(self, namespaces: Iterable[str]) -> Iterable[Service]:
        """Nothing."""
        del namespaces
        return ()


class SubPaths(Protocol):
    """Prepares parts of volumes for containers. A failure is a SyncError that says why."""

    async def make(self, volume: MountedVolume, sub_path: str) -> None:
        """Make the directories of a part of a volume that are missing."""
        ...

    async def prepare(
        self, uid: PodUID, container: str, index: int, volume: MountedVolume, sub_path: str
    ) -> str:
        """The path to mount for a part of a volume, which containers cannot change.

        Args:
            uid: the pod.
            container: the container.
            index: place of the mount among those of the container.
            volume: the volume.
            sub_path: relative to it.
        """
        ...


class NoSubPaths:
    """For where nobody can."""

    async def make(self, volume: MountedVolume, sub_path: str) -> None:
        """Make nothing."""
        del volume, sub_path

    async def prepare(
        self, uid: PodUID, container: str, index: int, volume: MountedVolume, sub_path: str
    ) -> str:
        """Say that it cannot be done."""
        del uid, container, index, volume, sub_path
        msg = "nobody here can mount a part of a volume"
        raise SyncError(msg)


async def nothing_known() -> v1.StatusResponse:
    """A runtime that says nothing of itself."""
    return v1.StatusResponse()


def nothing_reserved() -> Mapping[str, Quantity] | None:
    """Nobody says what of the node pods may have."""
    return None


def never_known(_uid: PodUID, _container_id: ContainerID) -> bool:
    """Nobody looks."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """Who is asked for what pods refer to.

    Attributes:
        describe: has the runtime describe itself.
        objects: ConfigMaps and Secrets.
        runtime_classes: handlers of runtime classes.
        services: services of the cluster.
        allocatable: what of the node pods may have, by resource; None for all that it has.
        ended: whether a container is known to have ended, by pod and id.
        sub_paths: prepares parts of volumes.
    """

    describe: Describe = nothing_known
    objects: ObjectReader = field(default_factory=NoObjects)
    runtime_classes: RuntimeClasses = field(default_factory=NoRuntimeClasses)
    services: Services = field(default_factory=NoServices)
    allocatable: Callable[[], Mapping[str, Quantity] | None] = nothing_reserved
    ended: Callable[[PodUID, ContainerID], bool] = never_known
    sub_paths: SubPaths = field(default_factory=NoSubPaths)
