"""How the client makes its calls: deadline, metrics, and errors that name the endpoint."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, Self, TypeVar

import anyio

from nodeagent.cri.methods import DEFAULT_TIMEOUT
from nodeagent.rpc import DeadlineExceeded, RpcError, Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from nodeagent.cri.methods import Method
    from nodeagent.cri.metrics import RuntimeMetrics
    from nodeagent.rpc import Message, Replies, RpcChannel

Reply = TypeVar("Reply", bound="Message")
Result = TypeVar("Result")

METHODS_OWN: Final = -1.0
"""As a timeout: the deadline of the method."""

_STARTING: Final = "server is not initialized yet"
"""How containerd before 1.7 says, with code UNKNOWN, that it answers but does not serve yet."""


class Raw(bytes):
    """A message that is left encoded."""

    __slots__ = ()

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Keep the bytes."""
        return cls(data)


class Caller:
    """Calls of one gRPC service.

    Args:
        channel: the connection.
        service: the full name of the service, ``runtime.v1.RuntimeService``.
        metrics: where the calls are counted.
        request_timeout: seconds that an ordinary call may take; longer ones scale with it.
    """

    def __init__(
        self,
        channel: RpcChannel,
        service: str,
        metrics: RuntimeMetrics,
        request_timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        self.metrics = metrics
        self.request_timeout = request_timeout
        self.endpoint = f"unix://{channel.path}"
        self._channel = channel
        self._service = service

    async def call(self, method: Method, request: Message, reply: type[Reply]) -> Reply:
        """Make a call within the method's own deadline."""
        return await self.call_within(self.limit(method), method, request, reply)

    def limit(self, method: Method) -> float | None:
        """Seconds that a call of this method may take; None for no deadline of its own."""
        if method.timeout is None:
            return None
        return method.timeout * self.request_timeout / DEFAULT_TIMEOUT

    async def call_within(
        self, timeout: float | None, method: Method, request: Message, reply: type[Reply]
    ) -> Reply:
        """Make a call within ``timeout`` seconds."""
        return await self.ask(method, request, reply, _as_is, timeout)

    async def ask(
        self,
        method: Method,
        request: Message,
        reply: type[Reply],
        then: Callable[[Reply], Result],
        timeout: float | None = METHODS_OWN,
    ) -> Result:
        """Make a call and put its reply through ``then``, whose errors count as the call's."""
        limit = self.limit(method) if timeout == METHODS_OWN else timeout
        with self._counted(method):
            return then(
                await self._channel.unary(self._path(method), request, reply, timeout=limit)
            )

    async def fetch(
        self, method: Method, request: Message, then: Callable[[bytes], Result]
    ) -> Result:
        """Make a call and put the reply, undecoded, through ``then``."""
        with self._counted(method):
            path = self._path(method)
            return then(await self._channel.unary_bytes(path, request, timeout=self.limit(method)))

    async def collect(
        self, method: Method, request: Message, then: Callable[[bytes], Result]
    ) -> Result:
        """Read a streamed list whole within the method's deadline, and put it through ``then``.

        Portions hold the same repeated field as the plain list, so their bytes put together
        are the list's.
        """
        parts: list[bytes] = []
        own = self.limit(method)
        limit = math.inf if own is None else own
        with self._counted(method):
            with anyio.move_on_after(limit) as scope:
                async with self._channel.server_stream(
                    self._path(method), request, Raw
                ) as portions:
                    parts = [portion async for portion in portions]
            if scope.cancelled_caught:
                msg = f"the list is not complete after {limit:g} s"
                raise DeadlineExceeded(msg)
            return then(b"".join(parts))

    @asynccontextmanager
    async def stream(
        self,
        method: Method,
        request: Message,
        reply: type[Reply],
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Replies[Reply]]:
        """Open a stream; connecting and asking have the method's deadline."""
        with self._counted(method):
            async with self._channel.server_stream(
                self._path(method),
                request,
                reply,
                timeout=self.limit(method),
                metadata=metadata,
            ) as replies:
                yield replies

    @contextmanager
    def _counted(self, method: Method) -> Iterator[None]:
        """Count one operation; errors from inside carry the method and the endpoint."""
        with self.metrics.operation(method.operation):
            try:
                yield
            except Unknown as exc:
                exc.method = exc.method or method.name
                if _STARTING in exc.message:
                    message = f"{self.endpoint}: {exc.message}"
                    raise Unavailable(message, exc.method) from exc
                raise
            except RpcError as exc:
                exc.method = exc.method or method.name
                if isinstance(exc, Unavailable) and self.endpoint not in exc.message:
                    exc.message = f"{self.endpoint}: {exc.message}"
                raise

    def _path(self, method: Method) -> str:
        return f"/{self._service}/{method.name}"


def _as_is(reply: Reply) -> Reply:
    return reply
