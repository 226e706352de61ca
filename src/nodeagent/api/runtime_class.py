"""The RuntimeClass object: a name for a handler of the container runtime."""

from nodeagent.api.base import ApiObject, always
from nodeagent.api.meta import ObjectMeta


class RuntimeClass(ApiObject):
    """A class of runtimes that pods may ask for."""

    api_version: str = always("node.k8s.io/v1")
    kind: str = always("RuntimeClass")
    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
