"""Requests for signed certificates (certificates.k8s.io/v1)."""

from msgspec import field

from nodeagent.api.base import ApiObject, Time, always
from nodeagent.api.meta import ObjectMeta


class CertificateSigningRequestSpec(ApiObject):
    """What is asked for; ``request`` is a PKCS#10 request in PEM."""

    request: bytes = always(b"")
    signer_name: str = ""
    expiration_seconds: int | None = None
    usages: tuple[str, ...] = ()
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)


class CertificateSigningRequestCondition(ApiObject):
    """What was decided: Approved, Denied or Failed."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: Time | None = None
    last_transition_time: Time | None = None


class CertificateSigningRequestStatus(ApiObject):
    """The decision, and the certificate (PEM) once it is signed."""

    conditions: tuple[CertificateSigningRequestCondition, ...] = ()
    certificate: bytes = b""


class CertificateSigningRequest(ApiObject):
    """A request for a signed certificate."""

    api_version: str = always("certificates.k8s.io/v1")
    kind: str = always("CertificateSigningRequest")
    metadata: ObjectMeta = ObjectMeta()
    spec: CertificateSigningRequestSpec = CertificateSigningRequestSpec()
    status: CertificateSigningRequestStatus = CertificateSigningRequestStatus()
