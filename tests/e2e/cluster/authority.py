"""The cluster's certificate authority, played by the tests."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_USAGES: Final = {
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
}
#: Clocks differ: what is signed now was valid a little earlier, too.
_BACKDATE: Final = dt.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """A CA with its files in a directory.

    Args:
        directory: an existing directory; gets ``ca.crt`` and what is issued.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._issued = 0
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = _name("nodeagent-e2e-ca", ())
        self._cert = (
            _builder(name, name, self._key.public_key(), dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = directory / "ca.crt"
        self.file.write_bytes(self._cert.public_bytes(serialization.Encoding.PEM))

    @property
    def pem(self) -> bytes:
        """The CA's certificate."""
        return self.file.read_bytes()

    def issue(
        self,
        file: str,
        common_name: str,
        organizations: Sequence[str] = (),
        *,
        hosts: Sequence[str] = (),
        lifetime: dt.timedelta = dt.timedelta(days=1),
    ) -> Identity:
        """Make a key and a certificate for client and server use, in files of their own.

        ``file`` is the beginning of the files' names.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(
            _name(common_name, organizations), self._cert.subject, key.public_key(), lifetime
        ).add_extension(x509.ExtendedKeyUsage(list(_USAGES.values())), critical=False)
        if hosts:
            names = [_general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        self._issued += 1
        stem = f"{file}-{self._issued}"
        made = Identity(self._directory / f"{stem}.crt", self._directory / f"{stem}.key")
        signed = builder.sign(self._key, hashes.SHA256())
        made.cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        _write_key(made.key, key)
        return made

    def sign(self, request_pem: bytes, usages: Sequence[str], lifetime: dt.timedelta) -> bytes:
        """The certificate for a CSR as it is, PEM; it says what the request says."""
        request = x509.load_pem_x509_csr(request_pem)
        if not request.is_signature_valid:
            raise ValueError("the request is not signed by its own key")
        known = [_USAGES[usage] for usage in usages if usage in _USAGES]
        builder = _builder(
            request.subject, self._cert.subject, request.public_key(), lifetime
        ).add_extension(x509.ExtendedKeyUsage(known), critical=False)
        for extension in request.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


def service_account_keys(directory: Path) -> Path:
    """Make the key with which tokens are signed; returns its file (it verifies them, too)."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    file = directory / "service-accounts.key"
    _write_key(file, key)
    return file


def _builder(
    subject: x509.Name, issuer: x509.Name, key: CertificatePublicKeyTypes, lifetime: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + lifetime)
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
