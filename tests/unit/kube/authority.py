"""Certificates made on the spot."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    """Signs certificates, with plain names and without key identifiers, as many do."""

    def __init__(self, name: str = "test-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        self.certificate = _pem(builder.sign(self._key, hashes.SHA256()))

    def server(self, name: str = "") -> Pair:
        """For a server on loopback, or one of another name only."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name)] if name else []
        if not name:
            names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name or "server")])
        builder = _builder(subject, self._name, key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))

    def client(self, name: str, *, life: timedelta = timedelta(days=1)) -> Pair:
        """For a client of this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._name, key.public_key(), life=life)
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))

    def sign(self, request: bytes, *, start: datetime, life: timedelta) -> bytes:
        """The certificate that a signing request (PEM) asks for."""
        csr = x509.load_pem_x509_csr(request)
        assert csr.is_signature_valid
        builder = _builder(csr.subject, self._name, csr.public_key(), start=start, life=life)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), False)
        for extension in csr.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        return _pem(builder.sign(self._key, hashes.SHA256()))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: object,
    *,
    start: datetime | None = None,
    life: timedelta = timedelta(days=1),
) -> x509.CertificateBuilder:
    begin = start or datetime.now(UTC) - timedelta(minutes=5)
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + life)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
