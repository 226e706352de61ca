"""Whether a pod puts up with the taints that would drive it away. Pure.

Rows and their tests: docs/behaviour/admission.md, "Taints".
"""

from __future__ import annotations

from typing import Final

from nodeagent.api import Pod, Toleration
from nodeagent.api.node import Node, Taint
from nodeagent.pods.status import is_static

NO_EXECUTE: Final = "NoExecute"


def tolerates_node(pod: Pod, node: Node) -> bool:
    """Whether the pod tolerates each NoExecute taint of the node; a static pod always does."""
    return is_static(pod) or all(
        any(_tolerates(toleration, taint) for toleration in pod.spec.tolerations)
        for taint in node.spec.taints
        if taint.effect == NO_EXECUTE
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
    return False
