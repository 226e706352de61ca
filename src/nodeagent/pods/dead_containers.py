"""Removes the records of containers that have ended, a few at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.channels import Channel, WhenFull
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import ContainerID, ContainerState, PodRuntimeStatus, PodUID

log = Log("pods.dead_containers")

QUEUE_LENGTH: Final = 50
KEPT: Final = 1
PATIENCE: Final = 2.0
"""Seconds for which a record may lie around while pods are being started and stopped."""


async def _now() -> None:
    """Nothing is going on."""


def containers_to_remove(
    status: PodRuntimeStatus, container_id: str = "", *, everything: bool, kept: int = KEPT
) -> list[ContainerID]:
    """Choose the dead containers of one pod that nobody needs any more.

    Args:
        status: the pod in the runtime.
        container_id: the container that has just ended. When it is a sandbox or unknown,
            nothing is chosen.
        everything: the pod's content may go: every exited container is chosen.
        kept: exited containers to keep per name, newest first, for their logs.

    Returns:
        Container ids, newest first.
    """
    exited = [c for c in status.containers if c.state is ContainerState.EXITED]
    if everything:
        return [c.id for c in exited]
    ended = status.by_id(container_id)
    if ended is None:
        return []
    return [c.id for c in exited if c.name == ended.name][kept:]


class DeadContainerRemover:
    """Takes container ids from a bounded queue and removes them one by one.

    What does not fit is dropped: the container GC finds it within a minute.

    Args:
        remove: removes one container; raises when it cannot.
        journal: flight recorder.
        capacity: ids that may wait.
        quiet: returns when no pod is being started or stopped: that is what somebody waits for,
            and a record is in nobody's way.
    """

    def __init__(
        self,
        remove: Callable[[ContainerID], Awaitable[None]],
        *,
        journal: Journal | None = None,
        capacity: int = QUEUE_LENGTH,
        quiet: Callable[[], Awaitable[None]] = _now,
    ) -> None:
        self._remove = remove
        self._journal = journal or Journal()
        self._quiet = quiet
        self.channel: Channel[tuple[PodUID, ContainerID, float]] = Channel(
            "dead-containers", capacity, WhenFull.COALESCE
        )

    def request(self, uid: PodUID, container_id: ContainerID) -> bool:
        """Have a container removed; False when the queue is full. Never blocks."""
        return self.channel.send_nowait((uid, container_id, anyio.current_time()))

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Remove what is asked for until cancelled."""
        task_status.started()
        async for uid, container_id, asked in self.channel:
            with anyio.CancelScope(deadline=asked + PATIENCE):
                await self._quiet()
            try:
                await self._remove(container_id)
            except Exception as error:  # noqa: BLE001 - GC tries again; the others go on
                log.warning("container_not_removed", container=container_id, cause=str(error))
                why = str(error)
                self._journal.record("pods", "RemoveFailed", uid, why, container=container_id)
            else:
                self._journal.record("pods", "ContainerRemoved", uid, container=container_id)
