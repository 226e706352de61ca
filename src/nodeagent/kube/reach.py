"""Whether the API server answers, and what it refuses, as the requests of an agent tell it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

import anyio

from nodeagent.kube.client import KubeClient, KubeClients, PatchKind, Query
from nodeagent.kube.errors import ApiError, UndecodableError, UnreachableError

T = TypeVar("T")

REMEMBERED: Final = 300.0
"""Seconds after which a refusal that was not repeated is forgotten."""
FIRST_GAP: Final = 5.0
"""Seconds between two returns of the server that are told; then twice as long each time."""
LONGEST_GAP: Final = 60.0
QUIET: Final = 300.0
"""Seconds after which it is 5 seconds again."""
_MOST_REFUSALS: Final = 32
_OF_GATEWAYS: Final = (502, 503, 504)
"""What a balancer or a proxy answers that finds no server behind itself."""
_SEGMENTS_OF_A_NAMESPACE: Final = 2


class Reach:
    """What is known of the API server. Times are loop time.

    Attributes:
        answered_at: when it answered last; None before it ever did.
        away_since: since when requests get no answer; None while it answers.
        cause: why the last request got none.
        on_return: each is called when the server answers again; rarely while it comes and goes,
            because whoever is called waits for no back-off.
    """

    def __init__(self) -> None:
        self.answered_at: float | None = None
        self.away_since: float | None = None
        self.cause = ""
        self.on_return: list[Callable[[], None]] = []
        self._gap = FIRST_GAP
        self._told_at = -math.inf
        self._refusals: dict[tuple[str, str], tuple[str, float]] = {}

    @property
    def refusals(self) -> Mapping[tuple[str, str], str]:
        """What it has refused (401, 403) lately: its words, by verb and kind of object."""
        oldest = anyio.current_time() - REMEMBERED
        return {key: text for key, (text, at) in self._refusals.items() if at >= oldest}

    @contextmanager
    def asking(self, verb: str, path: str) -> Iterator[None]:
        """Note how a request ends."""
        key = (verb, resource_of(path))
        try:
            yield
        except UnreachableError as error:
            self._lost(str(error) or "no answer")
            raise
        except UndecodableError as error:
            # Something answers, but no API server: a proxy's error page, half an object.
            self._lost(str(error) or "the answer is not an API server's")
            raise
        except ApiError as error:
            if error.status in _OF_GATEWAYS and not error.reason:
                # As above: an API server says what it means in a Status object.
                self._lost(str(error))
                raise
            self.answered()
            if error.unauthorized or error.forbidden:
                if key in self._refusals or len(self._refusals) < _MOST_REFUSALS:
                    self._refusals[key] = str(error), anyio.current_time()
            else:
                self._refusals.pop(key, None)
            raise
        self.answered()
        self._refusals.pop(key, None)

    def answered(self) -> None:
        """The server has just said something."""
        self.answered_at = anyio.current_time()
        if self.away_since is None:
            return
        self.away_since = None
        self.cause = ""
        self._tell_return(self.answered_at)

    def _tell_return(self, now: float) -> None:
        """Have everybody ask again; not each time when a server answers well and badly in turn."""
        since = now - self._told_at
        if since < self._gap:
            return
        self._gap = min(2 * self._gap, LONGEST_GAP) if since < QUIET else FIRST_GAP
        self._told_at = now
        for callback in self.on_return:
            callback()

    def _lost(self, cause: str) -> None:
        if self.away_since is None:
            self.away_since = anyio.current_time()
        self.cause = cause


def resource_of(path: str) -> str:
    """The kind of object that a path leads to, ``pods`` or ``pods/status``."""
    segments = path.partition("?")[0].strip("/").split("/")
    # /api/v1/... or /apis/<group>/<version>/...
    rest = segments[2 if segments[0] == "api" else 3 :]
    if len(rest) > _SEGMENTS_OF_A_NAMESPACE and rest[0] == "namespaces":
        rest = rest[_SEGMENTS_OF_A_NAMESPACE:]
    return "/".join(rest[::2]) or path


class ObservedClient:
    """A client whose requests tell whether the server can be reached.

    Args:
        client: makes the requests.
        reach: is told how they end.
    """

    def __init__(self, client: KubeClient, reach: Reach) -> None:
        self._client = client
        self._reach = reach

    async def get(
        self,
        path: str,
        wanted: type[T],
        *,
        query: Query | None = None,
        timeout: float | None = None,
    ) -> T:
        """Read an object or a list."""
        with self._reach.asking("get", path):
            return await self._client.get(path, wanted, query=query, timeout=timeout)

    async def get_bytes(
        self, path: str, *, query: Query | None = None, timeout: float | None = None
    ) -> bytes:
        """Read an object or a list as the JSON that came."""
        with self._reach.asking("get", path):
            return await self._client.get_bytes(path, query=query, timeout=timeout)

    async def post(
        self,
        path: str,
        body: object,
        wanted: type[T],
        *,
        query: Query | None = None,
        timeout: float | None = None,
    ) -> T:
        """Create an object in a collection, or use a subresource."""
        with self._reach.asking("create", path):
            return await self._client.post(path, body, wanted, query=query, timeout=timeout)

    async def put(
        self, path: str, body: object, wanted: type[T], *, timeout: float | None = None
    ) -> T:
        """Replace an object."""
        with self._reach.asking("update", path):
            return await self._client.put(path, body, wanted, timeout=timeout)

    async def patch(
        self,
        path: str,
        patch: Mapping[str, Any] | list[Any],
        wanted: type[T],
        *,
        kind: PatchKind = PatchKind.STRATEGIC,
        timeout: float | None = None,
    ) -> T:
        """Change parts of an object."""
        with self._reach.asking("patch", path):
            return await self._client.patch(path, patch, wanted, kind=kind, timeout=timeout)

    async def delete(
        self,
        path: str,
        *,
        grace_seconds: int | None = None,
        uid: str = "",
        timeout: float | None = None,
    ) -> None:
        """Delete an object."""
        with self._reach.asking("delete", path):
            await self._client.delete(path, grace_seconds=grace_seconds, uid=uid, timeout=timeout)

    def watch(self, path: str, query: Query) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch; each line is a sign of life."""
        return self._watch(path, query)

    @asynccontextmanager
    async def _watch(self, path: str, query: Query) -> AsyncIterator[AsyncIterator[bytes]]:
        with self._reach.asking("watch", path):
            async with self._client.watch(path, query) as lines:
                self._reach.answered()
                yield _Heard(lines, self._reach)

    def drop_connections(self) -> None:
        """Close all connections: one of them seems dead."""
        self._client.drop_connections()


class _Heard:
    """The lines of a watch, each of them noted. No generator: nobody would close it."""

    def __init__(self, lines: AsyncIterator[bytes], reach: Reach) -> None:
        self._lines = lines
        self._reach = reach

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        line = await anext(self._lines)
        self._reach.answered()
        return line


def observed(clients: KubeClients, reach: Reach) -> KubeClients:
    """The same clients, telling ``reach`` how their requests end."""
    return KubeClients(
        main=ObservedClient(clients.main, reach),
        events=ObservedClient(clients.events, reach),
        heartbeat=ObservedClient(clients.heartbeat, reach),
    )
