"""Trust anchors of ClusterTrustBundles, watched from the first time that a pod wants any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api import ClusterTrustBundleProjection, LabelSelector, LabelSelectorRequirement
from nodeagent.api.pod_certificates import ClusterTrustBundle
from nodeagent.journal import Journal
from nodeagent.kube import KubeClient, paths
from nodeagent.kube.informer import Informer
from nodeagent.kube.reflector import Reflected
from nodeagent.model import SyncError

FIRST_READ: Final = 1.0
"""Seconds that a read waits for the first answer of the API server."""


class TrustBundles:
    """The bundles of the cluster.

    Args:
        client: asks the API server.
        journal: flight recorder.
    """

    def __init__(self, client: KubeClient, journal: Journal) -> None:
        reflected = Reflected(paths.TRUST_BUNDLES, "clustertrustbundles", {}, journal)
        self._informer = Informer(client, ClusterTrustBundle, "ClusterTrustBundle", reflected)
        self._wanted = anyio.Event()
        self.subscribe = self._informer.subscribe

    async def anchors(self, projection: ClusterTrustBundleProjection) -> str | None:
        """The PEM blocks of all bundles that are asked for; None for no bundle.

        Raises:
            SyncError: nobody can tell now.
        """
        self._wanted.set()
        if not self._informer.synced:
            with anyio.move_on_after(FIRST_READ):
                await self._informer.wait_synced()
        if not self._informer.synced:
            why = self._informer.trouble or "timed out waiting for the condition"
            msg = f"failed to sync clustertrustbundle cache: {why}"
            raise SyncError(msg)
        if projection.name:
            bundle = self._informer.get(projection.name)
            return None if bundle is None else bundle.spec.trust_bundle
        found = [
            bundle.spec.trust_bundle
            for bundle in self._informer.objects.values()
            if bundle.spec.signer_name == projection.signer_name
            and selects(projection.label_selector, bundle.metadata.labels)
        ]
        return "\n".join(found) if found else None

    def retry_now(self) -> None:
        """There is reason to believe that the API server is back."""
        if self._wanted.is_set():
            self._informer.retry_now()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Watch as soon as somebody has asked, until cancelled."""
        task_status.started()
        await self._wanted.wait()
        await self._informer.run()


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector takes these labels: none takes nothing, an empty one everything. Pure."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_holds(rule, labels) for rule in selector.match_expressions)


def _holds(rule: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    match rule.operator:
        case "In":
            return labels.get(rule.key) in rule.values
        case "NotIn":
            return labels.get(rule.key) not in rule.values
        case "Exists":
            return rule.key in labels
        case "DoesNotExist":
            return rule.key not in labels
        case _:
            return False
