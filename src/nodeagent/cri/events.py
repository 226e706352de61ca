"""Runtime event feeds: hints that something happened, so that it is looked at now.

A hint is never a fact to act on. It may come late, twice or not at all: the periodic relist
is what finds everything. Which feed a runtime has differs, so a feed is a protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED

from nodeagent.aio import jitter
from nodeagent.log import Log
from nodeagent.rpc import RpcError, Unimplemented

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    from nodeagent.cri.services import RuntimeService
    from nodeagent.proto.runtime import v1

log = Log("cri.events")

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0


@dataclass(frozen=True, slots=True)
class RuntimeHint:
    """Something happened in the runtime.

    Attributes:
        pod_uid: the pod, or "" when the event does not say.
        container_id: the container, or the sandbox for its own events; "" when unknown.
        sandbox_id: the sandbox the container is in; "" when unknown.
        what: a word for journals, ``CONTAINER_STOPPED_EVENT``.
    """

    pod_uid: str = ""
    container_id: str = ""
    sandbox_id: str = ""
    what: str = ""

    @property
    def concerns_all(self) -> bool:
        """Whether events may have been missed, so that everything is worth a look."""
        return not (self.pod_uid or self.container_id or self.sandbox_id)


class ContainerEventFeed(Protocol):
    """A source of hints.

    Attributes:
        name: what to call it in logs.
    """

    name: str

    async def run(
        self,
        notify: Callable[[RuntimeHint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Call ``notify`` for each event until cancelled, over restarts of the runtime.

        After each gap, a hint that concerns everything comes first.

        Raises:
            Unimplemented: the runtime has no such feed.
        """
        ...


class CRIEventFeed:
    """The runtime's own GetContainerEvents.

    Args:
        runtime: the runtime to listen to.
    """

    name = "cri"

    def __init__(self, runtime: RuntimeService) -> None:
        self._runtime = runtime
        self._pause = _FIRST_PAUSE

    async def run(
        self,
        notify: Callable[[RuntimeHint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """See :class:`ContainerEventFeed`; started once the first request is sent."""
        gap = False
        while True:
            try:
                async with self._runtime.get_container_events() as events:
                    task_status.started()
                    task_status = TASK_STATUS_IGNORED
                    if gap:
                        notify(RuntimeHint(what="reconnected"))
                    async for event in events:
                        self._pause = _FIRST_PAUSE
                        notify(_hint(event))
                cause = "the runtime ended the stream"
            except Unimplemented:
                raise
            except RpcError as exc:
                cause = str(exc)
            gap = True
            log.info("events_interrupted", cause=cause, retry_in=self._pause)
            await anyio.sleep(jitter(self._pause))
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def _hint(event: v1.ContainerEventResponse) -> RuntimeHint:
    sandbox = event.pod_sandbox_status
    uid = sandbox.metadata.uid if sandbox is not None and sandbox.metadata is not None else ""
    return RuntimeHint(
        pod_uid=uid,
        container_id=event.container_id,
        sandbox_id=sandbox.id if sandbox is not None else "",
        what=event.container_event_type.name or str(int(event.container_event_type)),
    )
