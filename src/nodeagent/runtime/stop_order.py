"""Who waits for whom when a whole pod stops (docs/behaviour/runtime.md, "Stop order").

Regular and plain init containers stop at once. A sidecar serves them, so it waits for all of
them, and for the sidecars after it, which may need it: the last one stops first (KEP-753).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import anyio

from nodeagent.api import Pod
from nodeagent.model import ContainerID
from nodeagent.model.restart import is_sidecar


def stops_after(
    pod: Pod | None, running: Iterable[tuple[ContainerID, str]]
) -> Mapping[ContainerID, frozenset[ContainerID]]:
    """For each sidecar, the containers that have to stop before it does.

    Args:
        pod: the spec; without one nobody waits.
        running: ids and names of what is about to be stopped.
    """
    if pod is None:
        return {}
    ids: dict[str, set[ContainerID]] = {}
    for cid, name in running:
        ids.setdefault(name, set()).add(cid)
    plain = (*pod.spec.containers, *(c for c in pod.spec.init_containers if not is_sidecar(c)))
    before = {cid for container in plain for cid in ids.get(container.name, ())}
    order: dict[ContainerID, frozenset[ContainerID]] = {}
    for container in reversed(pod.spec.init_containers):
        if is_sidecar(container):
            own = ids.get(container.name, set())
            order.update(dict.fromkeys(own, frozenset(before)))
            before = before | own
    return order


class StopOrder:
    """Lets containers that stop side by side wait for their turn.

    Args:
        after: for each container that waits, those that have to stop before it.
    """

    def __init__(self, after: Mapping[ContainerID, frozenset[ContainerID]]) -> None:
        self._after = after
        self._stopped = {cid: anyio.Event() for others in after.values() for cid in others}

    async def wait_turn(self, cid: ContainerID, grace: int) -> int:
        """Wait until it is the container's turn, at most for its grace.

        Returns:
            Whole seconds that it took.
        """
        began = anyio.current_time()
        with anyio.move_on_after(grace):
            for other in self._after.get(cid, ()):
                await self._stopped[other].wait()
        return int(anyio.current_time() - began)

    def stopped(self, cid: ContainerID) -> None:
        """A container has stopped; one that could not be stopped holds the others up."""
        event = self._stopped.get(cid)
        if event is not None:
            event.set()
