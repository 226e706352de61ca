"""The Lease object: a sign of life that somebody renews."""

from msgspec import field

from nodeagent.api.base import ApiObject, always
from nodeagent.api.meta import ObjectMeta


class LeaseSpec(ApiObject):
    """Who holds it, and until when.

    Times have microseconds, and servers want all six digits: they are kept as text.
    """

    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int | None = None
    strategy: str = ""
    preferred_holder: str = ""


class Lease(ApiObject):
    """A claim that runs out unless it is renewed."""

    api_version: str = always("coordination.k8s.io/v1")
    kind: str = always("Lease")
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = field(default_factory=LeaseSpec)
