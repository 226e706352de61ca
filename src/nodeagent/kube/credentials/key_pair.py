"""Keys, and requests to sign them. Blocking: it loads cryptography, which takes a while."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
USAGES: Final = ("digital signature", "client auth")
ORGANIZATION: Final = "system:nodes"


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """A request for a client certificate of a node.

    Attributes:
        name: of the object; the same for the same key, so that it is found again.
        key: private key, PEM.
        request: PKCS#10, PEM.
    """

    name: str
    key: bytes = field(repr=False)
    request: bytes


def new_key() -> bytes:
    """A private key on the curve P-256, PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def signing_request(key: bytes, node_name: str) -> SigningRequest:
    """The request for the client certificate of a node.

    Raises:
        ValueError: ``key`` is none on a curve.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    private = _private(key)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node_name}"),
        ]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(private, hashes.SHA256())
    public = private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    told = "\n".join([SIGNER, *USAGES, subject.rfc4514_string()]).encode()
    digest = hashlib.sha256(public + told).digest()
    name = base64.b32encode(digest).decode().rstrip("=").lower()
    return SigningRequest(f"node-csr-{name}", key, signed.public_bytes(serialization.Encoding.PEM))


def belong_together(certificate: bytes, key: bytes) -> bool:
    """Whether the first certificate of a PEM text is for this key."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(certificate)
        return found.public_key() == _private(key).public_key()
    except ValueError:
        return False


def _private(key: bytes) -> ec.EllipticCurvePrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        found = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("no private key that can be read") from error
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError("no private key on a curve")  # noqa: TRY004 - a matter of content
    return found
