"""The phase of a pod, from its container statuses. Pure (docs/behaviour/phase.md, "Phase")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nodeagent.api import Container, ContainerStateTerminated, ContainerStatus, Pod
from nodeagent.model.restart import RESTARTING_ALL, is_sidecar, restartable

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
TERMINAL: Final = frozenset({SUCCEEDED, FAILED})


@dataclass(slots=True)
class _Tally:
    """How many containers are in which situation."""

    failed_init: int = 0
    pending_init: int = 0
    pending_sidecar: int = 0
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    succeeded: int = 0
    unknown: int = 0
    restartable: int = 0


def compute_phase(
    pod: Pod,
    statuses: Iterable[ContainerStatus],
    *,
    final: bool = False,
    static: bool = False,
    regular_in_sandbox: bool = True,
) -> str:
    """The pod's phase.

    Args:
        pod: the pod; only its spec is looked at.
        statuses: statuses of regular and init containers.
        final: the pod has been stopped for good.
        static: the pod comes from a file or URL; it is never final.
        regular_in_sandbox: a regular container exists in the newest sandbox.
    """
    by_name = {status.name: status for status in statuses}
    tally = _Tally()
    for container in pod.spec.init_containers:
        count = _count_sidecar if is_sidecar(container) else _count_init
        count(pod, container, by_name, tally)
    for container in pod.spec.containers:
        _count_regular(pod, container, by_name, tally)
    return _decide(tally, final=final and not static, regular_in_sandbox=regular_in_sandbox)


def _decide(tally: _Tally, *, final: bool, regular_in_sandbox: bool) -> str:
    if tally.failed_init:
        return FAILED
    sidecar_holds = bool(tally.pending_sidecar) and not regular_in_sandbox
    if tally.pending_init or sidecar_holds or tally.waiting:
        return PENDING
    if tally.running and not tally.unknown:
        return RUNNING
    if tally.stopped and not tally.running and not tally.unknown:
        if tally.restartable and not final:
            return RUNNING
        return SUCCEEDED if tally.succeeded == tally.stopped else FAILED
    return PENDING


def _count_init(
    pod: Pod, container: Container, by_name: Mapping[str, ContainerStatus], tally: _Tally
) -> None:
    status = by_name.get(container.name)
    if status is None:
        tally.pending_init += 1
        return
    ended = status.state.terminated
    if ended is None and status.state.waiting is not None:
        ended = status.last_state.terminated
    if ended is None:
        tally.pending_init += 1
    elif ended.exit_code != 0 and not _may_run_again(pod, container, ended):
        tally.failed_init += 1


def _count_sidecar(
    _pod: Pod, container: Container, by_name: Mapping[str, ContainerStatus], tally: _Tally
) -> None:
    status = by_name.get(container.name)
    if status is None:
        tally.unknown += 1
    elif status.state.running is not None:
        tally.running += 1
        if not status.started:
            tally.pending_sidecar += 1
    elif status.state.waiting is not None and status.last_state.terminated is None:
        tally.waiting += 1
        tally.pending_sidecar += 1


def _count_regular(
    pod: Pod, container: Container, by_name: Mapping[str, ContainerStatus], tally: _Tally
) -> None:
    status = by_name.get(container.name)
    if status is None:
        tally.unknown += 1
        return
    state = status.state
    if state.running is not None:
        tally.running += 1
    elif state.terminated is not None:
        tally.stopped += 1
        tally.succeeded += state.terminated.exit_code == 0
        tally.restartable += _may_run_again(pod, container, state.terminated)
    elif state.waiting is None:
        tally.unknown += 1
    elif status.last_state.terminated is not None:
        # It waits to run again; how its last run ended decides whether it may.
        tally.stopped += 1
        tally.restartable += _may_run_again(pod, container, status.last_state.terminated)
    else:
        tally.waiting += 1


def _may_run_again(pod: Pod, container: Container, ended: ContainerStateTerminated) -> bool:
    return ended.reason == RESTARTING_ALL or restartable(pod, container, ended.exit_code)
