"""What this package needs from its neighbours, stated by the one who needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from nodeagent.api import Pod, PodStatus
from nodeagent.model import PodRuntimeStatus, PodUID, RuntimePod, UpdateType
from nodeagent.model.actions import PodSyncResult
from nodeagent.model.probes import NO_RESULTS, ProbeResults
from nodeagent.model.volumes import MountedVolume

StatusFn: TypeAlias = Callable[[PodStatus], PodStatus]
"""Changes a pod's status while it terminates (an eviction's reason and message)."""


class PodSyncer(Protocol):
    """Performs one step for one pod. A worker never runs two of them for one UID at once.

    Every method may be cancelled at any await; what must not be torn apart is shielded
    inside. A raised exception is logged and retried after the back-off that
    docs/behaviour/workers.md gives for it.
    """

    async def sync_pod(
        self, update_type: UpdateType, pod: Pod, mirror: Pod | None, status: PodRuntimeStatus
    ) -> bool:
        """Bring the pod to its desired state; True when it has ended by itself."""
        ...

    async def sync_terminating_pod(
        self, pod: Pod, status: PodRuntimeStatus, grace: int | None, status_fn: StatusFn | None
    ) -> None:
        """Stop every container; returns when none runs. ``grace`` None means the pod's own."""
        ...

    async def sync_terminating_runtime_pod(
        self, running: RuntimePod, status: PodRuntimeStatus
    ) -> None:
        """Stop what the runtime runs for a pod that no source describes."""
        ...

    async def sync_terminated_pod(self, pod: Pod, status: PodRuntimeStatus) -> None:
        """Release what the stopped pod held: volumes, directories, its final status."""
        ...


class PodReferences(Protocol):
    """Knows what pods refer to."""

    def register(self, pod: Pod) -> None:
        """The pod runs here, or is about to; called at every sync."""
        ...

    def unregister(self, uid: PodUID) -> None:
        """The pod has ended."""
        ...


class NoReferences:
    """Nobody wants to know."""

    def register(self, pod: Pod) -> None:
        """Do nothing."""

    def unregister(self, uid: PodUID) -> None:
        """Do nothing."""


class PodRuntime(Protocol):
    """The runtime side, as the sync calls need it."""

    async def sync_pod(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        volumes: Mapping[str, MountedVolume],
        *,
        probes: ProbeResults,
        restart_all: bool = False,
    ) -> PodSyncResult:
        """Do what the pod needs in the runtime; with ``restart_all`` remove its containers."""
        ...

    async def kill_pod(
        self, pod: Pod | None, status: PodRuntimeStatus, grace_override: int | None
    ) -> None:
        """Stop all containers and sandboxes.

        Raises:
            SyncError: something could not be stopped.
        """
        ...


class Volumes(Protocol):
    """The volumes of pods."""

    async def mount(self, pod: Pod) -> Mapping[str, MountedVolume]:
        """Make all volumes of the pod ready.

        Raises:
            SyncError: one cannot be made ready.
        """
        ...

    async def unmount(self, uid: PodUID) -> None:
        """Remove what was made for the pod.

        Raises:
            SyncError: something is still there.
        """
        ...


class PodCacheReader(Protocol):
    """PLEG's cache of what the runtime said about each pod."""

    def get(self, uid: PodUID) -> PodRuntimeStatus:
        """What is known now; an unknown pod has an empty status."""
        ...

    async def get_newer_than(self, uid: PodUID, time: float) -> PodRuntimeStatus:
        """Wait for a look at the pod later than ``time`` (loop time).

        Raises:
            Exception: the inspection error that was recorded for the pod.
        """
        ...


class RuntimeGate(Protocol):
    """Whether the runtime can be worked with."""

    @property
    def ready(self) -> bool:
        """Whether it can."""
        ...

    def errors(self) -> Sequence[str]:
        """Why it cannot."""
        ...

    async def wait_ready(self) -> None:
        """Return once it can."""
        ...


class EventRecorder(Protocol):
    """Where events about pods go."""

    def __call__(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        """Record one event; never blocks. ``kind`` is Normal or Warning."""
        ...


class RuntimePodLister(Protocol):
    """Lists what the runtime has."""

    async def list_pods(self) -> Mapping[PodUID, RuntimePod]:
        """Every pod the runtime knows.

        Raises:
            Exception: the runtime did not answer; nothing may be concluded.
        """
        ...


class PodStatusStore(Protocol):
    """The statuses that the agent has computed."""

    def get(self, uid: PodUID) -> PodStatus | None:
        """The last status of the pod, if any."""
        ...

    def set(self, pod: Pod, status: PodStatus) -> bool:
        """Store a new status; False when it changed nothing."""
        ...

    def __iter__(self) -> Iterator[PodUID]:
        """The UIDs of all pods that have a status."""
        ...

    def remove_orphans(self, known: Iterable[PodUID]) -> None:
        """Forget the statuses of all pods that are not in ``known``."""
        ...


class ProbeResultSink(Protocol):
    """Where readiness and startup results are noted."""

    def set_container_readiness(self, uid: PodUID, container_id: str, *, ready: bool) -> None:
        """The container's readiness changed."""
        ...

    def set_container_startup(self, uid: PodUID, container_id: str, *, started: bool) -> None:
        """The container's startup probe changed its mind."""
        ...


class PodProbes(Protocol):
    """The probes of pods. Nothing here waits."""

    @property
    def results(self) -> ProbeResults:
        """The newest results, live."""
        ...

    def add_pod(self, pod: Pod) -> None:
        """Probe the containers of a pod from now on, or learn of its newest version."""
        ...

    def stop_liveness_and_startup(self, uid: PodUID) -> None:
        """The pod ends: only readiness is asked any more."""
        ...

    def remove_pod(self, uid: PodUID) -> None:
        """The pod has ended: nothing of it is asked any more, and results are dropped."""
        ...

    def trigger_readiness(self, uid: PodUID, containers: Iterable[str]) -> None:
        """Ask now whether these containers are ready."""
        ...


class NoProbes:
    """For where nothing is probed."""

    results: ProbeResults = NO_RESULTS

    def add_pod(self, pod: Pod) -> None:
        """Do nothing."""

    def stop_liveness_and_startup(self, uid: PodUID) -> None:
        """Do nothing."""

    def remove_pod(self, uid: PodUID) -> None:
        """Do nothing."""

    def trigger_readiness(self, uid: PodUID, containers: Iterable[str]) -> None:
        """Do nothing."""
