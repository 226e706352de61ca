"""Nodes and pods for tests of admission."""

from __future__ import annotations

from typing import Any

import msgspec

from nodeagent.api import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    Quantity,
    ResourceRequirements,
)
from nodeagent.api.node import Node, NodeSpec, NodeStatus, Taint
from nodeagent.model.annotations import CONFIG_SOURCE
from nodeagent.pods.admission import Case, Rules, Verdict, decide
from nodeagent.pods.admission_platform import Support
from nodeagent.runtime.qos import compute_qos, is_critical
from nodeagent.testing import make_container, make_pod

ROOM = {"cpu": "2", "memory": "1Gi", "pods": "10", "ephemeral-storage": "10Gi"}


def amounts(given: dict[str, str]) -> dict[str, Quantity]:
    return {name: Quantity(amount) for name, amount in given.items()}


def make_node(
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    **allocatable: str,
) -> Node:
    given = {**ROOM, **{name.replace("_", "-"): amount for name, amount in allocatable.items()}}
    return Node(
        metadata=ObjectMeta(name="node-1", labels=labels or {}),
        spec=NodeSpec(taints=taints),
        status=NodeStatus(allocatable=amounts(given)),
    )


def with_room(node: Node, **more: str) -> Node:
    """The same node with more resources; a name may be any text."""
    room = {**node.status.allocatable, **amounts(more)}
    return msgspec.structs.replace(
        node, status=msgspec.structs.replace(node.status, allocatable=room)
    )


def needs(container: str = "main", /, **requests: str) -> Container:
    return make_container(container, resources=ResourceRequirements(requests=amounts(requests)))


def asking(name: str = "web", *, static: bool = False, **requests: str) -> Pod:
    """A pod with one container that requests this."""
    pod = make_pod(name, needs(**requests))
    return as_static(pod) if static else pod


def as_static(pod: Pod) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, annotations={CONFIG_SOURCE: "file"})
    return msgspec.structs.replace(pod, metadata=meta)


def critical(pod: Pod, priority: int = 2_000_000_000) -> Pod:
    spec = msgspec.structs.replace(pod.spec, priority=priority)
    return msgspec.structs.replace(pod, spec=spec)


def with_port(name: str, *ports: tuple[int, str, str]) -> Pod:
    """A pod with host ports: number, protocol, address."""
    given = tuple(
        ContainerPort(container_port=port, host_port=port, protocol=protocol, host_ip=address)
        for port, protocol, address in ports
    )
    return make_pod(name, make_container(ports=given))


def term(*expressions: tuple[str, str, tuple[str, ...]], **fields: Any) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=tuple(
            NodeSelectorRequirement(key=key, operator=operator, values=values)
            for key, operator, values in expressions
        ),
        **fields,
    )


def choosy(*terms: NodeSelectorTerm, **spec: Any) -> Pod:
    """A pod that asks for a node that one of the terms matches."""
    required = NodeSelector(node_selector_terms=terms)
    affinity = Affinity(
        node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required)
    )
    return make_pod("choosy", affinity=affinity, **spec)


RULES = Rules(
    support=Support, is_critical=is_critical, qos_class=lambda pod: compute_qos(pod).value
)


def judge(
    pod: Pod, *others: Pod, node: Node | None = None, rules: Rules = RULES, **case: Any
) -> Verdict:
    return decide(Case(pod=pod, others=others, node=node or make_node(), **case), rules)
