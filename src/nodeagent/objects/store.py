"""Who is asked for objects and tokens: counts references, and tells of changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api import ClusterTrustBundleProjection, Pod, PodCertificateProjection
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.journal import Journal
from nodeagent.model import PodUID, SyncError
from nodeagent.model.volumes import PodCredentials, ServiceAccountToken
from nodeagent.objects.pod_certificates import PodCertificates
from nodeagent.objects.refs import (
    CONFIG_MAP,
    SECRET,
    ObjectRef,
    ReferenceCount,
    pod_references,
)
from nodeagent.objects.strategy import Strategy
from nodeagent.objects.tokens import Tokens, token_key
from nodeagent.objects.trust import TrustBundles

Changed: TypeAlias = Callable[[str, str, str], None]
"""Told of namespace, kind and name of an object. Never waits."""

NO_CLIENT: Final = "kube client is not configured"
CLUSTER_TRUST_BUNDLE: Final = "ClusterTrustBundle"


@dataclass(frozen=True, slots=True, kw_only=True)
class FromCluster:
    """What only an API server gives.

    Attributes:
        tokens: of service accounts.
        bundles: trust anchors.
        certificates: of pods.
    """

    tokens: Tokens
    bundles: TrustBundles
    certificates: PodCertificates


class ObjectStore:
    """The ConfigMaps, Secrets, tokens and certificates of this node's pods.

    Args:
        strategy: gets ConfigMaps and Secrets.
        cluster: gives the rest; None without an API server.
        journal: flight recorder.
    """

    def __init__(
        self,
        strategy: Strategy,
        cluster: FromCluster | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._strategy = strategy
        self._cluster = cluster
        self._journal = journal or Journal()
        self._count = ReferenceCount()
        self._listeners: list[Changed] = []
        strategy.notify = self._changed
        if cluster is not None:
            cluster.bundles.subscribe(self._bundles_changed)

    # References.

    def register(self, pod: Pod) -> None:
        """The pod runs here, or is about to: from now on it may read what it refers to."""
        self._set(PodUID(pod.metadata.uid), pod_references(pod))

    def unregister(self, uid: PodUID) -> None:
        """The pod has ended; one that is not known is no error."""
        self._set(uid, frozenset())
        if self._cluster is not None:
            self._cluster.tokens.forget_pod(uid)
            self._cluster.certificates.forget_pod(uid)

    def _set(self, uid: PodUID, refs: frozenset[ObjectRef]) -> None:
        added, dropped = self._count.set(uid, refs)
        for ref in added:
            self._strategy.added(ref)
        for ref in dropped:
            self._strategy.dropped(ref)

    def users(self, namespace: str, kind: str, name: str) -> frozenset[PodUID]:
        """The pods that refer to an object."""
        return self._count.users(ObjectRef(kind, namespace, name))

    def remembered(self) -> frozenset[PodUID]:
        """The pods of which something is kept."""
        if self._cluster is None:
            return self._count.pods()
        return self._count.pods() | self._cluster.tokens.pods() | self._cluster.certificates.pods()

    # Reads.

    async def get_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """A ConfigMap; None when there is none of that name.

        Raises:
            SyncError: nobody can tell now.
        """
        found = await self._strategy.get(ObjectRef(CONFIG_MAP, namespace, name))
        return found if isinstance(found, ConfigMap) else None

    async def get_secret(self, namespace: str, name: str) -> Secret | None:
        """A Secret; None when there is none of that name.

        Raises:
            SyncError: nobody can tell now.
        """
        found = await self._strategy.get(ObjectRef(SECRET, namespace, name))
        return found if isinstance(found, Secret) else None

    async def token(self, pod: Pod, audience: str, expiration: int | None) -> ServiceAccountToken:
        """A token of the pod's service account, bound to the pod.

        Args:
            pod: whose.
            audience: who it is meant for; "" for the API server.
            expiration: seconds that it shall be good for; None for the usual time.

        Raises:
            SyncError: there is none.
        """
        if self._cluster is None:
            raise SyncError(NO_CLIENT)
        return await self._cluster.tokens.get(token_key(pod, audience, expiration))

    async def trust_anchors(self, projection: ClusterTrustBundleProjection) -> str | None:
        """The PEM blocks of all bundles that are asked for; None for no bundle.

        Raises:
            SyncError: nobody can tell now.
        """
        if self._cluster is None:
            raise SyncError(NO_CLIENT)
        return await self._cluster.bundles.anchors(projection)

    async def pod_credentials(
        self, pod: Pod, volume: str, index: int, projection: PodCertificateProjection
    ) -> PodCredentials:
        """The key and certificates of one source of a projected volume.

        Raises:
            SyncError: there are none, or none yet.
        """
        if self._cluster is None:
            raise SyncError(NO_CLIENT)
        return await self._cluster.certificates.get(pod, volume, index, projection)

    # Changes.

    def subscribe(self, changed: Changed) -> None:
        """Have ``changed`` called, on the loop, for every object that changes from now on."""
        self._listeners.append(changed)

    def _changed(self, ref: ObjectRef) -> None:
        pods = len(self._count.users(ref))
        if not pods:
            return
        self._journal.record("objects", "ObjectChanged", "", str(ref), pods=pods)
        for listener in self._listeners:
            listener(ref.namespace, ref.kind, ref.name)

    def _bundles_changed(self) -> None:
        for listener in self._listeners:
            listener("", CLUSTER_TRUST_BUNDLE, "")

    def retry_now(self) -> None:
        """There is reason to believe that the API server is back."""
        self._strategy.retry_now()
        if self._cluster is not None:
            self._cluster.bundles.retry_now()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Keep objects and tokens up to date until cancelled."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._strategy.run)
            if self._cluster is not None:
                await tasks.start(self._cluster.tokens.run)
                await tasks.start(self._cluster.bundles.run)
            task_status.started()


class VariableReader:
    """Objects as far as variables of containers need them.

    Args:
        store: has them.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def get_config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """The text values of a ConfigMap by key; None when there is none of that name."""
        found = await self._store.get_config_map(namespace, name)
        return None if found is None else found.data

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """The values of a Secret by key; None when there is none of that name."""
        found = await self._store.get_secret(namespace, name)
        return None if found is None else found.data
