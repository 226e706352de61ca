"""What a node says of itself: the settings that are about the Node object."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeagent.api.node import Taint
from nodeagent.api.quantity import Quantity, QuantityError
from nodeagent.api.validation.names import label_value_fault, qualified_name_fault
from nodeagent.config.cluster_settings import ClusterSettings
from nodeagent.config.errors import ConfigError

TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")
EVICTION_SIGNALS: Final = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
    "allocatableMemory.available",
)
DEFAULT_EVICTION_HARD: Final[Mapping[str, str]] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
DEFAULT_LABELS: Final = (
    HOSTNAME_LABEL,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
)
"""Labels of Kubernetes that a node may give itself by name."""
_OWN_NAMESPACES: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESERVED_NAMESPACES: Final = ("kubernetes.io", "k8s.io")
_NODE_IPS: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeOptions(ClusterSettings):
    """What a node says of itself.

    Attributes:
        node_ip: the node's address, or one of each family with a comma between; "" finds one,
            ``0.0.0.0`` or ``::`` finds one of that family.
        register_with_taints: taints of a Node object that the agent makes.
        node_labels: labels of a Node object that the agent makes.
        provider_id: how the cloud names the machine; "" for none.
        cloud_provider: "" for none, or ``external``: a controller tells the node's addresses.
        node_status_max_images: images that the node reports, the largest first; -1 for all.
        max_pods: pods that the node takes.
        pods_per_core: the same for each processor; 0 for no such bound.
        kube_reserved: what the node's Kubernetes daemons need, by resource.
        system_reserved: what the rest of the system needs, by resource.
        eviction_hard: what must stay free, by signal: an amount, or a percentage.
        local_storage_capacity_isolation: whether the node reports ephemeral storage.
        enable_controller_attach_detach: whether the controllers attach volumes to the node.
        make_iptables_util_chains: whether the agent keeps its two chains in iptables.
        pod_cidr: addresses of pods, when there is no API server to tell them.
    """

    node_ip: str = ""
    register_with_taints: tuple[Taint, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict)
    provider_id: str = ""
    cloud_provider: str = ""
    node_status_max_images: int = 50
    max_pods: int = 110
    pods_per_core: int = 0
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_EVICTION_HARD))
    local_storage_capacity_isolation: bool = True
    enable_controller_attach_detach: bool = True
    make_iptables_util_chains: bool = True
    pod_cidr: str = ""

    @property
    def node_ips(self) -> tuple[str, ...]:
        """The node's addresses as given, without blanks; may be empty or unspecified ones."""
        return tuple(part.strip() for part in self.node_ip.split(",") if part.strip())

    def _check_node(self) -> None:
        """Raises ConfigError."""
        _check_numbers(self)
        _check_addresses(self)
        if self.cloud_provider not in ("", "external"):
            raise ConfigError("cloud_provider", self.cloud_provider, "must be external, or empty")
        for key, value in self.node_labels.items():
            if fault := label_fault(key, value):
                raise ConfigError("node_labels", f"{key}={value}", fault)
        _check_taints(self.register_with_taints)
        for name in ("kube_reserved", "system_reserved"):
            for resource, amount in getattr(self, name).items():
                if fault := reservation_fault(resource, amount):
                    raise ConfigError(name, f"{resource}={amount}", fault)
        for signal, amount in self.eviction_hard.items():
            if fault := threshold_fault(signal, amount):
                raise ConfigError("eviction_hard", f"{signal}<{amount}", fault)


def _check_numbers(options: NodeOptions) -> None:
    if options.node_status_max_images < -1:
        value = options.node_status_max_images
        raise ConfigError("node_status_max_images", value, "must be at least 0, or -1 for all")
    for name in ("max_pods", "pods_per_core"):
        value = getattr(options, name)
        if value < 0:
            raise ConfigError(name, value, "must not be negative")


def _check_addresses(options: NodeOptions) -> None:
    given, allowed = options.node_ips, "must be an IP address, or one of each family"
    try:
        addresses = [ipaddress.ip_address(text) for text in given]
    except ValueError as error:
        raise ConfigError("node_ip", options.node_ip, allowed) from error
    if len(addresses) > _NODE_IPS:
        raise ConfigError("node_ip", options.node_ip, allowed)
    if len(addresses) == _NODE_IPS:
        if addresses[0].version == addresses[1].version:
            raise ConfigError("node_ip", options.node_ip, allowed)
        if any(address.is_unspecified for address in addresses):
            raise ConfigError("node_ip", options.node_ip, f"{allowed}, neither of them unspecified")
    for text in filter(None, (part.strip() for part in options.pod_cidr.split(","))):
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError as error:
            allowed = "must be a network such as 10.1.2.0/24, or one of each family"
            raise ConfigError("pod_cidr", options.pod_cidr, allowed) from error


