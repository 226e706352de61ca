"""Quality of service and priority of a pod (docs/behaviour/runtime.md, "Quality of service")."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from nodeagent.api import Pod, Quantity
from nodeagent.model.annotations import CONFIG_MIRROR, CONFIG_SOURCE

CRITICAL_PRIORITY: Final = 2_000_000_000
_COMPUTE: Final = ("cpu", "memory")


class QOSClass(enum.StrEnum):
    """The three classes; the value is the API's."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


_CLASSES: Final = frozenset(QOSClass)


def is_critical(pod: Pod) -> bool:
    """Whether the node cannot do without the pod: static, mirror, or of highest priority."""
    annotations = pod.metadata.annotations
    if annotations.get(CONFIG_SOURCE, "api") != "api" or CONFIG_MIRROR in annotations:
        return True
    return pod.spec.priority is not None and pod.spec.priority >= CRITICAL_PRIORITY


def compute_qos(pod: Pod) -> QOSClass:
    """The class that the API gave the pod, else the one its cpu and memory amounts give."""
    if pod.status.qos_class in _CLASSES:
        return QOSClass(pod.status.qos_class)
    level = pod.spec.resources
    if level is not None and (level.requests or level.limits):
        units = [(_set(level.requests), _set(level.limits))]
    else:
        units = [
            (_set(c.resources.requests), _set(c.resources.limits))
            for c in (*pod.spec.containers, *pod.spec.init_containers)
        ]
    if not any(requests or limits for requests, limits in units):
        return QOSClass.BEST_EFFORT
    if not all(limits.keys() == set(_COMPUTE) for _, limits in units):
        return QOSClass.BURSTABLE
    for name in _COMPUTE:
        asked = sum(requests[name].nanos for requests, _ in units if name in requests)
        if asked != sum(limits[name].nanos for _, limits in units):
            return QOSClass.BURSTABLE
    return QOSClass.GUARANTEED


def _set(amounts: Mapping[str, Quantity]) -> dict[str, Quantity]:
    return {name: amounts[name] for name in _COMPUTE if amounts.get(name)}
