"""What housekeeping has to do, decided from what is wanted, worked on and running. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from nodeagent.api import Pod
from nodeagent.model import ContainerState, PodUID, RuntimePod, SandboxState
from nodeagent.pods.manager import is_terminal, pod_uid


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """What to do.

    Attributes:
        create: wanted pods that nobody works on: start their workers.
        end: pods that are deleted and over, and that nobody knows: let a worker say so.
        kill: pods that run and that nobody wants.
    """

    create: tuple[Pod, ...] = ()
    end: tuple[Pod, ...] = ()
    kill: tuple[RuntimePod, ...] = ()


def runs(pod: RuntimePod) -> bool:
    """Whether anything of the pod is up: a running container or a ready sandbox."""
    return any(c.state is ContainerState.RUNNING for c in pod.containers) or any(
        s.state is SandboxState.READY for s in pod.sandboxes
    )


def plan_cleanups(
    pods: Iterable[Pod],
    known: Collection[PodUID],
    runtime: Mapping[PodUID, RuntimePod] | None,
    is_active: Callable[[Pod], bool],
) -> CleanupPlan:
    """Decide what housekeeping does (docs/behaviour/workers.md, "Housekeeping").

    Args:
        pods: the desired pods; no mirrors.
        known: UIDs that have a worker, or had one when the runtime was listed.
        runtime: what the runtime has; None while not every source has spoken, because what
            nobody wants yet may be wanted in a moment.
        is_active: whether a pod runs, may run, or is still ending.
    """
    pods = [pod for pod in pods if pod_uid(pod) not in known]
    create = tuple(pod for pod in pods if is_active(pod))
    if runtime is None:
        return CleanupPlan(create)
    up = {uid: pod for uid, pod in runtime.items() if runs(pod)}
    started = {pod_uid(pod) for pod in create}
    end = tuple(
        pod
        for pod in pods
        if pod.metadata.deletion_timestamp is not None
        and is_terminal(pod.status.phase)
        and pod_uid(pod) not in up
        and pod_uid(pod) not in started
    )
    kill = tuple(pod for uid, pod in up.items() if uid not in known and uid not in started)
    return CleanupPlan(create, end, kill)
