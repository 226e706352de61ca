"""Asks the API server who somebody is and what they may do, and remembers the answers.

docs/behaviour/server.md, "Who asks" and "Rights".
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Generic, TypeVar

import anyio
import msgspec

from nodeagent.aio import jitter
from nodeagent.kube import KubeClient, KubeError, paths
from nodeagent.kube.errors import is_away
from nodeagent.log import Log
from nodeagent.server.kubelet.identity import User
from nodeagent.server.kubelet.limits import (
    LONGEST_TOKEN,
    MOST_OPEN,
    PeerCounts,
    PeerLimits,
    client_of,
)

V = TypeVar("V")

log = Log("server")

_TRIES: Final = 5
_FIRST_WAIT: Final = 0.5
_GROWTH: Final = 1.5
_TIMEOUT: Final = 10.0
_MOST: Final = 4096


class ReviewError(Exception):
    """The API server gave no answer."""


class BusyError(ReviewError):
    """It was not asked, because too much is asked already."""


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()
    error: str = ""


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class _Flight:
    """A question that is being asked; others with the same one wait for its answer."""

    def __init__(self) -> None:
        self.landed = anyio.Event()
        self.error: ReviewError | None = None


class AnswerCache(Generic[V]):
    """Answers that are good for a while; a question is asked once at a time.

    Args:
        ttl: seconds that an answer is good for, by the answer.
    """

    def __init__(self, ttl: Callable[[V], float]) -> None:
        self._ttl = ttl
        self._answers: dict[Hashable, tuple[V, float]] = {}
        self._flights: dict[Hashable, _Flight] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer to the question ``key``.

        Raises:
            ReviewError: nobody answered; that is not remembered.
            BusyError: too many questions are open.
        """
        while True:
            known = self._answers.get(key)
            if known is not None and known[1] > anyio.current_time():
                return known[0]
            flight = self._flights.get(key)
            if flight is None:
                return await self._ask(key, ask)
            await flight.landed.wait()
            if flight.error is not None:
                raise type(flight.error)(str(flight.error))

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        if len(self._flights) >= MOST_OPEN:
            raise BusyError("too many questions to the API server are open")
        flight = self._flights[key] = _Flight()
        try:
            answer = await ask()
        except ReviewError as error:
            flight.error = error
            raise
        finally:
            del self._flights[key]
            flight.landed.set()
        ttl = self._ttl(answer)
        if ttl > 0:
            self._make_room()
            self._answers[key] = answer, anyio.current_time() + ttl
        return answer

    def _make_room(self) -> None:
        if len(self._answers) < _MOST:
            return
        now = anyio.current_time()
        self._answers = {key: known for key, known in self._answers.items() if known[1] > now}
        while len(self._answers) >= _MOST:
            del self._answers[next(iter(self._answers))]


class TokenReviews:
    """Whose a bearer token is.

    Args:
        client: asks the API server.
        ttl: seconds that an answer is good for.
        limits: how often one client's tokens are asked about; None for the usual.
    """

    def __init__(self, client: KubeClient, ttl: float, limits: PeerLimits | None = None) -> None:
        self._client = client
        self.ttl = ttl
        self._cache: AnswerCache[User | None] = AnswerCache(lambda _user: self.ttl)
        self._limits = limits or PeerLimits()
        # A client whose questions hang leaves room for others.
        self._open = PeerCounts(MOST_OPEN // 2)
        self._salt = secrets.token_bytes(16)

    async def user(self, token: str, peer: str) -> User | None:
        """The owner of a token; None when it is nobody's.

        Args:
            token: as it came.
            peer: the client's address.

        Raises:
            ReviewError: the API server did not answer.
            BusyError: it was not asked, because this client, or all of them, ask too much.
        """
        # Such a one is in no header that an API server would take itself.
        if len(token) > LONGEST_TOKEN or not token.isprintable():
            return None
        # Tokens themselves are not kept in memory.
        key = hashlib.sha256(self._salt + token.encode()).digest()
        return await self._cache.get(key, lambda: self._ask(token, peer))

    async def _ask(self, token: str, peer: str) -> User | None:
        client = client_of(peer)
        if not self._open.enter(client):
            msg = f"too many questions for {peer} are open"
            raise BusyError(msg)
        try:
            if not self._limits.take(client):
                msg = f"{peer} has shown too many tokens that are not known"
                raise BusyError(msg)
            return await self._review(token)
        finally:
            self._open.leave(client)

    async def _review(self, token: str) -> User | None:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        answer = await _review(self._client, paths.TOKEN_REVIEWS, body, _TokenReview)
        found = answer.status
        if not found.authenticated or not found.user.username:
            return None
        info = found.user
        return User(info.username, info.uid, info.groups, info.extra)


class AccessReviews:
    """Whether somebody may do something with a subresource of this node.

    Args:
        client: asks the API server.
        node: name of this node.
        yes: seconds that a yes is good for.
        no: seconds that a no is good for.
    """

    def __init__(self, client: KubeClient, node: str, *, yes: float, no: float) -> None:
        self._client = client
        self._node = node
        self.yes, self.no = yes, no
        self._cache: AnswerCache[bool] = AnswerCache(lambda ok: self.yes if ok else self.no)

    async def allowed(self, user: User, verb: str, subresource: str) -> bool:
        """Whether they may.

        Raises:
            ReviewError: the API server did not answer.
        """
        extra = tuple(sorted((name, tuple(values)) for name, values in user.extra.items()))
        key = (user.name, user.uid, user.groups, extra, verb, subresource)
        return await self._cache.get(key, lambda: self._ask(user, verb, subresource))

    async def _ask(self, user: User, verb: str, subresource: str) -> bool:
        attributes = {
            "verb": verb,
            "version": "v1",
            "resource": "nodes",
            "subresource": subresource,
            "name": self._node,
        }
        spec: dict[str, Any] = {
            "resourceAttributes": attributes,
            "user": user.name,
            "groups": list(user.groups),
        }
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {name: list(values) for name, values in user.extra.items()}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        answer = await _review(self._client, paths.ACCESS_REVIEWS, body, _AccessReview)
        return answer.status.allowed and not answer.status.denied


async def _review(client: KubeClient, path: str, body: object, wanted: type[V]) -> V:
    """Ask, a few times if the server is away or busy."""
    wait = _FIRST_WAIT
    for last in range(_TRIES - 1, -1, -1):
        try:
            return await client.post(path, body, wanted, timeout=_TIMEOUT)
        except KubeError as error:
            if not last or not is_away(error):
                log.warning("not_reviewed", path=path, cause=str(error))
                raise ReviewError(str(error)) from error
        await anyio.sleep(jitter(wait))
        wait *= _GROWTH
    raise AssertionError  # the last try has returned or raised
