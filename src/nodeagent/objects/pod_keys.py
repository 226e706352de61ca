"""Keys of pods, and requests to sign them. Blocking: it loads cryptography, which takes a while."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PodKey:
    """A new key.

    Attributes:
        key: private key, PKCS#8 in PEM.
        request: PKCS#10 request without a name in it, DER.
    """

    key: bytes = field(repr=False)
    request: bytes


def new_pod_key(kind: str) -> PodKey:
    """Make a key.

    Args:
        kind: ``RSA3072``, ``RSA4096``, ``ECDSAP256``, ``ECDSAP384``, ``ECDSAP521``, ``ED25519``.

    Raises:
        ValueError: there is no such kind.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    match kind:
        case "RSA3072" | "RSA4096":
            private = rsa.generate_private_key(65537, int(kind.removeprefix("RSA")))
        case "ECDSAP256":
            private = ec.generate_private_key(ec.SECP256R1())
        case "ECDSAP384":
            private = ec.generate_private_key(ec.SECP384R1())
        case "ECDSAP521":
            private = ec.generate_private_key(ec.SECP521R1())
        case "ED25519":
            private = ed25519.Ed25519PrivateKey.generate()
        case _:
            msg = f"unsupported key type: {kind}"
            raise ValueError(msg)
    digest = None if isinstance(private, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return PodKey(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        builder.sign(private, digest).public_bytes(serialization.Encoding.DER),
    )
