"""Certificates of pods, and whom they may trust (certificates.k8s.io/v1beta1)."""

from msgspec import field

from nodeagent.api.base import ApiObject, Time, always
from nodeagent.api.meta import ObjectMeta


class ClusterTrustBundleSpec(ApiObject):
    """Trust anchors in PEM, of one signer or of nobody in particular."""

    signer_name: str = ""
    trust_bundle: str = ""


class ClusterTrustBundle(ApiObject):
    """Certificates that pods may trust."""

    api_version: str = always("certificates.k8s.io/v1beta1")
    kind: str = always("ClusterTrustBundle")
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterTrustBundleSpec = ClusterTrustBundleSpec()


class PodCertificateRequestSpec(ApiObject):
    """Who asks whom for what; the request is a PKCS#10 one without a name in it, in DER."""

    signer_name: str = ""
    pod_name: str = ""
    pod_uid: str = field(default="", name="podUID")
    service_account_name: str = ""
    service_account_uid: str = field(default="", name="serviceAccountUID")
    node_name: str = ""
    node_uid: str = field(default="", name="nodeUID")
    max_expiration_seconds: int | None = None
    stub_request: bytes = field(default=b"", name="stubPKCS10Request")
    unverified_user_annotations: dict[str, str] = field(default_factory=dict)


class PodCertificateRequestCondition(ApiObject):
    """What was decided: Issued, Denied or Failed."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None


class PodCertificateRequestStatus(ApiObject):
    """The decision, and the certificates (PEM) once they are issued."""

    conditions: tuple[PodCertificateRequestCondition, ...] = ()
    certificate_chain: str = ""
    not_before: Time | None = None
    begin_refresh_at: Time | None = None
    not_after: Time | None = None


class PodCertificateRequest(ApiObject):
    """A certificate that a pod shall have."""

    api_version: str = always("certificates.k8s.io/v1beta1")
    kind: str = always("PodCertificateRequest")
    metadata: ObjectMeta = ObjectMeta()
    spec: PodCertificateRequestSpec = PodCertificateRequestSpec()
    status: PodCertificateRequestStatus = PodCertificateRequestStatus()
