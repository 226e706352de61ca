"""Whether a node is one of those that a pod may run on. Pure.

Rows and their tests: docs/behaviour/admission.md, "Affinity".
"""

from __future__ import annotations

from nodeagent.api import Pod
from nodeagent.api.node import Node
from nodeagent.model.node_selector import selects


def matches_node(pod: Pod, node: Node) -> bool:
    """Whether the pod's node selector and its required node affinity take this node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return True
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return True
    return selects(required, node)
