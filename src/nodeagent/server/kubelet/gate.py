"""Lets requests in, or not: who asks, and whether they may.

docs/behaviour/server.md, "Who asks" and "Rights".
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from nodeagent.clock import Clock
from nodeagent.log import Log
from nodeagent.server.app import Response
from nodeagent.server.kubelet.identity import ANONYMOUS, User, bearer_token, certificate_user
from nodeagent.server.kubelet.permissions import forbidden, subresources, undecided, verb
from nodeagent.server.kubelet.reviews import BusyError, ReviewError

log = Log("server")

_BUSY: Final = Response(429, b"Too many requests\n", headers={"Retry-After": "1"})


class Tokens(Protocol):
    """Knows whose a bearer token is."""

    async def user(self, token: str, peer: str) -> User | None:
        """Its owner, shown by the client at ``peer``; None for nobody. Raises ReviewError."""
        ...


class Rights(Protocol):
    """Knows who may do what."""

    async def allowed(self, user: User, verb: str, subresource: str) -> bool:
        """Whether they may. Raises ReviewError."""
        ...


class EverythingAllowed:
    """Rights without limits: the mode AlwaysAllow."""

    async def allowed(self, user: User, verb: str, subresource: str) -> bool:
        """Yes."""
        return True


def has_ended(clock: Clock, certificate: Mapping[str, Any]) -> bool:
    """Whether a client certificate, as ssl describes it, is not valid any more."""
    until = certificate.get("notAfter")
    return until is not None and ssl.cert_time_to_seconds(until) <= clock.now().timestamp()


class Gate:
    """Decides about a request before anything of it is done.

    Args:
        tokens: who knows bearer tokens; None when they do not count.
        rights: who knows rights.
        anonymous: whether those who bring nothing are let in as ``system:anonymous``.
        expired: whether a client certificate has ended since the connection began.
    """

    def __init__(
        self,
        tokens: Tokens | None,
        rights: Rights,
        *,
        anonymous: bool,
        expired: Callable[[Mapping[str, Any]], bool],
    ) -> None:
        self._tokens = tokens
        self._rights = rights
        self._anonymous = anonymous
        self._expired = expired

    async def refusal(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        certificate: Mapping[str, Any] | None,
        peer: str = "",
    ) -> Response | None:
        """The answer for one who is not let in; None for one who is.

        Args:
            method: of HTTP.
            path: decoded.
            headers: by name in lower case.
            certificate: of the client, verified; None without one.
            peer: the client's address.
        """
        try:
            user = await self._who(headers, certificate, peer)
        except BusyError as error:
            log.debug("too_many_tokens", cause=str(error))
            return _BUSY
        if user is None:
            return Response(401, b"Unauthorized")
        wanted, tried = verb(method), subresources(path)
        for subresource in tried:
            try:
                if await self._rights.allowed(user, wanted, subresource):
                    return None
            except BusyError:
                return _BUSY
            except ReviewError:
                return Response(500, undecided(user.name, wanted, subresource).encode())
        log.debug("forbidden", user=user.name, verb=wanted, path=path)
        return Response(403, forbidden(user.name, wanted, tried).encode())

    async def _who(
        self, headers: Mapping[str, str], certificate: Mapping[str, Any] | None, peer: str
    ) -> User | None:
        """Who asks; None for nobody. Raises BusyError."""
        failed = False
        if certificate:
            owner = certificate_user(certificate)
            if owner is not None and not self._expired(certificate):
                return owner.authenticated()
            failed = owner is not None
        token = bearer_token(headers) if self._tokens is not None else None
        if self._tokens is not None and token is not None:
            try:
                owner = await self._tokens.user(token, peer)
            except BusyError:
                raise
            except ReviewError:
                return None
            if owner is not None:
                return owner.authenticated()
            failed = True
        return ANONYMOUS if self._anonymous and not failed else None
