"""The certificate of the API port, and who signs those of clients. Functions here block.

docs/behaviour/server.md, "Certificates".
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from nodeagent.config.server_options import CIPHER_SUITES, ServerOptions
from nodeagent.kube.validity import validity_of
from nodeagent.state_file import write_atomically

_VERSIONS: Final = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_NAME: Final = "kubelet"


class ServingError(Exception):
    """A certificate, key or authority cannot be used; names the file and says why."""


@dataclass(frozen=True, slots=True)
class ServingFiles:
    """The files that the API port needs.

    Attributes:
        certificate: with its chain.
        key: its key.
        client_ca: who signs the certificates of clients; None when none count.
        awaited: file with certificate and key that the cluster is asked for; it counts before
            the others once it is there. None when it is not asked.
    """

    certificate: Path
    key: Path
    client_ca: Path | None
    awaited: Path | None = None

    @property
    def pair(self) -> tuple[Path, Path]:
        """Certificate and key that count now."""
        if self.awaited is not None and self.awaited.exists():
            return self.awaited, self.awaited
        return self.certificate, self.key

    @property
    def missing(self) -> bool:
        """Whether there is no certificate yet, as one is waited for."""
        return self.awaited is not None and not self.pair[0].exists()

    @property
    def all(self) -> tuple[Path, ...]:
        """All of them."""
        files = tuple(dict.fromkeys(self.pair))
        return (*files, self.client_ca) if self.client_ca is not None else files

    def ends(self) -> datetime | None:
        """When the certificate ends; None when that cannot be said."""
        with suppress(OSError):
            if (validity := validity_of(self.pair[0].read_bytes())) is not None:
                return validity.ends
        return None

    def signature(self) -> tuple[object, ...]:
        """Something that changes when one of the files does."""
        return tuple(map(_stamp, self.all))


def _stamp(file: Path) -> object:
    try:
        facts = os.stat(file)  # noqa: PTH116 - follows links, as the reading does
    except OSError as error:
        return error.errno
    return facts.st_mtime_ns, facts.st_size, facts.st_ino, facts.st_dev


def serving_files(
    options: ServerOptions,
    cert_dir: Path,
    host: str,
    addresses: Sequence[str],
    awaited: Path | None = None,
) -> ServingFiles:
    """The files in force; without configured ones a certificate is made, once.

    Args:
        options: settings.
        cert_dir: where a certificate that is made here lies.
        host: name of this node.
        addresses: its IP addresses.
        awaited: where the certificate will lie that the cluster is asked for, if it is.

    Raises:
        ServingError: none could be made.
    """
    authority = str(options.client_ca_file)
    client_ca = Path(authority).absolute() if authority else None
    if str(options.tls_cert_file):
        certificate, key = Path(options.tls_cert_file), Path(options.tls_private_key_file)
        return ServingFiles(certificate.absolute(), key.absolute(), client_ca, awaited)
    if awaited is not None:
        return ServingFiles(awaited, awaited, client_ca, awaited)
    certificate, key = cert_dir / f"{_NAME}.crt", cert_dir / f"{_NAME}.key"
    if not (_readable(certificate) and _readable(key)):
        _make(certificate, key, host, addresses)
    return ServingFiles(certificate, key, client_ca)


def _readable(file: Path) -> bool:
    return file.is_file() and os.access(file, os.R_OK)


def _make(certificate: Path, key: Path, host: str, addresses: Sequence[str]) -> None:
    from nodeagent.server.kubelet.self_signed import self_signed

    made = self_signed(host, addresses)
    try:
        certificate.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(key, made.key)
        write_atomically(certificate, made.chain)
    except OSError as error:
        msg = (
            f"the certificate of the API port cannot be kept in {certificate.parent}: "
            f"{error.strerror}; choose another directory with --cert-dir"
        )
        raise ServingError(msg) from error


def own_addresses(given: Sequence[str]) -> list[str]:
    """The addresses that a certificate made here is for."""
    found = [address for address in given if address not in ("", "0.0.0.0", "::")]  # noqa: S104
    return list(dict.fromkeys([*found, "127.0.0.1", "::1"]))


def server_context(files: ServingFiles, options: ServerOptions) -> ssl.SSLContext:
    """How connections are secured.

    Raises:
        ServingError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[options.tls_min_version or "VersionTLS12"]
    if names := [CIPHER_SUITES[n] for n in options.tls_cipher_suites if n in CIPHER_SUITES]:
        try:
            context.set_ciphers(":".join(names))
        except ssl.SSLError as error:
            msg = "this OpenSSL has none of the cipher suites of --tls-cipher-suites"
            raise ServingError(msg) from error
    # Without a certificate no handshake succeeds, which is right as long as one is waited for.
    if not files.missing:
        _load_pair(context, *files.pair)
    context.set_alpn_protocols(["http/1.1"])
    if files.client_ca is not None:
        _ask_clients(context, files.client_ca)
    return context


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for file in dict.fromkeys((certificate, key)):
        _check_readable(file)
    try:
        # An empty password: a key that has one must not make the process ask on its terminal.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", "") or "they cannot be read"
        msg = f"{certificate} and {key} are no certificate with its key ({reason})"
        if certificate == key:
            msg = f"{certificate} has no certificate with its key ({reason})"
        msg += "; give --tls-cert-file and --tls-private-key-file that belong together"
        raise ServingError(msg) from error


def _check_readable(file: Path) -> None:
    try:
        file.read_bytes()
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror}"
        raise ServingError(msg) from error


def _ask_clients(context: ssl.SSLContext, authority: Path) -> None:
    _check_readable(authority)
    try:
        context.load_verify_locations(cadata=authority.read_text("ascii", "replace"))
    except (ssl.SSLError, OSError, ValueError) as error:
        msg = f"{authority} has no certificate that can be read"
        raise ServingError(msg) from error
    context.verify_mode = ssl.CERT_OPTIONAL
    # Every certificate of the file is trusted, whoever signed it, and certificates of clusters
    # are often made without key identifiers.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
