"""The pod itself."""

from msgspec import field

from nodeagent.api.base import ApiObject, always
from nodeagent.api.container import Container, EphemeralContainer
from nodeagent.api.meta import ListMeta, LocalObjectReference, ObjectMeta
from nodeagent.api.quantity import Quantity
from nodeagent.api.resources import PodResourceClaim, ResourceRequirements
from nodeagent.api.scheduling import (
    Affinity,
    PodSchedulingGate,
    PodSchedulingGroup,
    Toleration,
    TopologySpreadConstraint,
)
from nodeagent.api.security import PodSecurityContext
from nodeagent.api.status import PodStatus
from nodeagent.api.volumes import Volume


class PodDNSConfigOption(ApiObject):
    """One resolver option, with or without a value."""

    name: str = ""
    value: str | None = None


class PodDNSConfig(ApiObject):
    """Resolver settings added to those that the DNS policy gives."""

    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()


class HostAlias(ApiObject):
    """A line of the pod's hosts file."""

    ip: str = ""
    hostnames: tuple[str, ...] = ()


class PodReadinessGate(ApiObject):
    """A condition that must be True for the pod to be ready."""

    condition_type: str = ""


class PodOS(ApiObject):
    """The operating system that the containers need: linux or windows."""

    name: str = ""


class PodSpec(ApiObject):
    """What should run: containers, volumes, and how they run together."""

    volumes: tuple[Volume, ...] = ()
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[EphemeralContainer, ...] = ()
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    dns_policy: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    service_account_name: str = ""
    service_account: str = ""
    automount_service_account_token: bool | None = None
    node_name: str = ""
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    share_process_namespace: bool | None = None
    security_context: PodSecurityContext | None = None
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    hostname: str = ""
    subdomain: str = ""
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    host_aliases: tuple[HostAlias, ...] = ()
    priority_class_name: str = ""
    priority: int | None = None
    dns_config: PodDNSConfig | None = None
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    runtime_class_name: str | None = None
    enable_service_links: bool | None = None
    preemption_policy: str | None = None
    overhead: dict[str, Quantity] = field(default_factory=dict)
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    set_hostname_as_fqdn: bool | None = None
    os: PodOS | None = None
    host_users: bool | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: ResourceRequirements | None = None
    hostname_override: str | None = None
    scheduling_group: PodSchedulingGroup | None = None


class Pod(ApiObject):
    """Containers that run together on one node."""

    api_version: str = always("v1")
    kind: str = always("Pod")
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodList(ApiObject):
    """Pods, as the API and the pod endpoints list them."""

    api_version: str = always("v1")
    kind: str = always("PodList")
    metadata: ListMeta = ListMeta()
    items: tuple[Pod, ...] = always(())
