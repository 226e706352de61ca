"""A node's status, made of facts, one part after the other. Pure.

Each setter takes the facts, the status so far and the moment, and gives the status with its part
in place. One that fails raises SetterError; its part stays as it was, and the others go on.
Rows and their tests: docs/behaviour/node.md, "Status".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import Final, TypeAlias

from msgspec.structs import replace

from nodeagent.api.node import (
    DaemonEndpoint,
    Node,
    NodeAddress,
    NodeDaemonEndpoints,
    NodeFeatures,
    NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures,
    NodeStatus,
    NodeSwapStatus,
)
from nodeagent.model import RuntimeFeatures
from nodeagent.node.capacity import compute_allocatable, compute_capacity, missing_capacity
from nodeagent.node.conditions import set_pressures, set_ready
from nodeagent.node.facts import KUBELET_VERSION, NodeFacts

PROVIDED_IP: Final = "alpha.kubernetes.io/provided-node-ip"
OS: Final = "linux"
_NO_FEATURES: Final = RuntimeFeatures()


class SetterError(Exception):
    """A part of the status cannot be told; says why."""


Setter: TypeAlias = Callable[[NodeFacts, NodeStatus, datetime], NodeStatus]


def set_addresses(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """The node's addresses, unless a controller of the cloud tells them."""
    del now
    options, found = facts.options, facts.addresses
    hostname = NodeAddress(type="Hostname", address=facts.name)
    if options.cloud_provider and status.addresses:
        return status
    if options.cloud_provider and not options.node_ips:
        return replace(status, addresses=(hostname,))
    if found.error or not found.ips:
        raise SetterError(found.error or "the node has no address")
    internal = (NodeAddress(type="InternalIP", address=ip) for ip in found.ips)
    return replace(status, addresses=(*internal, hostname))


def set_machine(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """Capacity, allocatable, and what the machine is."""
    del now
    capacity = compute_capacity(facts, status.capacity)
    info, machine = status.node_info, facts.machine
    if machine is not None:
        info = replace(
            info,
            machine_id=machine.machine_id,
            system_uuid=machine.system_uuid,
            boot_id=machine.boot_id,
            kernel_version=machine.kernel_version,
            os_image=machine.os_image,
            swap=NodeSwapStatus(capacity=machine.swap) if machine.swap else None,
        )
    allocatable = compute_allocatable(facts, capacity)
    return replace(status, capacity=capacity, allocatable=allocatable, node_info=info)


def set_version(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """The versions of the agent and the runtime."""
    del now
    info = replace(
        status.node_info,
        kubelet_version=KUBELET_VERSION,
        kube_proxy_version="",
        container_runtime_version=f"{facts.runtime_name}://{facts.runtime_version or 'Unknown'}",
    )
    return replace(status, node_info=info)


def set_endpoints(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """Where the agent serves its API."""
    del now
    endpoint = DaemonEndpoint(port=facts.port)
    return replace(status, daemon_endpoints=NodeDaemonEndpoints(kubelet_endpoint=endpoint))


def set_images(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """The images on the node, the largest first."""
    del now
    if facts.images is None:
        raise SetterError("the images on the node are not known")
    largest = sorted(facts.images, key=lambda image: (-image.size_bytes, image.names))
    limit = facts.options.node_status_max_images
    return replace(status, images=tuple(largest if limit < 0 else largest[:limit]))


def set_platform(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """Operating system and architecture."""
    del now
    info = replace(status.node_info, operating_system=OS, architecture=architecture(facts))
    return replace(status, node_info=info)


def set_handlers(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """What each handler of the runtime can do."""
    del now
    handlers = (
        NodeRuntimeHandler(
            name=handler.name,
            features=NodeRuntimeHandlerFeatures(
                recursive_read_only_mounts=handler.recursive_read_only_mounts,
                user_namespaces=handler.user_namespaces,
            ),
        )
        for handler in facts.features.handlers
    )
    by_name = sorted(handlers, key=lambda handler: handler.name)
    return replace(status, runtime_handlers=tuple(by_name))


def set_features(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """What the runtime can do whatever the handler; nothing before it has said so."""
    del now
    if facts.features == _NO_FEATURES:
        return replace(status, features=None)
    policy = facts.features.supplemental_groups_policy
    return replace(status, features=NodeFeatures(supplemental_groups_policy=policy))


def set_pressure_conditions(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """MemoryPressure, DiskPressure, PIDPressure."""
    return replace(status, conditions=set_pressures(status.conditions, facts.pressure, now))


def set_ready_condition(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """Ready; comes after the capacity, for it looks at it."""
    errors = ready_errors(facts, status)
    return replace(
        status, conditions=set_ready(status.conditions, errors, facts.soft_requirements, now)
    )


def ready_errors(facts: NodeFacts, status: NodeStatus) -> tuple[str, ...]:
    """Why pods cannot run on the node."""
    errors = facts.not_ready
    if missing := missing_capacity(facts.options, status.capacity):
        errors = (*errors, f"missing node capacity for resources: {', '.join(missing)}")
    return errors


def set_volumes(facts: NodeFacts, status: NodeStatus, now: datetime) -> NodeStatus:
    """Attachable volumes in use, once that is known."""
    del now
    if facts.volumes_in_use is None:
        return status
    return replace(status, volumes_in_use=tuple(sorted(set(facts.volumes_in_use))))


SETTERS: Final[tuple[Setter, ...]] = (
    set_addresses,
    set_machine,
    set_version,
    set_endpoints,
    set_images,
    set_platform,
    set_handlers,
    set_features,
    set_pressure_conditions,
    set_ready_condition,
    set_volumes,
)
"""In this order."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A Node as it should be, and what of it could not be told."""

    node: Node
    errors: tuple[str, ...]


def compute_node(facts: NodeFacts, old: Node, now: datetime) -> Computed:
    """The Node with the status, the labels and the annotations that the agent owns."""
    status, errors = old.status, []
    for setter in SETTERS:
        try:
            status = setter(facts, status, now)
        except SetterError as error:
            errors.append(str(error))
    metadata = replace(
        old.metadata,
        labels={**old.metadata.labels, **platform_labels(facts)},
        annotations=_annotations(facts, old.metadata.annotations),
    )
    return Computed(replace(old, metadata=metadata, status=status), tuple(errors))


def platform_labels(facts: NodeFacts) -> dict[str, str]:
    """The labels that say what runs on the node."""
    return {"kubernetes.io/os": OS, "kubernetes.io/arch": architecture(facts)}


def architecture(facts: NodeFacts) -> str:
    """What Go calls the machine."""
    return facts.machine.architecture if facts.machine is not None else ""


def _annotations(facts: NodeFacts, old: dict[str, str]) -> dict[str, str]:
    """What a cloud's controller wants to know of the addresses that were given."""
    kept = {key: value for key, value in old.items() if key != PROVIDED_IP}
    given = facts.options.node_ips
    if facts.options.cloud_provider and given and not _any_unspecified(given):
        return {**kept, PROVIDED_IP: ",".join(given)}
    return kept


def _any_unspecified(given: tuple[str, ...]) -> bool:
    return any(ip_address(text).is_unspecified for text in given)
