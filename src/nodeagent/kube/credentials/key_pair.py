"""Keys, and requests to sign them. Blocking: it loads cryptography, which takes a while."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

ORGANIZATION: Final = "system:nodes"


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a certificate of a node is for.

    Attributes:
        signer: who is asked to sign it.
        usages: what it may be used for.
        prefix: of the names of requests.
    """

    signer: str
    usages: tuple[str, ...]
    prefix: str


CLIENT: Final = Purpose(
    "kubernetes.io/kube-apiserver-client-kubelet",
    ("digital signature", "client auth"),
    "node-csr-",
)
"""To prove to the API server who the node is."""
SERVING: Final = Purpose(
    "kubernetes.io/kubelet-serving", ("digital signature", "server auth"), "csr-"
)
"""To prove it to those who ask on the node's own port."""


@dataclass(frozen=True, slots=True)
class SubjectNames:
    """Names and addresses under which a node is reached.

    Attributes:
        dns: host names.
        ips: IP addresses.
    """

    dns: frozenset[str] = frozenset()
    ips: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.dns or self.ips)

    def covers(self, other: SubjectNames) -> bool:
        """Whether all of the other's are among these."""
        return other.dns <= self.dns and other.ips <= self.ips


NAMELESS: Final = SubjectNames()


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """A request for a certificate of a node.

    Attributes:
        name: of the object; the same for the same key, so that it is found again.
        key: private key, PEM.
        request: PKCS#10, PEM.
        purpose: what the certificate is for.
    """

    name: str
    key: bytes = field(repr=False)
    request: bytes
    purpose: Purpose = CLIENT


def new_key() -> bytes:
    """A private key on the curve P-256, PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def signing_request(
    key: bytes, node_name: str, purpose: Purpose = CLIENT, names: SubjectNames = NAMELESS
) -> SigningRequest:
    """The request for a certificate of a node.

    Args:
        key: PEM.
        node_name: whom it is for.
        purpose: what it is for.
        names: where the node is reached.

    Raises:
        ValueError: ``key`` is none on a curve, or a name cannot stand in a certificate.
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
    if names:
        alternative = x509.SubjectAlternativeName(_general_names(names))
        request = request.add_extension(alternative, critical=False)
    signed = request.sign(private, hashes.SHA256())
    public = private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    wanted = [purpose.signer, *purpose.usages, subject.rfc4514_string()]
    told = "\n".join([*wanted, *sorted(names.dns), *sorted(names.ips)]).encode()
    digest = hashlib.sha256(public + told).digest()
    name = base64.b32encode(digest).decode().rstrip("=").lower()
    pem = signed.public_bytes(serialization.Encoding.PEM)
    return SigningRequest(f"{purpose.prefix}{name}", key, pem, purpose)


def _general_names(names: SubjectNames) -> list[x509.GeneralName]:
    from cryptography import x509

    dns: list[x509.GeneralName] = [x509.DNSName(name) for name in sorted(names.dns)]
    return [*dns, *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in sorted(names.ips))]


def names_of(certificate: bytes) -> SubjectNames:
    """Where a certificate (PEM) says that its owner is reached; none when it cannot be read."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(certificate)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return NAMELESS
    ips = names.get_values_for_type(x509.IPAddress)
    return SubjectNames(
        frozenset(names.get_values_for_type(x509.DNSName)), frozenset(map(str, ips))
    )


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
