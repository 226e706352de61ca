"""Objects, and a manager with the plugins that read them, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio

from nodeagent.api import (
    ClusterTrustBundleProjection,
    Container,
    ObjectMeta,
    Pod,
    PodCertificateProjection,
    PodSecurityContext,
    PodSpec,
    ResourceFieldSelector,
    Volume,
    VolumeMount,
)
from nodeagent.api.defaults import set_defaults
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.journal import Journal
from nodeagent.model import SyncError
from nodeagent.model.volumes import PodCredentials, ServiceAccountToken
from nodeagent.testing import RecordedMounter
from nodeagent.volumes import VolumeManager
from nodeagent.volumes.content_kinds import content_plugins
from nodeagent.volumes.empty_dir import EmptyDirPlugin
from nodeagent.volumes.host_path import HostPathPlugin
from nodeagent.volumes.objects import Changed, ObjectSource
from nodeagent.volumes.plugin import PluginRegistry


class Objects:
    """Objects that a test sets."""

    def __init__(self) -> None:
        self.config_maps: dict[str, ConfigMap] = {}
        self.secrets: dict[str, Secret] = {}
        self.bundles: str | None = None
        self.failure = ""
        self.tokens = 0
        self._changed: list[Changed] = []

    async def get_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        self._check()
        del namespace
        return self.config_maps.get(name)

    async def get_secret(self, namespace: str, name: str) -> Secret | None:
        self._check()
        del namespace
        return self.secrets.get(name)

    async def token(self, pod: Pod, audience: str, expiration: int | None) -> ServiceAccountToken:
        self._check()
        value = f"{pod.metadata.name}/{audience}/{expiration}/{self.tokens}"
        return ServiceAccountToken(value, datetime(2026, 1, 1, tzinfo=UTC))

    async def trust_anchors(self, projection: ClusterTrustBundleProjection) -> str | None:
        self._check()
        del projection
        return self.bundles

    async def pod_credentials(
        self, pod: Pod, volume: str, index: int, projection: PodCertificateProjection
    ) -> PodCredentials:
        self._check()
        del pod, volume, index, projection
        return PodCredentials(b"KEY\n", b"CHAIN\n")

    def subscribe(self, changed: Changed) -> None:
        self._changed.append(changed)

    def set_config_map(self, name: str, **data: str) -> None:
        """Change one, and say so."""
        self.config_maps[name] = ConfigMap(metadata=ObjectMeta(name=name), data=data)
        for changed in self._changed:
            changed("default", "ConfigMap", name)

    def _check(self) -> None:
        if self.failure:
            raise SyncError(self.failure)


class Values:
    """What pods know of themselves."""

    def field(self, pod: Pod, path: str) -> str:
        if path == "metadata.name":
            return pod.metadata.name
        msg = f"unsupported fieldPath: {path}"
        raise ValueError(msg)

    def resource(self, pod: Pod, selector: ResourceFieldSelector) -> str:
        del pod
        return f"{selector.container_name}:{selector.resource}"


def make_pod(
    *volumes: Volume,
    uid: str = "uid-1",
    security: PodSecurityContext | None = None,
    labels: dict[str, str] | None = None,
) -> Pod:
    """A pod whose container mounts all of its volumes."""
    mounts = tuple(VolumeMount(name=v.name, mount_path=f"/{v.name}") for v in volumes)
    container = Container(name="main", image="busybox", volume_mounts=mounts)
    spec = PodSpec(volumes=volumes, containers=(container,), security_context=security)
    metadata = ObjectMeta(name="web", namespace="default", uid=uid, labels=labels or {})
    return set_defaults(Pod(metadata=metadata, spec=spec))


class Rig:
    """A manager that runs."""

    def __init__(self, root: Path, objects: ObjectSource | None, timeout: float) -> None:
        self.root = root
        self.objects = Objects()
        self.mounter = RecordedMounter()
        self.journal = Journal()
        self.events: list[tuple[str, str, str]] = []
        source: ObjectSource = objects or self.objects
        self.manager = VolumeManager(
            root,
            self.journal,
            timeout=timeout,
            mounter=self.mounter,
            plugins=PluginRegistry(
                (EmptyDirPlugin(), HostPathPlugin(), *content_plugins(source, Values()))
            ),
            record=lambda _pod, *event: self.events.append(event),
        )
        source.subscribe(self.manager.object_changed)

    def volume_dir(self, plugin: str, name: str = "v", uid: str = "uid-1") -> Path:
        return self.root / "pods" / uid / "volumes" / f"kubernetes.io~{plugin}" / name


@asynccontextmanager
async def running(
    root: Path, objects: ObjectSource | None = None, timeout: float = 2.0
) -> AsyncIterator[Rig]:
    """A manager at work."""
    rig = Rig(root, objects, timeout)
    async with anyio.create_task_group() as tasks:
        await tasks.start(rig.manager.run)
        yield rig
        tasks.cancel_scope.cancel()


async def until(true: object) -> None:
    """Wait for something to become true; a test that waits in vain is ended from outside."""
    assert callable(true)
    while not true():
        await anyio.sleep(0.01)
