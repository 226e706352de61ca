"""What volumes read from elsewhere: objects, tokens, bundles, and values of the pod itself.

Others implement these protocols; the null implementations here say what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from nodeagent.api import (
    ClusterTrustBundleProjection,
    Pod,
    PodCertificateProjection,
    Quantity,
    ResourceFieldSelector,
)
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.model import SyncError
from nodeagent.model.volumes import PodCredentials, ServiceAccountToken

CONFIG_MAP: Final = "ConfigMap"
SECRET: Final = "Secret"  # noqa: S105 - the name of a kind
CLUSTER_TRUST_BUNDLE: Final = "ClusterTrustBundle"

Changed: TypeAlias = Callable[[str, str, str], None]
"""Told of namespace, kind and name of an object that is new, different or gone. Never waits."""

NO_CLIENT: Final = "kube client is not configured"
"""What :class:`NoObjects` says: the plugins put what they could not do in front of it."""


class ObjectSource(Protocol):
    """Gives what content volumes are made of.

    Reads are cheap when nothing has changed: they are repeated at every resync of a pod. All
    raise ``SyncError`` when nobody can tell now.
    """

    async def get_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """A ConfigMap; None when there is none of that name."""
        ...

    async def get_secret(self, namespace: str, name: str) -> Secret | None:
        """A Secret, its ``string_data`` merged into its ``data``; None when there is none."""
        ...

    async def token(self, pod: Pod, audience: str, expiration: int | None) -> ServiceAccountToken:
        """A token of the pod's service account, bound to the pod.

        Args:
            pod: whose.
            audience: who it is meant for; "" for the API server.
            expiration: seconds that it shall be good for; None for the usual time.
        """
        ...

    async def trust_anchors(self, projection: ClusterTrustBundleProjection) -> str | None:
        """The PEM blocks of all bundles that are asked for, put together; None for no bundle."""
        ...

    async def pod_credentials(
        self, pod: Pod, volume: str, index: int, projection: PodCertificateProjection
    ) -> PodCredentials:
        """The key and certificates of one source of a projected volume.

        Args:
            pod: whose.
            volume: name of the volume.
            index: place of the source in the volume.
            projection: what is asked for.
        """
        ...

    def subscribe(self, changed: Changed) -> None:
        """Have ``changed`` called, on the loop, for every object that changes from now on."""
        ...


class NoObjects:
    """For an agent that has nobody to ask."""

    async def get_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """Nobody can tell."""
        del namespace, name
        raise SyncError(NO_CLIENT)

    async def get_secret(self, namespace: str, name: str) -> Secret | None:
        """Nobody can tell."""
        del namespace, name
        raise SyncError(NO_CLIENT)

    async def token(self, pod: Pod, audience: str, expiration: int | None) -> ServiceAccountToken:
        """Nobody can tell."""
        del pod, audience, expiration
        raise SyncError(NO_CLIENT)

    async def trust_anchors(self, projection: ClusterTrustBundleProjection) -> str | None:
        """Nobody can tell."""
        del projection
        raise SyncError(NO_CLIENT)

    async def pod_credentials(
        self, pod: Pod, volume: str, index: int, projection: PodCertificateProjection
    ) -> PodCredentials:
        """Nobody can tell."""
        del pod, volume, index, projection
        raise SyncError(NO_CLIENT)

    def subscribe(self, changed: Changed) -> None:
        """Nothing ever changes."""
        del changed


class PodValues(Protocol):
    """Values that a pod may learn of itself. Pure; a value that does not exist is a ValueError."""

    def field(self, pod: Pod, path: str) -> str:
        """A field: ``metadata.name``, ``metadata.labels``, ``metadata.labels['<key>']`` ..."""
        ...

    def resource(self, pod: Pod, selector: ResourceFieldSelector) -> str:
        """An amount of one of the pod's containers."""
        ...


class NoValues:
    """For where nobody knows the node."""

    def field(self, pod: Pod, path: str) -> str:
        """Nothing is known."""
        del pod
        msg = f"unsupported fieldPath: {path}"
        raise ValueError(msg)

    def resource(self, pod: Pod, selector: ResourceFieldSelector) -> str:
        """Nothing is known."""
        del pod
        msg = f"unsupported container resource: {selector.resource}"
        raise ValueError(msg)


def nothing_allocatable() -> Mapping[str, Quantity] | None:
    """Nobody says what of the node pods may have."""
    return None
