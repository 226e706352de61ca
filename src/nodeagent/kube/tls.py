"""How connections to the API server are secured. Blocking: it reads files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nodeagent.kube.access import AccessError
from nodeagent.kube.validity import Validity, validity_of

if TYPE_CHECKING:
    import ssl

_AUTHORITY: Final = "certificate-authority"
_CERTIFICATE: Final = "client-certificate"
_KEY: Final = "client-key"


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections are secured.

    Attributes:
        context: None for http.
        digest: of the files it was made of.
        validity: of the client certificate, None without one.
    """

    context: ssl.SSLContext | None
    digest: str
    validity: Validity | None


def read_tls(settings: Any) -> Tls:
    """What the settings mean that kubernetes-asyncio has understood.

    Raises:
        AccessError: a file is missing or malformed; the message names it.
    """
    import ssl

    if not settings.host.startswith("https://"):
        return Tls(None, "", None)
    digest = hashlib.sha256(repr(settings.verify_ssl).encode())
    authorities = _read(settings.ssl_ca_cert, _AUTHORITY, digest)
    if settings.ssl_ca_cert and not authorities:
        msg = f"{_shown(_AUTHORITY, settings.ssl_ca_cert)} is empty"
        raise AccessError(msg)
    try:
        # Without authorities of its own those of the system are trusted.
        context = ssl.create_default_context(cadata=authorities or None)
    except (ssl.SSLError, ValueError) as error:
        msg = f"{_shown(_AUTHORITY, settings.ssl_ca_cert)} has no certificate that can be read"
        raise AccessError(msg) from error
    # Certificates of clusters are often made without key identifiers, and Go does not ask for
    # them either.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    validity = None
    if settings.cert_file or settings.key_file:
        chain = _load_chain(context, settings.cert_file, settings.key_file, digest)
        validity = validity_of(chain.encode())
    return Tls(context, digest.hexdigest(), validity)


def _load_chain(
    context: ssl.SSLContext, certificate: str | None, key: str | None, digest: Any
) -> str:
    import ssl

    if not certificate or not key:
        have, missing = (_KEY, _CERTIFICATE) if key else (_CERTIFICATE, _KEY)
        msg = f"{have} is given without {missing}"
        raise AccessError(msg)
    chain = _read(certificate, _CERTIFICATE, digest)
    _read(key, _KEY, digest)
    shown, shown_key = _shown(_CERTIFICATE, certificate), _shown(_KEY, key)
    try:
        # An empty password: a key that has one must not make the process ask on its terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        msg = f"{shown} does not belong to {shown_key}"
        if error.reason != "KEY_VALUES_MISMATCH":
            reason = error.reason or "unknown format"
            msg = f"{shown} or {shown_key} is no PEM file that can be used ({reason})"
        raise AccessError(msg) from error
    except OSError as error:
        msg = f"{shown} or {shown_key} cannot be used: {error.strerror or error}"
        raise AccessError(msg) from error
    return chain


def _read(name: str | None, what: str, digest: Any) -> str:
    if not name:
        return ""
    try:
        content = Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no file can have this name"
        msg = f"{_shown(what, name)} cannot be read: {reason}"
        raise AccessError(msg) from error
    digest.update(what.encode() + content)
    return content.decode("ascii", errors="replace")


def _shown(what: str, name: str) -> str:
    return f"{what}-data" if name.startswith("/proc/self/fd/") else f"{what} {name}"
