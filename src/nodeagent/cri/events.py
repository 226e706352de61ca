"""Runtime event feeds: hints that something happened, so that it is looked at now.

A hint is never a fact to act on. It may come late, twice or not at all: the periodic relist
is what finds everything. Which feed a runtime has differs, so a feed is a protocol.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, runtime_checkable

import anyio
from anyio import TASK_STATUS_IGNORED

from nodeagent.aio import jitter
from nodeagent.cri.encoded_events import EventFacts, read_event
from nodeagent.log import Log
from nodeagent.rpc import RpcError, Unimplemented

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from nodeagent.cri.services import RuntimeService
    from nodeagent.proto.runtime import v1

log = Log("cri.events")

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 30.0


class Effect(enum.Enum):
    """What should be seen of a container or sandbox after the event."""

    ANY = "any"
    """The event does not say, or a look of any kind will do."""
    ENDING = "ending"
    """Its process is gone; the runtime will soon show that it does not run any more."""
    ENDED = "ended"
    """It does not run any more."""
    GONE = "gone"
    """It is not listed any more."""
    CREATED = "created"
    """A container is listed, and will be started in a moment, of which there is an event too."""


@dataclass(frozen=True, slots=True)
class RuntimeHint:
    """Something happened in the runtime.

    Attributes:
        pod_uid: the pod, or "" when the event does not say.
        container_id: the container, or the sandbox for its own events; "" when unknown.
        sandbox_id: the sandbox the container is in; "" when unknown.
        what: a word for journals, ``CONTAINER_STOPPED_EVENT``.
        effect: what a look should find.
        at: wall time in nanoseconds at which the runtime says that it happened; 0 for unknown.
    """

    pod_uid: str = ""
    container_id: str = ""
    sandbox_id: str = ""
    what: str = ""
    effect: Effect = Effect.ANY
    at: int = 0


class FeedListener(Protocol):
    """Who is told what a feed hears. The methods are quick and raise nothing."""

    def feed_opened(self) -> None:
        """A stream is open from now on; what happened before may have been missed."""

    def feed_interrupted(self, cause: str) -> None:
        """The stream is gone; a new one will be opened."""

    def feed_hint(self, hint: RuntimeHint) -> None:
        """Something happened."""


class ContainerEventFeed(Protocol):
    """A source of hints.

    Attributes:
        name: what to call it in logs and metrics.
    """

    name: str

    async def run(
        self,
        listener: FeedListener,
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Tell ``listener`` of each event until cancelled, over restarts of the runtime.

        Raises:
            Unimplemented: the runtime has no such feed.
        """
        ...

    def try_now(self) -> None:
        """Do not wait any longer before the next try: the runtime answers again."""
        ...


HintStream: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncIterator[RuntimeHint]]]
"""Opens one stream of hints."""


class EventStreamFeed:
    """A feed that reads a stream, and opens another one when it ends.

    Args:
        name: what to call it in logs and metrics.
        open_stream: asks the runtime.
    """

    def __init__(self, name: str, open_stream: HintStream) -> None:
        self.name = name
        self._open_stream = open_stream
        self._pause = _FIRST_PAUSE
        self._hurry = anyio.Event()
        self._reported = ""

    async def run(
        self,
        listener: FeedListener,
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """See :class:`ContainerEventFeed`; started once the first request is sent."""
        while True:
            try:
                async with self._open_stream() as hints:
                    task_status.started()
                    task_status = TASK_STATUS_IGNORED
                    listener.feed_opened()
                    async for hint in hints:
                        self._pause, self._reported = _FIRST_PAUSE, ""
                        listener.feed_hint(hint)
                cause = "the runtime ended the stream"
            except Unimplemented:
                raise
            except RpcError as exc:
                cause = str(exc)
            listener.feed_interrupted(cause)
            self._report(cause)
            with anyio.move_on_after(jitter(self._pause)):
                await self._hurry.wait()
            self._hurry = anyio.Event()
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _report(self, cause: str) -> None:
        """Log why a stream ended; once while nothing else happens."""
        if cause != self._reported:
            log.info("events_interrupted", feed=self.name, cause=cause, retry_in=self._pause)
        self._reported = cause

    def try_now(self) -> None:
        """See :class:`ContainerEventFeed`."""
        self._hurry.set()
        self._pause = _FIRST_PAUSE


@runtime_checkable
class EncodedEvents(Protocol):
    """A runtime that gives its container events as they came, for who needs little of them."""

    def encoded_container_events(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the stream of encoded ContainerEventResponse messages."""
        ...


class CRIEventFeed(EventStreamFeed):
    """The runtime's own GetContainerEvents.

    Args:
        runtime: the runtime to listen to; one that has :class:`EncodedEvents` is asked for these,
            because an event holds all that is known of its pod, and a hint needs four fields.
    """

    def __init__(self, runtime: RuntimeService) -> None:
        super().__init__("cri", self._stream)
        self._runtime = runtime

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[AsyncIterator[RuntimeHint]]:
        if isinstance(self._runtime, EncodedEvents):
            async with self._runtime.encoded_container_events() as encoded:
                yield (_hint(read_event(data)) async for data in encoded)
            return
        async with self._runtime.get_container_events() as events:
            yield (_hint(_facts(event)) async for event in events)


_EFFECTS: Final = {"CONTAINER_STOPPED_EVENT": Effect.ENDED, "CONTAINER_DELETED_EVENT": Effect.GONE}


def _facts(event: v1.ContainerEventResponse) -> EventFacts:
    sandbox = event.pod_sandbox_status
    metadata = None if sandbox is None else sandbox.metadata
    kind = event.container_event_type
    return EventFacts(
        container_id=event.container_id,
        kind=kind.name or str(int(kind)),
        at=event.created_at,
        sandbox_id="" if sandbox is None else sandbox.id,
        pod_uid="" if metadata is None else metadata.uid,
    )


def _hint(event: EventFacts) -> RuntimeHint:
    effect = _EFFECTS.get(event.kind, Effect.ANY)
    if event.kind == "CONTAINER_CREATED_EVENT" and event.sandbox_id not in ("", event.container_id):
        effect = Effect.CREATED
    return RuntimeHint(
        pod_uid=event.pod_uid,
        container_id=event.container_id,
        sandbox_id=event.sandbox_id,
        what=event.kind,
        effect=effect,
        at=event.at,
    )
