"""What containers use: the calls about figures, and what the other calls share."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from nodeagent.embedded import filters, views
from nodeagent.embedded.backend import Usage
from nodeagent.embedded.faults import Call
from nodeagent.embedded.records import RunState
from nodeagent.rpc import NotFound, Unimplemented

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nodeagent.embedded.core import Core
    from nodeagent.embedded.records import ContainerRecord, SandboxRecord
    from nodeagent.proto.runtime import v1

T = TypeVar("T")

UID_LABEL: Final = "io.kubernetes.pod.uid"


async def nothing() -> None:
    """Do nothing."""


async def refuse(what: str, instead: str) -> NoReturn:
    """Answer that something is not there, and what to do instead."""
    msg = f"the embedded runtime has no {what}: {instead}"
    raise Unimplemented(msg)


class StatsCalls:
    """The calls of RuntimeService about figures.

    Args:
        core: what does the work. Its context must be open.
    """

    def __init__(self, core: Core) -> None:
        self.core = core

    async def container_stats(self, container_id: str) -> v1.ContainerStats:
        """What one running container uses."""
        call = self._about("ContainerStats", container_id)
        return await self.core.through(call, partial(self._one, container_id))

    async def list_container_stats(
        self, where: v1.ContainerStatsFilter | None = None
    ) -> Sequence[v1.ContainerStats]:
        """What the running containers that match use."""
        return await self._call("ListContainerStats", partial(self._containers, where))

    async def stream_container_stats(
        self, where: v1.ContainerStatsFilter | None = None
    ) -> Sequence[v1.ContainerStats]:
        """The same figures."""
        return await self._call("StreamContainerStats", partial(self._containers, where))

    async def pod_sandbox_stats(self, pod_sandbox_id: str) -> v1.PodSandboxStats:
        """What one sandbox uses."""
        call = self._about_sandbox("PodSandboxStats", pod_sandbox_id)
        return await self.core.through(call, partial(self._sandbox, pod_sandbox_id))

    async def list_pod_sandbox_stats(
        self, where: v1.PodSandboxStatsFilter | None = None
    ) -> Sequence[v1.PodSandboxStats]:
        """What the sandboxes that match use."""
        return await self._call("ListPodSandboxStats", partial(self._sandboxes, where))

    async def stream_pod_sandbox_stats(
        self, where: v1.PodSandboxStatsFilter | None = None
    ) -> Sequence[v1.PodSandboxStats]:
        """The same figures."""
        return await self._call("StreamPodSandboxStats", partial(self._sandboxes, where))

    async def list_metric_descriptors(self) -> Sequence[v1.MetricDescriptor]:
        """Refuse: there are no metrics beyond the stats."""
        return await self._call("ListMetricDescriptors", _no_metrics)

    async def list_pod_sandbox_metrics(self) -> Sequence[v1.PodSandboxMetrics]:
        """Refuse: there are no metrics beyond the stats."""
        return await self._call("ListPodSandboxMetrics", _no_metrics)

    async def stream_pod_sandbox_metrics(self) -> Sequence[v1.PodSandboxMetrics]:
        """Refuse: there are no metrics beyond the stats."""
        return await self._call("StreamPodSandboxMetrics", _no_metrics)

    # -- what calls share

    async def _call(self, method: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self.core.through(Call(method), work)

    def _about_sandbox(self, method: str, sandbox_id: str) -> Call:
        found = self.core.state.find_sandbox(sandbox_id)
        if found is None:
            return Call(method, subject=sandbox_id)
        pod = found.metadata
        return Call(method, found.pod_uid, "", sandbox_id, pod.name, pod.namespace)

    def _about(self, method: str, container_id: str) -> Call:
        found = self.core.state.find_container(container_id)
        if found is None:
            return Call(method, subject=container_id)
        about = self._about_sandbox(method, found.sandbox_id)
        return replace(about, container=found.name, subject=container_id)

    def _about_labels(
        self, method: str, where: v1.PodSandboxFilter | v1.ContainerFilter | None
    ) -> Call:
        labels = where.label_selector if where is not None else {}
        return Call(method, labels.get(UID_LABEL, ""))

    # -- inner workings

    async def _one(self, container_id: str) -> v1.ContainerStats:
        container = self.core.state.running(container_id)
        for _, usage in await self._measure([container]):
            return views.container_stats(container, usage, self.core.clock.time_ns())
        msg = f'container "{container_id}" has just ended'
        raise NotFound(msg)

    async def _containers(
        self, where: v1.ContainerStatsFilter | None
    ) -> Sequence[v1.ContainerStats]:
        wanted = [one for one in self._running() if filters.wants_container_stats(where, one)]
        measured = await self._measure(wanted)
        now = self.core.clock.time_ns()
        return [views.container_stats(one, usage, now) for one, usage in measured]

    async def _sandbox(self, sandbox_id: str) -> v1.PodSandboxStats:
        return (await self._of_sandboxes([self.core.state.sandbox(sandbox_id)]))[0]

    async def _sandboxes(
        self, where: v1.PodSandboxStatsFilter | None
    ) -> Sequence[v1.PodSandboxStats]:
        ready = [one for one in self.core.state.sandboxes.values() if one.ready]
        return await self._of_sandboxes(
            [one for one in ready if filters.wants_sandbox_stats(where, one)]
        )

    async def _of_sandboxes(self, sandboxes: Sequence[SandboxRecord]) -> list[v1.PodSandboxStats]:
        measured: dict[str, list[tuple[ContainerRecord, Usage]]] = {one.id: [] for one in sandboxes}
        wanted = [one for one in self._running() if one.sandbox_id in measured]
        for container, usage in await self._measure(wanted):
            measured[container.sandbox_id].append((container, usage))
        now = self.core.clock.time_ns()
        return [views.sandbox_stats(one, measured[one.id], now) for one in sandboxes]

    def _running(self) -> list[ContainerRecord]:
        containers = self.core.state.containers.values()
        return [one for one in containers if one.state is RunState.RUNNING]

    async def _measure(
        self, containers: Sequence[ContainerRecord]
    ) -> list[tuple[ContainerRecord, Usage]]:
        usages = await self.core.backend.usage(containers) if containers else {}
        return [(one, usages[one.id]) for one in containers if one.id in usages]


async def _no_metrics() -> NoReturn:
    await refuse("metrics", "use ListPodSandboxStats or ListContainerStats")
