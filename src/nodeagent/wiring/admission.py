"""How admission is wired: what it knows of the node, and whom it asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nodeagent.api import Pod
from nodeagent.api.node import Node
from nodeagent.cluster import ClusterLink
from nodeagent.kube import paths
from nodeagent.model import RuntimeFeatures
from nodeagent.node.lookup import NodeLookup
from nodeagent.pleg import PodCache
from nodeagent.pods.admission import Check, Rules
from nodeagent.pods.admission_desk import no_server
from nodeagent.pods.admission_platform import FEATURES, HOST_NETWORK_USERS, Support
from nodeagent.pods.manager import pod_uid
from nodeagent.pods.phase import RUNNING
from nodeagent.pods.rejection import Rejection
from nodeagent.runtime.qos import compute_qos, is_critical
from nodeagent.runtime.settings import HostFacts, RuntimeSettings
from nodeagent.runtime.sysctls import forbidden_sysctl

_PATIENCE = 10.0


def admission_rules(
    host: HostFacts,
    settings: Callable[[], RuntimeSettings],
    features: Callable[[], RuntimeFeatures],
) -> Rules:
    """What is the same for all pods."""

    def support() -> Support:
        can = features()
        return Support(
            app_armor=host.app_armor,
            strict_groups=can.supplemental_groups_policy,
            features=FEATURES
            | ({HOST_NETWORK_USERS} if can.user_namespaces_host_network else set()),
        )

    return Rules(
        support=support,
        is_critical=is_critical,
        qos_class=lambda pod: compute_qos(pod).value,
        first=(sysctls(host, settings),),
    )


def sysctls(host: HostFacts, settings: Callable[[], RuntimeSettings]) -> Check:
    """The rule about kernel parameters."""

    def check(pod: Pod) -> Rejection | None:
        trouble = forbidden_sysctl(pod, host.kernel, settings().allowed_sysctls)
        return Rejection("SysctlForbidden", trouble) if trouble else None

    return check


def ask_for_node(
    link: ClusterLink | None, name: str, lookup: NodeLookup
) -> Callable[[], Awaitable[None]]:
    """Asks the API server for the Node, if there is one to ask."""
    if link is None:
        return no_server

    async def ask() -> None:
        lookup.observe(await link.clients.main.get(paths.node(name), Node, timeout=_PATIENCE))

    return ask


def runs_here(cache: PodCache) -> Callable[[Pod], bool]:
    """Whether a pod runs, as the API server or the runtime says."""
    return lambda pod: pod.status.phase == RUNNING or bool(cache.get(pod_uid(pod)).running)
