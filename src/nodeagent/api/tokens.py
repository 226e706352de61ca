"""Requests for tokens of service accounts (authentication.k8s.io/v1)."""

from nodeagent.api.base import ApiObject, Time, always
from nodeagent.api.meta import ObjectMeta


class BoundObjectReference(ApiObject):
    """The object with which a token ends."""

    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class TokenRequestSpec(ApiObject):
    """What is asked for; no audience means the API server."""

    audiences: tuple[str, ...] = always(())
    expiration_seconds: int | None = None
    bound_object_ref: BoundObjectReference | None = None


class TokenRequestStatus(ApiObject):
    """The token. It never shows itself."""

    token: str = ""
    expiration_timestamp: Time | None = None

    def __repr__(self) -> str:
        return f"TokenRequestStatus(expiration_timestamp={self.expiration_timestamp})"


class TokenRequest(ApiObject):
    """A token that is asked for, or given."""

    api_version: str = always("authentication.k8s.io/v1")
    kind: str = always("TokenRequest")
    metadata: ObjectMeta = ObjectMeta()
    spec: TokenRequestSpec = TokenRequestSpec()
    status: TokenRequestStatus = TokenRequestStatus()
