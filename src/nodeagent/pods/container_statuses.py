"""Container statuses as the API shows them, from what the runtime reported. Pure.

docs/behaviour/phase.md, "Container statuses".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace

from nodeagent.api import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    EphemeralContainer,
    Pod,
    VolumeMount,
    VolumeMountStatus,
)
from nodeagent.model import ContainerError, ContainerRuntimeStatus, PodRuntimeStatus, ProbeResult
from nodeagent.model import ContainerState as Seen
from nodeagent.model.probes import NO_RESULTS, ProbeResults
from nodeagent.model.restart import RESTARTING_ALL, is_sidecar, restartable

VANISHED_EXIT_CODE: Final = 137
VANISHED_REASON: Final = "ContainerStatusUnknown"
# Two blanks: tools match this text.
VANISHED_DELETED: Final = (
    "The container could not be located when the pod was deleted.  The container used to be Running"
)
VANISHED_TERMINATED: Final = "The container could not be located when the pod was terminated"
_SETTLED: Final = timedelta(seconds=10)
"""A container that began so long before the agent has been probed by the one before it."""


def _no_note(_container: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class StatusContext:
    """What statuses need beside the pod and its runtime status.

    Attributes:
        runtime_name: scheme of container ids (``containerd``).
        reason: why a container could not be started the last time, by container name.
        ran_once: ids of containers that ran and may not run again, by name.
        note: what a container that is being started waits for, by name; "" for nothing.
        restarting_all: all containers are being removed so that the pod starts again.
        probes: results of probes, by container id.
        agent_started: when this agent began; None when that does not matter.
        was_ready: the pod's condition Ready was True before.
    """

    runtime_name: str
    reason: Callable[[str], ContainerError | None]
    ran_once: Mapping[str, str] = field(default_factory=dict)
    note: Callable[[str], str] = _no_note
    restarting_all: bool = False
    probes: ProbeResults = NO_RESULTS
    agent_started: datetime | None = None
    was_ready: bool = False


def api_time(nanoseconds: int) -> datetime:
    """A runtime's time stamp in whole seconds.

    0 means "never" (a container that could not be started) and stays 1970: without a time, tools
    show the year 1.
    """
    return datetime.fromtimestamp(max(nanoseconds, 0) // 1_000_000_000, UTC)


def compute_container_statuses(
    pod: Pod,
    status: PodRuntimeStatus,
    containers: Sequence[Container],
    old: Sequence[ContainerStatus],
    context: StatusContext,
    *,
    init: bool = False,
) -> tuple[ContainerStatus, ...]:
    """Statuses of ``containers``: in spec order for init containers, else by name.

    Args:
        pod: the pod the containers belong to.
        status: what the runtime reported.
        containers: the regular, the init or the ephemeral containers of the pod.
        old: their statuses as last stored.
        context: runtime name and start errors.
        init: the containers are init containers.
    """
    before = {s.name: s for s in old}
    found = tuple(
        _one(pod, status, container, before.get(container.name), context, init=init)
        for container in containers
    )
    return found if init else tuple(sorted(found, key=lambda s: s.name))


def _one(
    pod: Pod,
    status: PodRuntimeStatus,
    container: Container,
    old: ContainerStatus | None,
    context: StatusContext,
    *,
    init: bool,
) -> ContainerStatus:
    records = [r for r in status.containers if r.name == container.name]
    if records:
        shown = _from_records(records, container, old, context)
    elif old is not None and _removed_by_restart(container, old, context):
        shown = _restarting(container, old)
    elif init and not is_sidecar(container) and _regular_exists(pod, status):
        shown = _completed(_default(pod, container, old))
    else:
        shown = _without_record(pod, container, old, context)
    shown = _with_reason(pod, container, records, shown, context)
    if isinstance(container, EphemeralContainer):
        return shown  # it serves nobody: never ready
    if init and not is_sidecar(container):
        end = shown.state.terminated
        return replace(shown, ready=end is not None and end.exit_code == 0, started=False)
    return with_readiness(shown, container, old, context)


def _default(pod: Pod, container: Container, old: ContainerStatus | None) -> ContainerStatus:
    """The status of a container about which nothing is known from the runtime."""
    if old is not None and old.state.terminated is not None:
        return old
    reason = "PodInitializing" if pod.spec.init_containers else "ContainerCreating"
    return ContainerStatus(
        name=container.name,
        image=container.image,
        state=ContainerState(waiting=ContainerStateWaiting(reason=reason)),
        last_state=old.last_state if old else ContainerState(),
        restart_count=old.restart_count if old else 0,
    )


def _removed_by_restart(container: Container, old: ContainerStatus, context: StatusContext) -> bool:
    if not context.restarting_all or isinstance(container, EphemeralContainer):
        return False
    return old.state.waiting is None


def _restarting(container: Container, old: ContainerStatus) -> ContainerStatus:
    end = ContainerStateTerminated(
        exit_code=VANISHED_EXIT_CODE, reason=RESTARTING_ALL, container_id=old.container_id
    )
    return ContainerStatus(
        name=container.name,
        image=container.image,
        state=ContainerState(waiting=ContainerStateWaiting(reason=RESTARTING_ALL)),
        last_state=ContainerState(terminated=end),
        restart_count=old.restart_count + 1,
    )


def _without_record(
    pod: Pod, container: Container, old: ContainerStatus | None, context: StatusContext
) -> ContainerStatus:
    shown = _default(pod, container, old)
    ran = context.ran_once.get(container.name)
    was_running = old.state.running if old is not None else None
    if shown.state.terminated is not None or (was_running is None and ran is None):
        return shown
    container_id = f"{context.runtime_name}://{ran}" if ran else ""
    vanished = ContainerStateTerminated(
        exit_code=VANISHED_EXIT_CODE,
        reason=VANISHED_REASON,
        message=VANISHED_DELETED,
        started_at=was_running.started_at if was_running else None,
        container_id=old.container_id if old is not None else container_id,
    )
    if not _may_run_again(pod, container, VANISHED_EXIT_CODE):
        # It ran, its record is gone and it may not run twice: it has ended.
        return replace(shown, state=ContainerState(terminated=vanished))
    if was_running is None or shown.last_state.terminated is not None:
        return shown
    deleting = pod.metadata.deletion_timestamp is not None
    return replace(
        shown,
        last_state=ContainerState(terminated=vanished),
        restart_count=shown.restart_count + (0 if deleting else 1),
    )


def _from_records(
    records: Sequence[ContainerRuntimeStatus],
    container: Container,
    old: ContainerStatus | None,
    context: StatusContext,
) -> ContainerStatus:
    newest = records[0]
    container_id = f"{context.runtime_name}://{newest.id}"
    shown = ContainerStatus(
        name=container.name,
        image=newest.image or container.image,
        image_id=newest.image_ref,
        container_id=container_id,
        restart_count=max(newest.restart_count, old.restart_count if old else 0),
        state=_state(newest, old, context),
        last_state=old.last_state if old else ContainerState(),
        allocated_resources=container.resources.requests,
        resources=container.resources,
        volume_mounts=tuple(_mounted(m, newest) for m in container.volume_mounts),
        user=newest.user,
    )
    if len(records) > 1 and records[1].state is Seen.EXITED:
        shown = replace(shown, last_state=_state(records[1], None, context))
    if old is None:
        return shown
    replaced = old.state.terminated is not None and old.container_id != container_id
    if replaced:
        shown = replace(shown, last_state=old.state)
    if newest.state is Seen.UNKNOWN and old.state.running is not None:
        shown = replace(shown, restart_count=old.restart_count + 1)
    restarted = replaced and newest.state is Seen.RUNNING
    if restarted and old.restart_count >= newest.restart_count:
        shown = replace(shown, restart_count=old.restart_count + 1)
    return shown


def _mounted(mount: VolumeMount, record: ContainerRuntimeStatus) -> VolumeMountStatus:
    path = "/" + mount.mount_path.lstrip("/")
    mode = "Enabled" if path in record.recursive_read_only else "Disabled"
    return VolumeMountStatus(
        name=mount.name,
        mount_path=mount.mount_path,
        read_only=mount.read_only,
        recursive_read_only=mode if mount.read_only else None,
    )


def _state(
    record: ContainerRuntimeStatus, old: ContainerStatus | None, context: StatusContext
) -> ContainerState:
    match record.state:
        case Seen.RUNNING:
            started = ContainerStateRunning(started_at=api_time(record.started_at))
            return ContainerState(running=started)
        case Seen.EXITED:
            return ContainerState(
                terminated=ContainerStateTerminated(
                    exit_code=record.exit_code,
                    reason=record.reason,
                    message=record.message,
                    started_at=api_time(record.started_at),
                    finished_at=api_time(record.finished_at),
                    container_id=f"{context.runtime_name}://{record.id}",
                )
            )
        case Seen.UNKNOWN if old is not None and old.state.running is not None:
            return ContainerState(
                terminated=ContainerStateTerminated(
                    exit_code=VANISHED_EXIT_CODE,
                    reason=VANISHED_REASON,
                    message=VANISHED_TERMINATED,
                    container_id=f"{context.runtime_name}://{record.id}",
                )
            )
        case _:
            return ContainerState(waiting=ContainerStateWaiting())


def _regular_exists(pod: Pod, status: PodRuntimeStatus) -> bool:
    regular = {c.name for c in pod.spec.containers}
    return any(record.name in regular for record in status.containers)


def _completed(shown: ContainerStatus) -> ContainerStatus:
    end = ContainerStateTerminated(exit_code=0, reason="Completed")
    return replace(shown, state=ContainerState(terminated=end))


def _with_reason(
    pod: Pod,
    container: Container,
    records: Sequence[ContainerRuntimeStatus],
    shown: ContainerStatus,
    context: StatusContext,
) -> ContainerStatus:
    """Say why a container that should run again does not."""
    if pod.metadata.deletion_timestamp is not None:
        return shown
    if not _will_restart(pod, container, records, shown):
        return shown
    error = context.reason(container.name)
    if error is None:
        return _with_note(shown, context.note(container.name))
    waiting = ContainerStateWaiting(reason=error.reason, message=error.message)
    last = shown.state if shown.state.terminated is not None else shown.last_state
    return replace(shown, state=ContainerState(waiting=waiting), last_state=last)


def _with_note(shown: ContainerStatus, note: str) -> ContainerStatus:
    """Say what a container waits for that is being started."""
    if not note:
        return shown
    if (waiting := shown.state.waiting) is not None:
        return replace(shown, state=ContainerState(waiting=replace(waiting, message=note)))
    # It has ended, and runs again when what it waits for is there.
    waiting = ContainerStateWaiting(reason="ContainerCreating", message=note)
    return replace(shown, state=ContainerState(waiting=waiting), last_state=shown.state)


def _will_restart(
    pod: Pod,
    container: Container,
    records: Sequence[ContainerRuntimeStatus],
    shown: ContainerStatus,
) -> bool:
    if not records:
        return shown.state.terminated is None
    newest = records[0]
    match newest.state:
        case Seen.RUNNING:
            return False
        case Seen.EXITED:
            return _may_run_again(pod, container, newest.exit_code)
        case _:
            return True


def _may_run_again(pod: Pod, container: Container, exit_code: int) -> bool:
    # A debugging container runs once, whatever the pod's policy.
    return not isinstance(container, EphemeralContainer) and restartable(pod, container, exit_code)


def with_readiness(
    shown: ContainerStatus,
    container: Container,
    old: ContainerStatus | None,
    context: StatusContext,
) -> ContainerStatus:
    """Say whether a regular container or sidecar has started and is ready."""
    before = old if old is not None and old.container_id == shown.container_id else None
    started = shown.state.running is not None and _has_started(shown, container, before, context)
    ready = started and _is_ready(shown, container, before, context)
    return replace(shown, ready=ready, started=started)


def _has_started(
    shown: ContainerStatus,
    container: Container,
    before: ContainerStatus | None,
    context: StatusContext,
) -> bool:
    if container.startup_probe is None:
        return True
    if context.probes.startup.get(own_id(shown)) is ProbeResult.SUCCESS:
        return True
    return before is not None and bool(before.started)


def _is_ready(
    shown: ContainerStatus,
    container: Container,
    before: ContainerStatus | None,
    context: StatusContext,
) -> bool:
    if container.readiness_probe is None:
        return True
    result = context.probes.readiness.get(own_id(shown))
    if result is not None:
        return result is ProbeResult.SUCCESS
    if before is None or not before.ready or not context.was_ready:
        return False
    running = shown.state.running
    began = running.started_at if running is not None else None
    if began is None or context.agent_started is None:
        return False
    return began + _SETTLED < context.agent_started


def own_id(status: ContainerStatus) -> str:
    """The runtime's own id of the container, without the runtime's name."""
    return status.container_id.rpartition("://")[2]


def by_name(statuses: Sequence[ContainerStatus]) -> Mapping[str, ContainerStatus]:
    """Statuses by container name."""
    return {status.name: status for status in statuses}
