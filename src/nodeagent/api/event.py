"""The Event object: what happened to a pod or a node, for people."""

from nodeagent.api.base import ApiObject, Time, always
from nodeagent.api.meta import ObjectMeta


class ObjectReference(ApiObject):
    """Any object, or a part of it (``fieldPath: spec.containers{web}``)."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(ApiObject):
    """Which component of which machine says so."""

    component: str = ""
    host: str = ""


class Event(ApiObject):
    """Something that happened, and how often so far."""

    api_version: str = always("v1")
    kind: str = always("Event")
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    count: int = 0
    type: str = ""
    reporting_component: str = always("")
    reporting_instance: str = always("")
