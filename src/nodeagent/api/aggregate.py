"""What the containers of a pod need together, resource by resource."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from nodeagent.api.container import Container
from nodeagent.api.pod import PodSpec
from nodeagent.api.quantity import Quantity

Amounts = dict[str, Quantity]
"""Quantities by resource name."""

_OF_PODS: Final = ("cpu", "memory")
"""Resources that a pod can name for all of its containers together, beside huge pages."""


def is_extended(name: str) -> bool:
    """Whether a resource is one that somebody added to a node, such as ``example.com/gpu``."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def is_sidecar(init_container: Container) -> bool:
    """Tell whether an init container keeps running next to the regular ones."""
    return init_container.restart_policy == "Always"


def aggregate(spec: PodSpec, kind: Literal["requests", "limits"]) -> Amounts:
    """Return the most that the pod's containers need at any one time.

    Regular containers and sidecars run together, so theirs add up; an init container runs next
    to the sidecars started before it, and counts when it needs more than all that.
    """
    total = add_amounts(_amounts_of(each, kind) for each in spec.containers)
    sidecars: Amounts = {}
    peak: Amounts = {}
    for init in spec.init_containers:
        own = _amounts_of(init, kind)
        if is_sidecar(init):
            total = add_amounts((total, own))
            sidecars = add_amounts((sidecars, own))
            own = sidecars
        else:
            own = add_amounts((own, sidecars))
        peak = _larger(peak, own)
    return _larger(total, peak)


def pod_requests(spec: PodSpec) -> Amounts:
    """Return what the pod as a whole requests, as schedulers count it.

    Amounts that the pod names for itself stand in for those of its containers; what it costs
    beside its containers comes on top.
    """
    total = aggregate(spec, "requests")
    if spec.resources is not None:
        for name, quantity in spec.resources.requests.items():
            if name in _OF_PODS or name.startswith("hugepages-"):
                total[name] = quantity
    return add_amounts((total, spec.overhead)) if spec.overhead else total


def add_amounts(several: Iterable[Mapping[str, Quantity]]) -> Amounts:
    """Return the sums, name by name."""
    total: Amounts = {}
    for amounts in several:
        for name, quantity in amounts.items():
            total[name] = total[name] + quantity if name in total else quantity
    return total


def _larger(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """Return the larger amounts, name by name."""
    result = dict(left)
    for name, quantity in right.items():
        if name not in result or quantity > result[name]:
            result[name] = quantity
    return result


def _amounts_of(
    container: Container, kind: Literal["requests", "limits"]
) -> Mapping[str, Quantity]:
    resources = container.resources
    return resources.requests if kind == "requests" else resources.limits
