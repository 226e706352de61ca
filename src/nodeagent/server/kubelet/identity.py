"""Who makes a request, by what the request brings along. No I/O.

docs/behaviour/server.md, "Who asks".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

AUTHENTICATED: Final = "system:authenticated"
_SOCKET_BEARER: Final = "base64url.bearer.authorization.k8s.io."


@dataclass(frozen=True, slots=True)
class User:
    """Somebody, as the API server knows them.

    Attributes:
        name: their name.
        uid: "" when it is not known.
        groups: the groups they belong to.
        extra: what else the API server said of them.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def authenticated(self) -> User:
        """The same in the group of all who have proved who they are."""
        if AUTHENTICATED in self.groups:
            return self
        return User(self.name, self.uid, (*self.groups, AUTHENTICATED), self.extra)


ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))


def certificate_user(certificate: Mapping[str, Any] | None) -> User | None:
    """The owner of a client certificate that was verified; None when it names nobody.

    Args:
        certificate: as :meth:`ssl.SSLSocket.getpeercert` gives it.
    """
    names: dict[str, list[str]] = {}
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            names.setdefault(key, []).append(value)
    common = names.get("commonName")
    if not common:
        return None
    return User(common[0], groups=tuple(names.get("organizationName", ())))


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """The bearer token of a request; None without one.

    Args:
        headers: by name in lower case.
    """
    scheme, _, rest = headers.get("authorization", "").strip().partition(" ")
    token = rest.partition(" ")[0]
    if scheme.lower() == "bearer" and token:
        return token
    if headers.get("upgrade", "").lower() == "websocket":
        return _socket_token(offered_protocols(headers))
    return None


def offered_protocols(headers: Mapping[str, str]) -> list[str]:
    """The WebSocket subprotocols that a client offers."""
    offered = headers.get("sec-websocket-protocol", "").split(",")
    return [name for name in map(str.strip, offered) if name]


def without_token(protocols: Sequence[str]) -> list[str]:
    """The subprotocols without the one that is a token."""
    return [name for name in protocols if not name.startswith(_SOCKET_BEARER)]


def _socket_token(protocols: Sequence[str]) -> str | None:
    tokens = [name for name in protocols if name.startswith(_SOCKET_BEARER)]
    if len(tokens) != 1 or len(protocols) == 1:
        return None
    encoded = tokens[0].removeprefix(_SOCKET_BEARER)
    try:
        padded = encoded + "=" * (-len(encoded) % 4)
        return base64.urlsafe_b64decode(padded).decode() or None
    except (binascii.Error, ValueError):
        return None
