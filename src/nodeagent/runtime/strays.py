"""What calls left behind whose answers came too late (docs/behaviour/runtime.md, "At most once").

It is no reason to restart anything: it is cleared away, and the rest of the status stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nodeagent.model import (
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    SandboxID,
    SandboxState,
)


@dataclass(frozen=True, slots=True)
class Strays:
    """Ready sandboxes that nothing was put into, and created containers that nobody needs."""

    sandboxes: tuple[SandboxID, ...] = ()
    containers: tuple[ContainerRuntimeStatus, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sandboxes or self.containers)


def split_strays(status: PodRuntimeStatus) -> tuple[PodRuntimeStatus, Strays]:
    """Tell strays from what the pod lives on.

    Returns:
        The status without the strays, and the strays.
    """
    strays = Strays(_sandboxes(status), _containers(status))
    if not strays:
        return status, strays
    sandboxes = tuple(s for s in status.sandboxes if s.id not in strays.sandboxes)
    containers = tuple(c for c in status.containers if c not in strays.containers)
    return replace(status, sandboxes=sandboxes, containers=containers), strays


def _sandboxes(status: PodRuntimeStatus) -> tuple[SandboxID, ...]:
    """Ready sandboxes without containers, next to the one that is in use."""
    ready = [s for s in status.sandboxes if s.state is SandboxState.READY]
    if len(ready) < 2:
        return ()
    used = {c.sandbox_id for c in status.containers}
    keep = [s for s in ready if s.id in used] or ready[:1]
    return tuple(s.id for s in ready if s not in keep) if len(keep) == 1 else ()


def _containers(status: PodRuntimeStatus) -> tuple[ContainerRuntimeStatus, ...]:
    """Created containers of which another instance runs."""
    running = {c.name for c in status.running}
    return tuple(
        c for c in status.containers if c.state is ContainerState.CREATED and c.name in running
    )
