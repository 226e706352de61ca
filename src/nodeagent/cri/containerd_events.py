"""containerd's own event service: on the socket of its runtime interface, in every version.

The messages are small and flat, so they are taken apart field by field: the generated stubs
would load more than they save. All events that matter here carry the id of the container or
sandbox in field 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol, runtime_checkable

from nodeagent.cri.events import Effect, EventStreamFeed, RuntimeHint
from nodeagent.cri.interned import cut, read_numbers
from nodeagent.rpc import Internal

NAMESPACE: Final = "k8s.io"
"""Where containerd keeps what its runtime interface made."""

# Fields of Envelope, of google.protobuf.Timestamp and Any, and of the events themselves.
_TIME, _NAMESPACE, _TOPIC, _EVENT = 1, 2, 3, 4
_SECONDS, _NANOS = 1, 2
_VALUE: Final = 2
_ID: Final = 1
_EXEC_ID: Final = {"/tasks/exit": 2, "/tasks/delete": 5}
"""Where these events say which process they are about: the container's own or a command."""

EFFECTS: Final = {
    "/tasks/start": Effect.ANY,
    "/tasks/exit": Effect.ENDING,
    "/tasks/delete": Effect.ENDING,
    "/tasks/oom": Effect.ANY,
    "/tasks/paused": Effect.ANY,
    "/tasks/resumed": Effect.ANY,
    "/containers/create": Effect.ANY,
    "/containers/delete": Effect.GONE,
    "/sandbox/create": Effect.ANY,
    "/sandbox/start": Effect.ANY,
    "/sandbox/exit": Effect.ENDING,
}
"""The topics that say something about pods; all others are passed over."""


@runtime_checkable
class ContainerdEvents(Protocol):
    """A runtime with containerd's event service."""

    def containerd_events(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the stream of encoded envelopes. Iterating raises Unimplemented elsewhere."""
        ...


class ContainerdEventFeed(EventStreamFeed):
    """Hints from containerd. They name containers and sandboxes, not pods.

    Args:
        runtime: the runtime to listen to.
    """

    def __init__(self, runtime: ContainerdEvents) -> None:
        super().__init__("containerd", self._stream)
        self._runtime = runtime

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[AsyncIterator[RuntimeHint]]:
        async with self._runtime.containerd_events() as envelopes:
            yield _hints(envelopes)


async def _hints(envelopes: AsyncIterator[bytes]) -> AsyncIterator[RuntimeHint]:
    async for envelope in envelopes:
        hint = parse_envelope(envelope)
        if hint is not None:
            yield hint


def parse_envelope(data: bytes) -> RuntimeHint | None:
    """Read one event; None when it is about nothing that a pod consists of.

    Raises:
        Internal: the bytes are no envelope.
    """
    topic = _text(data, _TOPIC)
    effect = EFFECTS.get(topic)
    if effect is None or _text(data, _NAMESPACE) != NAMESPACE:
        return None
    event = _last(_last(data, _EVENT), _VALUE)
    container_id = _text(event, _ID)
    if not container_id:
        return None
    if field := _EXEC_ID.get(topic):
        process = _text(event, field)
        if process not in ("", container_id):
            return None  # a command in the container has ended, not the container
    return RuntimeHint(container_id=container_id, what=topic, effect=effect, at=_time(data))


def _time(data: bytes) -> int:
    stamp = read_numbers(_last(data, _TIME))
    return stamp.get(_SECONDS, 0) * 10**9 + stamp.get(_NANOS, 0)


def _last(data: bytes, field: int) -> bytes:
    found = cut(data, field)
    return found[-1] if found else b""


def _text(data: bytes, field: int) -> str:
    try:
        return _last(data, field).decode()
    except UnicodeDecodeError as exc:
        msg = f"field {field} of the event is not text"
        raise Internal(msg) from exc
