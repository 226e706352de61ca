"""Values that a container learns of its own pod (docs/behaviour/runtime.md, "Downward values").

Pure functions. A field or resource that does not exist raises ``ValueError`` with a text for
people.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from nodeagent.api import Container, Pod, Quantity, ResourceFieldSelector
from nodeagent.runtime.names import find_container
from nodeagent.runtime.settings import HostFacts, RuntimeSettings

_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_ONE: Final = Quantity("1")
_ALLOCATABLE: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class NodeValues:
    """What the values need of the node.

    Attributes:
        name: its name.
        ips: its addresses, the primary family first.
        allocatable: what pods may use of it, by resource.
    """

    name: str = ""
    ips: tuple[str, ...] = ()
    allocatable: Mapping[str, Quantity] | None = None


NO_NODE: Final = NodeValues()


def node_values(
    settings: RuntimeSettings,
    host: HostFacts,
    allocatable: Mapping[str, Quantity] | None = None,
) -> NodeValues:
    """The node as far as it is known here.

    Args:
        settings: the node's name and addresses.
        host: what it has.
        allocatable: what of it pods may have; None for all that it has.
    """
    allocatable = allocatable or {
        "cpu": Quantity(str(host.cpus)),
        "memory": Quantity(str(host.memory_capacity)),
        "ephemeral-storage": Quantity(str(host.storage_capacity)),
    }
    return NodeValues(settings.node_name, settings.node_ips, allocatable)


def field_value(pod: Pod, path: str, ips: tuple[str, ...], node: NodeValues) -> str:
    """A field of the pod.

    Args:
        pod: the pod.
        path: ``metadata.name``, ``metadata.labels['<key>']``, ``status.podIP`` ...
        ips: the pod's addresses as the runtime gives them.
        node: the node.

    Raises:
        ValueError: there is no such field.
    """
    keyed = _KEYED.fullmatch(path)
    if keyed:
        meta = pod.metadata
        return (meta.labels if keyed[1] == "labels" else meta.annotations).get(keyed[2], "")
    read = _FIELDS.get(path)
    if read is None:
        msg = f"unsupported fieldPath: {path}"
        raise ValueError(msg)
    return read(pod, pod_ips(pod, ips, node), node)


_Read = Callable[[Pod, tuple[str, ...], NodeValues], str]
_FIELDS: Final[Mapping[str, _Read]] = {
    "metadata.name": lambda pod, _ips, _node: pod.metadata.name,
    "metadata.namespace": lambda pod, _ips, _node: pod.metadata.namespace,
    "metadata.uid": lambda pod, _ips, _node: pod.metadata.uid,
    "spec.nodeName": lambda pod, _ips, node: pod.spec.node_name or node.name,
    "spec.serviceAccountName": lambda pod, _ips, _node: pod.spec.service_account_name,
    "status.hostIP": lambda _pod, _ips, node: node.ips[0] if node.ips else "",
    "status.hostIPs": lambda _pod, _ips, node: ",".join(node.ips),
    "status.podIP": lambda _pod, ips, _node: ips[0] if ips else "",
    "status.podIPs": lambda _pod, ips, _node: ",".join(ips),
}


def pod_ips(pod: Pod, ips: tuple[str, ...], node: NodeValues) -> tuple[str, ...]:
    """The pod's addresses, that of the node's primary family first; at most one of each."""
    if pod.spec.host_network:
        return node.ips
    by_family: dict[int, str] = {}
    for ip in ips:
        by_family.setdefault(ip_address(ip).version, ip)
    if node.ips and (own := by_family.pop(ip_address(node.ips[0]).version, None)):
        return (own, *by_family.values())
    return tuple(by_family.values())


def resource_value(
    pod: Pod, container: Container, selector: ResourceFieldSelector, node: NodeValues
) -> str:
    """An amount of a container, in units of the divisor and rounded up.

    A limit that is not set is the pod's, else what the node has; a request is 0.

    Args:
        pod: the pod.
        container: whose amount, when the selector names nobody.
        selector: which amount.
        node: the node.

    Raises:
        ValueError: there is no such container or resource.
    """
    if selector.container_name:
        found = find_container(pod, selector.container_name)
        if found is None:
            msg = f"container {selector.container_name} not found"
            raise ValueError(msg)
        container = found
    kind, _, name = selector.resource.partition(".")
    if kind not in ("limits", "requests") or not _known(name):
        msg = f"unsupported container resource: {selector.resource}"
        raise ValueError(msg)
    amount = _limit(pod, container, name, node) if kind == "limits" else _request(container, name)
    divisor = selector.divisor or _ONE
    if name == "cpu":
        return str(-(-amount.milli_value() // divisor.milli_value()))
    return str(-(-amount.value() // divisor.value()))


def _known(name: str) -> bool:
    return name in _ALLOCATABLE or name.startswith("hugepages-")


def _request(container: Container, name: str) -> Quantity:
    return container.resources.requests.get(name, Quantity("0"))


def _limit(pod: Pod, container: Container, name: str, node: NodeValues) -> Quantity:
    level = pod.spec.resources
    for amounts in (
        container.resources.limits,
        level.limits if level is not None else {},
        node.allocatable or {},
    ):
        if amount := amounts.get(name):
            return amount
    return Quantity("0")
