"""What an API client can do. Everything that talks to the API server asks for this protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Query: TypeAlias = Mapping[str, str]
"""Parameters of a request."""


class PatchKind(Enum):
    """How a patch is meant; the value is its content type."""

    STRATEGIC = "application/strategic-merge-patch+json"
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"


class KubeClient(Protocol):
    """Requests to one API server.

    Paths are absolute (``paths`` builds them). Objects go out as API types or plain values and
    come back decoded; ``timeout`` is in seconds of loop time, None for the client's own.

    Every method raises:
        ApiError: the server refused.
        UnreachableError: no answer came in time.
        UndecodableError: the answer is not the wanted type.
    """

    async def get(
        self,
        path: str,
        wanted: type[T],
        *,
        query: Query | None = None,
        timeout: float | None = None,
    ) -> T:
        """Read an object or a list."""
        ...

    async def get_bytes(
        self, path: str, *, query: Query | None = None, timeout: float | None = None
    ) -> bytes:
        """Read an object or a list as the JSON that came."""
        ...

    async def post(
        self,
        path: str,
        body: object,
        wanted: type[T],
        *,
        query: Query | None = None,
        timeout: float | None = None,
    ) -> T:
        """Create an object in a collection, or use a subresource such as ``token``."""
        ...

    async def put(
        self, path: str, body: object, wanted: type[T], *, timeout: float | None = None
    ) -> T:
        """Replace an object."""
        ...

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
        ...

    async def delete(
        self,
        path: str,
        *,
        grace_seconds: int | None = None,
        uid: str = "",
        timeout: float | None = None,
    ) -> None:
        """Delete an object; with ``uid`` only if it is still that one (else ``conflict``)."""
        ...

    def watch(self, path: str, query: Query) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch; the iterator gives one line (one event) at a time, without its end.

        It ends when the server ends the stream, and raises UnreachableError when it breaks or a
        line passes the cap. Who reads sets the deadlines.
        """
        ...

    def drop_connections(self) -> None:
        """Close all connections: one of them seems dead. New requests make new ones."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeClients:
    """The clients of one agent; they differ in how many requests they may make.

    Attributes:
        main: everything else.
        events: events only, so that many of them delay nothing.
        heartbeat: leases and node status; never throttled, with a short timeout.
    """

    main: KubeClient
    events: KubeClient
    heartbeat: KubeClient
