"""What housekeeping lets the other parts clean up, wired for one agent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
from prometheus_client import CollectorRegistry

from nodeagent.cri import RuntimeService
from nodeagent.cri.pods import PodLister
from nodeagent.model import PodUID, SyncError
from nodeagent.pods.housekeeping import Sweep
from nodeagent.pods.metrics import PodMetrics
from nodeagent.probes import ProbeManager
from nodeagent.rpc import NotFound
from nodeagent.runtime.gc import ContainerGC
from nodeagent.volumes import VolumeManager

_TIDY_FOR: Final = 60.0
"""Seconds that directories are as they were, as long as the pods are the same."""


@dataclass(slots=True, kw_only=True)
class CleanUp:
    """Sweeps behind pods that are gone.

    Attributes:
        runtime: the container runtime.
        lister: looks at single pods.
        gc: removes dead containers.
        volumes: removes pods' directories.
        probes: probes pods.
        forget: each is told of a pod that is gone for good.
        remembered: each gives pods of which something is kept, also from an earlier agent.
        metrics: gauges.
    """

    runtime: RuntimeService
    lister: PodLister
    gc: ContainerGC
    volumes: VolumeManager
    probes: ProbeManager
    forget: Sequence[Callable[[PodUID], None]]
    remembered: Sequence[Callable[[], Collection[PodUID]]] = ()
    metrics: PodMetrics = field(default_factory=lambda: PodMetrics(CollectorRegistry()))
    _known: set[PodUID] = field(default_factory=set)
    _tidy: Sweep | None = None
    _tidy_at: float = 0.0

    async def purge(self, uid: PodUID) -> None:
        """Remove all that the runtime has of an ended pod.

        Raises:
            RpcError: something could not be removed.
            OSError: its logs could not be removed.
        """
        pod = await self.lister.get_pod(uid)
        for forget in self.forget:
            forget(uid)
        if pod is None:
            return
        for container in pod.containers:
            await self.gc.remove_container(container.id)
        for sandbox in pod.sandboxes:
            try:
                await self.runtime.stop_pod_sandbox(sandbox.id)
                await self.runtime.remove_pod_sandbox(sandbox.id)
            except NotFound:
                continue

    async def directories(self, sweep: Sweep) -> None:
        """Remove directories of pods that are nobody's.

        The disk is asked again when a pod has come or gone since it had none of them, and once a
        minute: it may be slow, and to ask it takes a thread.

        Raises:
            SyncError: some are left, and it was not said before; the others have gone.
        """
        now = anyio.current_time()
        if sweep == self._tidy and now - self._tidy_at < _TIDY_FOR:
            return
        self._tidy = None
        orphans = [uid for uid in await self.volumes.pods_on_disk() if sweep.is_orphan(uid)]
        failures: list[SyncError] = []
        gone = 0
        for uid in orphans:
            try:
                gone += await self.volumes.remove_orphan(uid)
            except SyncError as error:
                failures.append(error)
        self.metrics.orphan_volumes_cleaned.set(gone)
        self.metrics.orphan_volumes_errors.set(len(orphans) - gone)
        if not orphans:
            self._tidy, self._tidy_at = sweep, now
        if failures:
            text = "; ".join(str(failure) for failure in failures)
            raise SyncError(text, reason=failures[0].reason)

    async def memory(self, sweep: Sweep) -> None:
        """Drop what is remembered of pods that are nobody's."""
        known = self._known.union(*(remembered() for remembered in self.remembered))
        gone = {uid for uid in known if sweep.is_orphan(uid)}
        for uid in gone:
            for forget in self.forget:
                forget(uid)
        self._known = (self._known | sweep.wanted | sweep.working | sweep.in_runtime) - gone

    async def unprobe(self, sweep: Sweep) -> None:
        """Probe nothing of pods that are nobody's, and drop what was known of them."""
        for uid in self.probes.pods():
            if sweep.is_orphan(uid):
                self.probes.remove_pod(uid)

    async def collect_garbage(self, _all_sources: bool) -> None:
        """Remove dead containers, unused sandboxes and log directories."""
        await self.gc.collect()
