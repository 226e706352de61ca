"""The Service object, as far as a node needs it: names, addresses and ports."""

from msgspec import field

from nodeagent.api.base import ApiObject, always
from nodeagent.api.meta import ObjectMeta


class ServicePort(ApiObject):
    """A port under which the service can be reached."""

    name: str = ""
    protocol: str = ""
    port: int = 0


class ServiceSpec(ApiObject):
    """Where the service can be reached inside the cluster; "None" for nowhere."""

    cluster_ip: str = ""
    ports: tuple[ServicePort, ...] = ()


class Service(ApiObject):
    """A name for a set of pods."""

    api_version: str = always("v1")
    kind: str = always("Service")
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = field(default_factory=ServiceSpec)
