"""Containers whose state the runtime does not know: for a while nobody believes it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nodeagent.model import PodRuntimeStatus
from nodeagent.model.runtime import ContainerRuntimeStatus, ContainerState


@dataclass(frozen=True, slots=True)
class Steady:
    """A pod's status as others are to see it.

    Attributes:
        status: containers that ran, and are UNKNOWN since a short time, count as running.
        since: loop time from which on each UNKNOWN container, by id, has been so.
        until: loop time at which an UNKNOWN state that is not believed now will be; infinite
            when there is none.
        doubt: name of a container that nobody knows anything of yet; empty when there is none.
        believed: a state that was doubted until now is believed.
    """

    status: PodRuntimeStatus
    since: Mapping[str, float]
    until: float = math.inf
    doubt: str = ""
    believed: bool = False


def steady(
    status: PodRuntimeStatus,
    known: PodRuntimeStatus,
    since: Mapping[str, float],
    now: float,
    patience: float,
) -> Steady:
    """Hold against a pod's fresh status what was known of it.

    Args:
        status: what the inspection found.
        known: what was known before.
        since: the one of the last inspection.
        now: loop time.
        patience: seconds after which an UNKNOWN state is believed.
    """
    unknown = [c for c in status.containers if c.state is ContainerState.UNKNOWN]
    if not unknown:
        return Steady(status, {})
    began: dict[str, float] = {c.id: since.get(c.id, now) for c in unknown}
    kept: dict[str, ContainerRuntimeStatus] = {}
    until, doubt, believed = math.inf, "", False
    for container in unknown:
        before = known.by_id(container.id)
        due = began[container.id] + patience
        fresh = before is None and status.latest(container.name) is container
        ran = before is not None and before.state is ContainerState.RUNNING
        if not (fresh or ran):
            continue
        if now >= due:
            believed = True
            continue
        until = min(until, due)
        if before is None:
            doubt = container.name
        else:
            kept[container.id] = before
    shown = tuple(kept.get(c.id, c) for c in status.containers)
    return Steady(replace(status, containers=shown), began, until, doubt, believed)
