"""What is known about a running pod and its containers."""

from msgspec import field

from nodeagent.api.base import ApiObject, Time, always
from nodeagent.api.quantity import Quantity
from nodeagent.api.resources import ResourceRequirements


class ContainerStateWaiting(ApiObject):
    """Not started, and why."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(ApiObject):
    """Running since a time."""

    started_at: Time | None = None


class ContainerStateTerminated(ApiObject):
    """Ended: how, when and why."""

    exit_code: int = always(0)
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None
    container_id: str = ""


class ContainerState(ApiObject):
    """At most one of the three states; none means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ImageVolumeStatus(ApiObject):
    """The image that an image volume was made from."""

    image_ref: str = ""


class VolumeStatus(ApiObject):
    """Facts about a mounted volume, by kind."""

    image: ImageVolumeStatus | None = None


class VolumeMountStatus(ApiObject):
    """How a volume is mounted in the container."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    recursive_read_only: str | None = None
    volume_status: VolumeStatus | None = None


class LinuxContainerUser(ApiObject):
    """Numeric identity of the container's first process."""

    uid: int = always(0)
    gid: int = always(0)
    supplemental_groups: tuple[int, ...] = ()


class ContainerUser(ApiObject):
    """Identity of the container's first process, by operating system."""

    linux: LinuxContainerUser | None = None


class ResourceHealth(ApiObject):
    """Health of one device: Healthy, Unhealthy or Unknown."""

    resource_id: str = ""
    health: str = ""
    message: str | None = None


class ResourceStatus(ApiObject):
    """Health of the devices given to a container for one resource."""

    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStatus(ApiObject):
    """State, identity and history of one container."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = always(False)  # noqa: FBT003
    restart_count: int = always(0)
    image: str = always("")
    image_id: str = always("")
    container_id: str = ""
    started: bool | None = None
    allocated_resources: dict[str, Quantity] = field(default_factory=dict)
    resources: ResourceRequirements | None = None
    volume_mounts: tuple[VolumeMountStatus, ...] = ()
    user: ContainerUser | None = None
    allocated_resources_status: tuple[ResourceStatus, ...] = ()
    stop_signal: str | None = None


class PodCondition(ApiObject):
    """One named aspect of the pod: True, False or Unknown, since when and why."""

    type: str = ""
    observed_generation: int = 0
    status: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class HostIP(ApiObject):
    """An address of the node."""

    ip: str = ""


class PodIP(ApiObject):
    """An address of the pod."""

    ip: str = ""


class PodResourceClaimStatus(ApiObject):
    """The claim that was made for one of the pod's resource claims."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(ApiObject):
    """Which claim request serves an extended resource of a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(ApiObject):
    """The claim that was made for the pod's extended resources."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class NodeAllocatableResourceClaimStatus(ApiObject):
    """Node resources that a claim takes, and the containers that use them."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: dict[str, Quantity] = field(default_factory=dict)


class PodStatus(ApiObject):
    """Phase, conditions, addresses and container statuses of a pod."""

    observed_generation: int = 0
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    message: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    host_ip: str = ""
    host_ips: tuple[HostIP, ...] = ()
    pod_ip: str = ""
    pod_ips: tuple[PodIP, ...] = ()
    start_time: Time | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str = ""
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resize: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    allocated_resources: dict[str, Quantity] = field(default_factory=dict)
    resources: ResourceRequirements | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()
