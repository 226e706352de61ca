"""The Node object that the agent makes, and what it mends in one that is there. Pure.

Rows and their tests: docs/behaviour/node.md, "Registration".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from nodeagent.api.meta import ObjectMeta
from nodeagent.api.node import Node, NodeSpec, NodeStatus, Taint
from nodeagent.api.quantity import Quantity
from nodeagent.config.node_options import DEFAULT_LABELS, HOSTNAME_LABEL
from nodeagent.node.capacity import HUGE_PAGES
from nodeagent.node.facts import NodeFacts
from nodeagent.node.setters import OS, Computed, architecture, compute_node

ATTACH_DETACH: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
UNINITIALIZED: Final = Taint(
    key="node.cloudprovider.kubernetes.io/uninitialized", value="true", effect="NoSchedule"
)


def initial_node(facts: NodeFacts, now: datetime) -> Computed:
    """The Node of this machine as if there were none yet."""
    options = facts.options
    kind = architecture(facts)
    labels = {
        HOSTNAME_LABEL: facts.name,
        "kubernetes.io/os": OS,
        "kubernetes.io/arch": kind,
        "beta.kubernetes.io/os": OS,
        "beta.kubernetes.io/arch": kind,
        **options.node_labels,
    }
    taints = options.register_with_taints
    if options.cloud_provider and UNINITIALIZED not in taints:
        taints = (*taints, UNINITIALIZED)
    attach = {ATTACH_DETACH: "true"} if options.enable_controller_attach_detach else {}
    node = Node(
        metadata=ObjectMeta(name=facts.name, labels=labels, annotations=attach),
        spec=NodeSpec(provider_id=options.provider_id, taints=taints),
    )
    return compute_node(facts, node, now)


def reconcile_node(initial: Node, existing: Node) -> Node:
    """The existing Node with what a new one would have, as far as that is the agent's to say.

    Labels and taints of the configuration are not: people may have changed them since.
    """
    metadata = existing.metadata
    annotations = {k: v for k, v in metadata.annotations.items() if k != ATTACH_DETACH}
    if ATTACH_DETACH in initial.metadata.annotations:
        annotations[ATTACH_DETACH] = initial.metadata.annotations[ATTACH_DETACH]
    labels = dict(metadata.labels)
    for key in DEFAULT_LABELS:
        value = initial.metadata.labels.get(key)
        if value:
            labels[key] = value
        elif value is not None:
            labels.pop(key, None)
    return replace(
        existing,
        metadata=replace(metadata, labels=labels, annotations=annotations),
        status=_with_huge_pages(initial.status, existing.status),
    )


def _with_huge_pages(initial: NodeStatus, existing: NodeStatus) -> NodeStatus:
    return replace(
        existing,
        capacity=_exchanged(initial.capacity, existing.capacity),
        allocatable=_exchanged(initial.allocatable, existing.allocatable),
    )


def _exchanged(
    initial: Mapping[str, Quantity], existing: Mapping[str, Quantity]
) -> dict[str, Quantity]:
    kept = {name: amount for name, amount in existing.items() if not _is_pages(name)}
    return {**kept, **{name: amount for name, amount in initial.items() if _is_pages(name)}}


def _is_pages(name: str) -> bool:
    return name.startswith(HUGE_PAGES)
