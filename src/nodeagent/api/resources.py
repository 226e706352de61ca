"""Resource amounts that containers, pods and claims ask for."""

from msgspec import field

from nodeagent.api.base import ApiObject
from nodeagent.api.quantity import Quantity


class ResourceClaim(ApiObject):
    """A container's use of one of the pod's resource claims, or of one request of it."""

    name: str = ""
    request: str = ""


class ResourceRequirements(ApiObject):
    """Least and most of each resource for a container or a pod, by resource name."""

    limits: dict[str, Quantity] = field(default_factory=dict)
    requests: dict[str, Quantity] = field(default_factory=dict)
    claims: tuple[ResourceClaim, ...] = ()


class VolumeResourceRequirements(ApiObject):
    """Least and most storage for a volume claim."""

    limits: dict[str, Quantity] = field(default_factory=dict)
    requests: dict[str, Quantity] = field(default_factory=dict)


class ContainerResizePolicy(ApiObject):
    """Whether resizing one resource in place needs a container restart."""

    resource_name: str = ""
    restart_policy: str = ""


class PodResourceClaim(ApiObject):
    """A resource claim of the pod, or the template to make one from."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
