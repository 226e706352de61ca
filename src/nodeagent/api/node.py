"""The Node object: what a machine tells the cluster of itself."""

from msgspec import field

from nodeagent.api.base import ApiObject, Time, always
from nodeagent.api.meta import ListMeta, ObjectMeta
from nodeagent.api.quantity import Quantity


class Taint(ApiObject):
    """What keeps pods away that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class NodeSpec(ApiObject):
    """What others decided about the node."""

    pod_cidr: str = ""
    pod_cidrs: tuple[str, ...] = ()
    provider_id: str = ""
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(ApiObject):
    """One address: of type InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS."""

    type: str = ""
    address: str = ""


class NodeCondition(ApiObject):
    """One condition: Ready, MemoryPressure, DiskPressure, PIDPressure or somebody else's."""

    type: str = ""
    status: str = ""
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class DaemonEndpoint(ApiObject):
    """A port, written with the capital that Kubernetes gives it."""

    port: int = field(name="Port", default=0)


class NodeDaemonEndpoints(ApiObject):
    """Where the node's daemons listen."""

    kubelet_endpoint: DaemonEndpoint = DaemonEndpoint()


class NodeSwapStatus(ApiObject):
    """Bytes of swap."""

    capacity: int | None = None


class NodeSystemInfo(ApiObject):
    """What the machine and its software are; every field is always written."""

    machine_id: str = always("")
    system_uuid: str = always("")
    boot_id: str = always("")
    kernel_version: str = always("")
    os_image: str = always("")
    container_runtime_version: str = always("")
    kubelet_version: str = always("")
    kube_proxy_version: str = always("")
    operating_system: str = always("")
    architecture: str = always("")
    swap: NodeSwapStatus | None = None


class ContainerImage(ApiObject):
    """An image that lies on the node, by its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class AttachedVolume(ApiObject):
    """A volume that is attached to the node."""

    name: str = always("")
    device_path: str = always("")


class NodeRuntimeHandlerFeatures(ApiObject):
    """What one runtime handler can do."""

    recursive_read_only_mounts: bool | None = None
    user_namespaces: bool | None = None


class NodeRuntimeHandler(ApiObject):
    """A handler of the container runtime; "" is the default one."""

    name: str = always("")
    features: NodeRuntimeHandlerFeatures | None = None


class NodeFeatures(ApiObject):
    """What the container runtime can do whatever the handler."""

    supplemental_groups_policy: bool | None = None


class NodeStatus(ApiObject):
    """What the agent reports of its machine."""

    capacity: dict[str, Quantity] = field(default_factory=dict)
    allocatable: dict[str, Quantity] = field(default_factory=dict)
    phase: str = ""
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: NodeDaemonEndpoints = NodeDaemonEndpoints()
    node_info: NodeSystemInfo = NodeSystemInfo()
    images: tuple[ContainerImage, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    runtime_handlers: tuple[NodeRuntimeHandler, ...] = ()
    features: NodeFeatures | None = None
    declared_features: tuple[str, ...] = ()


class Node(ApiObject):
    """A machine of the cluster."""

    api_version: str = always("v1")
    kind: str = always("Node")
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NodeList(ApiObject):
    """Nodes, as a server lists them."""

    api_version: str = always("v1")
    kind: str = always("NodeList")
    metadata: ListMeta = ListMeta()
    items: tuple[Node, ...] = ()
