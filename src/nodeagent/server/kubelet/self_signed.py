"""A certificate for a node that was given none. Blocking: it loads cryptography."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nodeagent.clock import SystemClock

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import rsa

_BITS: Final = 2048
_BACKDATED: Final = dt.timedelta(hours=1)
_LIFETIME: Final = dt.timedelta(days=365)


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A certificate that nobody else has signed.

    Attributes:
        chain: the certificate and its own authority's, PEM.
        key: its key, PEM.
    """

    chain: bytes
    key: bytes = field(repr=False)


def self_signed(host: str, addresses: Sequence[str], now: dt.datetime | None = None) -> SelfSigned:
    """Make a certificate for a host name and addresses; the authority's key is thrown away.

    Args:
        host: name of the node.
        addresses: IP addresses.
        now: wall time.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID

    now = now or SystemClock().now()
    stamp = int(now.timestamp())
    own = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    issuer, subject = _name(f"{host}-ca@{stamp}"), _name(f"{host}@{stamp}")
    authority = (
        _builder(issuer, issuer, own.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(own, hashes.SHA256())
    )
    names = [x509.DNSName(host), *(x509.IPAddress(ipaddress.ip_address(a)) for a in addresses)]
    leaf = (
        _builder(subject, issuer, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(own, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return SelfSigned(
        leaf.public_bytes(pem) + authority.public_bytes(pem),
        key.private_bytes(
            pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        ),
    )


def _name(common: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    # The standard's bound on a common name.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[-64:])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey, now: dt.datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