def _check_taints(taints: tuple[Taint, ...]) -> None:
    seen: set[tuple[str, str]] = set()
    for taint in taints:
        fault = taint_fault(taint)
        if fault is None and (taint.key, taint.effect) in seen:
            fault = "the same key and effect are given twice"
        if fault:
            raise ConfigError("register_with_taints", show_taint(taint), fault)
        seen.add((taint.key, taint.effect))


def label_fault(key: str, value: str) -> str | None:
    """What is wrong with a label that a node wants to give itself."""
    if fault := qualified_name_fault(key):
        return f"as a label key, {fault}"
    if fault := label_value_fault(value):
        return f"as a label's value, {fault}"
    namespace = key.rpartition("/")[0]
    if not _within(namespace, _RESERVED_NAMESPACES) or key in DEFAULT_LABELS:
        return None
    if _within(namespace, _OWN_NAMESPACES):
        return None
    return (
        "a node may give itself labels of kubernetes.io and k8s.io only below "
        f"{' and '.join(_OWN_NAMESPACES)}, or {', '.join(DEFAULT_LABELS)}"
    )


def _within(namespace: str, domains: tuple[str, ...]) -> bool:
    return any(namespace == name or namespace.endswith(f".{name}") for name in domains)


def taint_fault(taint: Taint) -> str | None:
    """What is wrong with a taint."""
    if fault := qualified_name_fault(taint.key):
        return f"as a taint's key, {fault}"
    if fault := label_value_fault(taint.value):
        return f"as a taint's value, {fault}"
    if taint.effect not in TAINT_EFFECTS:
        return f"a taint's effect must be one of {', '.join(TAINT_EFFECTS)}"
    if taint.time_added is not None:
        return "a taint to register with has no timeAdded"
    return None


def show_taint(taint: Taint) -> str:
    """The taint as flags have it."""
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"


def parse_taints(text: str) -> tuple[Taint, ...]:
    """Taints as flags have them: ``key=value:effect,key:effect``.

    Raises:
        ValueError: it is not written so; says what is wrong. The values are not judged here.
    """
    taints = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        front, colon, effect = part.rpartition(":")
        if not colon:
            msg = f"{part!r} is not written key=value:effect"
            raise ValueError(msg)
        key, _, value = front.partition("=")
        taints.append(Taint(key=key, value=value, effect=effect))
    return tuple(taints)


def parse_pairs(text: str, sign: str = "=") -> dict[str, str]:
    """Names and values as flags have them: ``a=1,b=2``, or with another sign between.

    Raises:
        ValueError: it is not written so; says what is wrong.
    """
    pairs = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, found, value = part.partition(sign)
        if not found or not name.strip():
            msg = f"{part!r} is not written name{sign}value"
            raise ValueError(msg)
        pairs[name.strip()] = value.strip()
    return pairs


def reservation_fault(resource: str, amount: str) -> str | None:
    """What is wrong with a reservation."""
    if resource not in RESERVABLE:
        return f"only {', '.join(RESERVABLE)} can be reserved"
    try:
        quantity = Quantity(amount)
    except QuantityError as error:
        return str(error)
    return "a reservation must not be negative" if quantity < Quantity(0) else None


def threshold_fault(signal: str, amount: str) -> str | None:
    """What is wrong with an eviction threshold."""
    if signal not in EVICTION_SIGNALS:
        return f"the signals are {', '.join(EVICTION_SIGNALS)}"
    try:
        threshold_amount(amount, Quantity(0))
    except ValueError as error:
        return str(error)
    return None


def threshold_amount(amount: str, capacity: Quantity) -> Quantity:
    """The amount that an eviction threshold stands for.

    Args:
        amount: an amount such as ``100Mi``, or a percentage of the capacity. 0% and 100% mean
            that there is no threshold.
        capacity: all there is.

    Raises:
        ValueError: it is neither.
    """
    if amount.endswith("%"):
        try:
            share = float(amount[:-1])
        except ValueError:
            share = -1.0
        if not 0 <= share <= 100:
            msg = f"{amount!r} is not a percentage between 0% and 100%"
            raise ValueError(msg)
        if share in (0.0, 100.0):
            return Quantity(0)
        return Quantity.from_bytes(int(capacity.value() * share / 100))
    quantity = Quantity(amount)
    if quantity < Quantity(0):
        msg = "a threshold must not be negative"
        raise ValueError(msg)
    return quantity


def reservations(options: NodeOptions) -> Iterator[tuple[str, Quantity]]:
    """All that is reserved, resource by resource; one may come twice."""
    for given in (options.kube_reserved, options.system_reserved):
        for resource, amount in given.items():
            yield resource, Quantity(amount)
