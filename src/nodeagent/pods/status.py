"""The status of a pod, generated from spec, runtime and what was stored. Pure.

docs/behaviour/phase.md, "Generated status".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from nodeagent.api import HostIP, Pod, PodIP, PodStatus
from nodeagent.api.node import NodeAddress
from nodeagent.model import PodRuntimeStatus
from nodeagent.model.annotations import CONFIG_SOURCE
from nodeagent.pods.conditions import READY, TRUE, compute_conditions, find, restarts_all
from nodeagent.pods.container_statuses import StatusContext, compute_container_statuses
from nodeagent.pods.phase import FAILED, TERMINAL, compute_phase

DEADLINE_EXCEEDED = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the status says about the node. ``host_ips`` has the primary family first."""

    host_ips: tuple[str, ...] = ()


def node_facts(addresses: Iterable[NodeAddress], otherwise: Sequence[str] = ()) -> NodeFacts:
    """The addresses that pods show as their host's.

    Args:
        addresses: the node's, as the API shows them.
        otherwise: what the agent itself found, for while the API shows none.
    """
    given = list(addresses)
    for kind in ("InternalIP", "ExternalIP"):
        found = [a.address for a in given if a.type == kind and _family(a.address)]
        if found:
            others = [ip for ip in found if _family(ip) != _family(found[0])]
            return NodeFacts((found[0], *others[:1]))
    return NodeFacts(tuple(otherwise))


def is_static(pod: Pod) -> bool:
    """Whether the pod comes from a file or a URL."""
    return pod.metadata.annotations.get(CONFIG_SOURCE, "api") != "api"


def past_deadline(pod: Pod, active_for: float | None) -> bool:
    """Whether the pod has run longer than its active deadline allows.

    Args:
        pod: the pod.
        active_for: seconds of loop time since it became active; None when it has not.
    """
    limit = pod.spec.active_deadline_seconds
    return limit is not None and active_for is not None and active_for >= limit


def generate_pod_status(
    pod: Pod,
    runtime: PodRuntimeStatus,
    old: PodStatus,
    context: StatusContext,
    node: NodeFacts,
    *,
    qos_class: str,
    active_for: float | None = None,
    final: bool = False,
) -> PodStatus:
    """The pod's status as it should be stored now.

    Args:
        pod: desired pod; ``pod.status`` is what the API says.
        runtime: last inspection of the pod.
        old: the status as last stored (or ``pod.status``).
        context: runtime name and start errors.
        node: the node's addresses.
        qos_class: quality-of-service class of the spec.
        active_for: seconds since the pod became active, for its deadline.
        final: the pod has been stopped for good.
    """
    ready = find(old.conditions, READY)
    context = replace(
        context,
        restarting_all=restarts_all(old.conditions),
        was_ready=ready is not None and ready.status == TRUE,
    )
    statuses = compute_container_statuses(
        pod, runtime, pod.spec.containers, old.container_statuses, context
    )
    init_statuses = compute_container_statuses(
        pod, runtime, pod.spec.init_containers, old.init_container_statuses, context, init=True
    )
    ephemeral_statuses = compute_container_statuses(
        pod, runtime, pod.spec.ephemeral_containers, old.ephemeral_container_statuses, context
    )
    phase = compute_phase(
        pod,
        (*statuses, *init_statuses),
        final=final,
        static=is_static(pod),
        regular_in_sandbox=_regular_in_sandbox(pod, runtime),
    )
    reason, message = "", ""
    for before in (old, pod.status):
        if before.phase in TERMINAL:
            # A pod that ended never comes back to life.
            phase, reason, message = before.phase, before.reason, before.message
    if phase == old.phase:
        reason, message = old.reason, old.message
    if phase not in TERMINAL and past_deadline(pod, active_for):
        phase, reason, message = FAILED, DEADLINE_EXCEEDED, DEADLINE_MESSAGE
    addresses = _addresses(pod, runtime, node, old)
    return PodStatus(
        observed_generation=max(pod.metadata.generation, old.observed_generation),
        phase=phase,
        reason=reason,
        message=message,
        conditions=compute_conditions(pod, phase, statuses, init_statuses, runtime, old.conditions),
        host_ip=node.host_ips[0] if node.host_ips else "",
        host_ips=tuple(HostIP(ip=ip) for ip in node.host_ips),
        pod_ip=addresses[0] if addresses else "",
        pod_ips=tuple(PodIP(ip=ip) for ip in addresses),
        start_time=old.start_time,
        container_statuses=statuses,
        init_container_statuses=init_statuses,
        ephemeral_container_statuses=ephemeral_statuses,
        qos_class=pod.status.qos_class or qos_class,
    )


def _regular_in_sandbox(pod: Pod, runtime: PodRuntimeStatus) -> bool:
    regular = {c.name for c in pod.spec.containers}
    return any(c.name in regular for c in runtime.active_containers)


def _addresses(
    pod: Pod, runtime: PodRuntimeStatus, node: NodeFacts, old: PodStatus
) -> tuple[str, ...]:
    """The pod's addresses: first of the node's primary family, then first of the other."""
    if pod.spec.host_network:
        return node.host_ips
    given = runtime.ips or tuple(p.ip for p in old.pod_ips)
    families = {ip: family for ip in given if (family := _family(ip))}
    if not families:
        return ()
    primary = _family(node.host_ips[0]) if node.host_ips else next(iter(families.values()))
    first, *rest = sorted(families, key=lambda ip: families[ip] != primary)
    other = [ip for ip in rest if families[ip] != families[first]]
    return (first, *other[:1])


def _family(ip: str) -> int:
    """4 or 6; 0 for what is no address, as a runtime may give in its worst moments."""
    try:
        return ip_address(ip).version
    except ValueError:
        return 0
