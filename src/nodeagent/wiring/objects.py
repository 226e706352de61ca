"""Who gives pods their ConfigMaps, Secrets and tokens."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from nodeagent.api import Pod
from nodeagent.api.objects import Secret, ServiceAccount
from nodeagent.clock import Clock
from nodeagent.cluster import ClusterLink
from nodeagent.config import AgentConfig
from nodeagent.journal import Journal
from nodeagent.kube import KubeClient, KubeError, paths
from nodeagent.log import Log
from nodeagent.model import SyncError
from nodeagent.node.lookup import NodeLookup
from nodeagent.objects import ObjectStore, StandaloneObjects
from nodeagent.objects.fetched import CachedObjects, LiveObjects, ttl_of
from nodeagent.objects.pod_certificates import PodCertificates
from nodeagent.objects.store import FromCluster
from nodeagent.objects.strategy import Strategy
from nodeagent.objects.tokens import Tokens, account_name, token_key
from nodeagent.objects.trust import TrustBundles
from nodeagent.objects.watched import WatchedObjects
from nodeagent.pods.manager import PodManager
from nodeagent.pods.work_queue import WorkQueue
from nodeagent.runtime.credential_provider import ServiceAccountToken
from nodeagent.runtime.pull_secrets import PullSecret

log = Log("objects")


class PullSecrets:
    """Pull secrets of pods.

    Args:
        store: has them.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def read_secret(self, namespace: str, name: str) -> PullSecret | None:
        """One Secret; None when there is none or it cannot be read now."""
        try:
            found: Secret | None = await self._store.get_secret(namespace, name)
        except SyncError as error:
            log.warning("pull_secret_unreadable", secret=f"{namespace}/{name}", cause=str(error))
            return None
        if found is None:
            return None
        return PullSecret(found.metadata.uid, namespace, name, found.type, found.data)


class AccountTokens:
    """Tokens of service accounts for credential plugins.

    Args:
        client: asks the API server.
        tokens: gives the tokens.
    """

    def __init__(self, client: KubeClient, tokens: Tokens) -> None:
        self._client = client
        self._tokens = tokens

    async def token(self, pod: Pod, audience: str) -> ServiceAccountToken | None:
        """A token of the pod's service account; None when it has none or nobody can ask."""
        namespace, name = pod.metadata.namespace, account_name(pod)
        path = paths.namespaced(namespace, "serviceaccounts", name)
        try:
            account = await self._client.get(path, ServiceAccount)
            uid = account.metadata.uid
            token = await self._tokens.get(token_key(pod, audience, None, account_uid=uid))
        except (KubeError, SyncError) as error:
            account_shown = f"{namespace}/{name}"
            log.warning("no_account_token", service_account=account_shown, cause=str(error))
            return None
        return ServiceAccountToken(namespace, name, uid, account.metadata.annotations, token.value)


class NodeObjects:
    """What one agent has of them.

    Attributes:
        store: who is asked.
        pull_secrets: for pulls.
        account_tokens: for credential plugins; None without an API server.
    """

    def __init__(self, store: ObjectStore, account_tokens: AccountTokens | None = None) -> None:
        self.store = store
        self.pull_secrets = PullSecrets(store)
        self.account_tokens = account_tokens


def waking(store: ObjectStore, manager: PodManager, queue: WorkQueue) -> Callable[..., None]:
    """Has the pods that refer to a changed object synced: they may have waited for it."""

    def changed(namespace: str, kind: str, name: str) -> None:
        now = anyio.current_time()
        for uid in store.users(namespace, kind, name):
            if manager.get_by_uid(uid) is not None:
                queue.set(uid, now)

    return changed


def make_objects(
    config: AgentConfig,
    link: ClusterLink | None,
    standalone: StandaloneObjects,
    lookup: NodeLookup,
    *,
    clock: Clock,
    journal: Journal,
) -> NodeObjects:
    """Build what the settings ask for.

    Args:
        config: settings.
        link: the connection to the API server; None without one.
        standalone: the objects of a node without.
        lookup: this node as the API shows it.
        clock: wall clock.
        journal: flight recorder.
    """
    if link is None:
        return NodeObjects(ObjectStore(standalone, journal=journal))
    client = link.clients.main
    tokens = Tokens(client, clock)
    strategy = _strategy(config, client, lookup, journal)
    cluster = FromCluster(
        tokens=tokens,
        bundles=TrustBundles(client, journal),
        certificates=PodCertificates(client, lookup.node, clock),
    )
    store = ObjectStore(strategy, cluster, journal)
    return NodeObjects(store, AccountTokens(client, tokens))


def _strategy(
    config: AgentConfig, client: KubeClient, lookup: NodeLookup, journal: Journal
) -> Strategy:
    match config.config_map_and_secret_change_detection_strategy:
        case "Get":
            return LiveObjects(client)
        case "Cache":
            return CachedObjects(client, lambda: ttl_of(lookup.node()))
        case _:
            return WatchedObjects(client, journal, sync_frequency=config.sync_frequency)
