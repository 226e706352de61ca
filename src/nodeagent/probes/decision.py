"""When a container is probed and what an answer means: pure decisions.

docs/behaviour/probes.md, "Ticks" and "Answers". No clock, no runtime, no ``await``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.api import Container, ContainerStatus, Pod, PodStatus
from nodeagent.model import ProbeKind, ProbeResult
from nodeagent.model.restart import restartable


class Do(enum.Enum):
    """What a tick comes to."""

    WAIT = "wait"
    PROBE = "probe"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is known of one container at a tick.

    Attributes:
        container_id: the runtime's id, "" while there is no container.
        running: it runs.
        ended: it ran and has ended.
        returns: it may run again after it has ended.
        over: its pod has succeeded or failed.
        deleting: its pod is being deleted.
        started: it counts as started.
    """

    container_id: str = ""
    running: bool = False
    ended: bool = False
    returns: bool = True
    over: bool = False
    deleting: bool = False
    started: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What a probe remembers from one tick to the next.

    Attributes:
        container_id: the container that it is about.
        held: it has said its last word about that container.
        last: the last answer.
        run: how many equal answers there were in a row.
    """

    container_id: str = ""
    held: bool = False
    last: ProbeResult | None = None
    run: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What comes of a tick or an answer.

    Attributes:
        memory: what to remember.
        do: what to do now.
        result: to be noted as the probe's result for ``memory.container_id``.
    """

    memory: Memory
    do: Do = Do.WAIT
    result: ProbeResult | None = None


INITIAL: Final = {
    ProbeKind.LIVENESS: ProbeResult.SUCCESS,
    ProbeKind.READINESS: ProbeResult.FAILURE,
    ProbeKind.STARTUP: ProbeResult.UNKNOWN,
}
"""What holds of a container that has not been probed."""


def container_id_of(status: ContainerStatus) -> str:
    """The runtime's own id in a status, without the runtime's name."""
    return status.container_id.rpartition("://")[2]


def find_status(status: PodStatus, name: str) -> ContainerStatus | None:
    """The status of a regular or init container."""
    for group in (status.container_statuses, status.init_container_statuses):
        for one in group:
            if one.name == name:
                return one
    return None


def sight(pod: Pod, container: Container, found: ContainerStatus | None, *, over: bool) -> Sighting:
    """Read what a tick needs to know from the pod and the container's status."""
    deleting = pod.metadata.deletion_timestamp is not None
    if found is None:
        return Sighting(over=over, deleting=deleting)
    end = found.state.terminated
    if end is None and found.state.running is None:
        last = found.last_state.terminated
        # While it waits to run again the status still carries the id of the last run.
        end = last if last is not None and last.container_id == found.container_id else None
        returns = True
    else:
        returns = end is None or restartable(pod, container, end.exit_code)
    return Sighting(
        container_id=container_id_of(found),
        running=found.state.running is not None,
        ended=end is not None,
        returns=returns,
        over=over,
        deleting=deleting,
        started=bool(found.started),
    )


def decide(
    kind: ProbeKind,
    memory: Memory,
    seen: Sighting,
    *,
    known: ProbeResult | None = None,
    delayed: bool = False,
) -> Step:
    """Say what a due probe does; the first row that holds counts.

    Args:
        kind: liveness, readiness or startup.
        memory: from the last tick or answer.
        seen: the container now.
        known: the result that is noted for ``seen.container_id``.
        delayed: the initial delay after the container's start has not passed.
    """
    if seen.over:
        return Step(memory, Do.STOP)
    if not seen.container_id:
        return Step(memory)
    if seen.container_id != memory.container_id:
        # A result that is known already is of an agent before this one.
        held = known is ProbeResult.FAILURE and kind is not ProbeKind.READINESS
        memory = Memory(seen.container_id, held)
    if memory.held:
        return Step(memory)
    if not seen.running:
        if not seen.ended:
            return Step(memory)
        return Step(memory, Do.WAIT if seen.returns else Do.STOP, ProbeResult.FAILURE)
    if seen.deleting and kind is not ProbeKind.READINESS:
        return Step(memory, Do.STOP, ProbeResult.SUCCESS)
    if kind is ProbeKind.STARTUP and seen.started:
        # Known from an agent before this one, perhaps; what waits for it reads the result.
        return Step(memory, result=ProbeResult.SUCCESS)
    if delayed or (kind is not ProbeKind.STARTUP and not seen.started):
        return Step(memory)
    return Step(memory, Do.PROBE)


def judge(
    kind: ProbeKind, memory: Memory, answer: ProbeResult, *, successes: int, failures: int
) -> Step:
    """Say what an answer changes; UNKNOWN, which tells nothing, changes nothing.

    Args:
        kind: liveness, readiness or startup.
        memory: from the tick that asked.
        answer: what the probe found.
        successes: how many in a row make a success.
        failures: how many in a row make a failure.
    """
    if answer is ProbeResult.UNKNOWN:
        return Step(memory)
    run = memory.run + 1 if answer is memory.last else 1
    memory = replace(memory, last=answer, run=run)
    if run < (successes if answer is ProbeResult.SUCCESS else failures):
        return Step(memory)
    if kind is ProbeKind.STARTUP or (kind is ProbeKind.LIVENESS and answer is ProbeResult.FAILURE):
        memory = Memory(memory.container_id, held=True)
    return Step(memory, result=answer)
