"""Cleaning up behind pods: dead containers, sandboxes, log directories.

docs/behaviour/garbage.md, "Containers", "Sandboxes", "Log directories".
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from nodeagent.journal import Journal
from nodeagent.model import ContainerID, ContainerState, PodUID, RuntimeContainer, RuntimePod
from nodeagent.proto.runtime import v1
from nodeagent.rpc import NotFound, RpcError
from nodeagent.runtime import names
from nodeagent.runtime.errors import describe
from nodeagent.runtime.events import NodeEvents, NoEvents
from nodeagent.runtime.gc_plan import (
    DoomedContainer,
    DoomedSandbox,
    GCPolicy,
    Removable,
    dead_containers,
    plan_containers,
    plan_sandboxes,
    without,
)
from nodeagent.runtime.grace import MINIMUM_GRACE
from nodeagent.runtime.logs import (
    container_log,
    plain_names,
    pod_log_dirs,
    remove_container_logs,
    remove_dangling_links,
    remove_pod_logs,
    unlink_log,
)
from nodeagent.runtime.services import ContainerRuntime

ListPods = Callable[[], Awaitable[Mapping[PodUID, RuntimePod]]]


@dataclass(frozen=True, slots=True)
class Collected:
    """What one collection removed, and what it could not."""

    containers: int = 0
    sandboxes: int = 0
    log_dirs: int = 0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GarbagePlan:
    """What would be removed."""

    containers: tuple[DoomedContainer, ...] = ()
    sandboxes: tuple[DoomedSandbox, ...] = ()
    log_dirs: tuple[tuple[PodUID, Path], ...] = ()


class ContainerGC:
    """Removes what dead containers leave behind.

    Args:
        runtime: where containers and sandboxes are removed.
        list_pods: lists all pods that the runtime has.
        removable: whether everything of a pod may go: it is deleted and terminated, evicted,
            or unknown although all sources have spoken.
        sources_ready: whether all sources have spoken; nothing goes before.
        logs_dir: where pods' log directories lie.
        links_dir: where links to log files lie; None for nowhere.
        policy: what is kept.
        journal: the flight recorder.
        events: told of failures.
    """

    def __init__(
        self,
        runtime: ContainerRuntime,
        list_pods: ListPods,
        *,
        removable: Removable,
        sources_ready: Callable[[], bool],
        logs_dir: Path,
        links_dir: Path | None = None,
        policy: GCPolicy | None = None,
        journal: Journal | None = None,
        events: NodeEvents | None = None,
    ) -> None:
        self._runtime = runtime
        self._list_pods = list_pods
        self._removable = removable
        self._sources_ready = sources_ready
        self._logs_dir = logs_dir
        self._links_dir = links_dir
        self._policy = policy or GCPolicy()
        self._journal = journal or Journal()
        self._events = events or NoEvents()
        self._first_seen: dict[ContainerID, float] = {}
        self._alive: frozenset[ContainerID] = frozenset()

    def reconfigure(self, policy: GCPolicy) -> None:
        """Keep what this says from now on."""
        self._policy = policy

    async def plan(self) -> GarbagePlan:
        """What :meth:`collect` would remove now, and why.

        Raises:
            RpcError: the runtime does not answer.
        """
        if not self._sources_ready():
            return GarbagePlan()
        pods = tuple((await self._list_pods()).values())
        containers = self._plan_containers(pods)
        sandboxes = plan_sandboxes(without(pods, containers), self._removable)
        return GarbagePlan(tuple(containers), tuple(sandboxes), tuple(await self._dead_logs()))

    async def collect(self) -> Collected:
        """Remove what may go; nothing before all sources have spoken.

        One failure does not stop the rest; all are in the result, and in an event.
        """
        if not self._sources_ready():
            return Collected()
        failures: list[str] = []
        containers = sandboxes = log_dirs = 0
        try:
            containers = await self._collect_containers(failures)
            sandboxes = await self._collect_sandboxes(failures)
            log_dirs = await self._collect_logs(failures)
        except RpcError as error:
            failures.append(describe(error))
        if failures:
            text = failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]"
            self._events.node_event("Warning", "ContainerGCFailed", text)
        return Collected(containers, sandboxes, log_dirs, tuple(failures))

    def assume_ages(self, ages: Mapping[ContainerID, float]) -> None:
        """Count containers as first seen so many seconds ago."""
        now = anyio.current_time()
        self._first_seen |= {cid: now - max(age, 0.0) for cid, age in ages.items()}

    def _plan_containers(self, pods: Sequence[RuntimePod]) -> list[DoomedContainer]:
        self._note_ages(pods)
        dead = dead_containers(pods, self._old_enough)
        return plan_containers(dead, self._policy, self._removable)

    async def _collect_containers(self, failures: list[str]) -> int:
        pods = tuple((await self._list_pods()).values())
        removed = 0
        for each in self._plan_containers(pods):
            try:
                await self._remove(each)
                removed += 1
            except (RpcError, OSError) as error:
                failures.append(f"container {each.container.id}: {error}")
        return removed

    def _note_ages(self, pods: Iterable[RuntimePod]) -> None:
        now = anyio.current_time()
        ids = [c.id for pod in pods for c in pod.containers]
        self._first_seen = {cid: self._first_seen.get(cid, now) for cid in ids}

    def _old_enough(self, container: RuntimeContainer) -> bool:
        age = anyio.current_time() - self._first_seen.get(container.id, 0.0)
        return age >= self._policy.min_age

    async def _remove(self, dead: DoomedContainer) -> None:
        container, pod = dead.container, dead.pod
        if container.state is ContainerState.UNKNOWN:
            await self._runtime.stop_container(container.id, MINIMUM_GRACE)
        who = names.PodNames(pod.name, pod.namespace, pod.uid)
        await self._remove_logs(who, container.name, container.attempt, container.id)
        with contextlib.suppress(NotFound):
            await self._runtime.remove_container(container.id)
        self._journal.record(
            "runtime",
            "ContainerCollected",
            pod.uid,
            dead.why,
            container=container.name,
            id=container.id,
        )

    async def _remove_logs(
        self, pod: names.PodNames, container: str, attempt: int, container_id: str
    ) -> None:
        if not plain_names(pod, container):
            return
        log = container_log(self._logs_dir, pod, container, attempt)
        await to_thread.run_sync(remove_container_logs, log)
        await to_thread.run_sync(unlink_log, self._links_dir, pod, container, container_id)

    async def remove_container(self, container_id: ContainerID) -> None:
        """Remove one dead container with its logs; one that is gone is fine.

        Raises:
            RpcError: the runtime could not remove it.
            OSError: its logs could not be removed.
        """
        where = v1.ContainerFilter(id=container_id)
        for found in await self._runtime.list_containers(where):
            labels = found.labels
            attempt = found.metadata.attempt if found.metadata else 0
            who = names.PodNames(
                labels.get(names.POD_NAME, ""),
                labels.get(names.POD_NAMESPACE, ""),
                labels.get(names.POD_UID, ""),
            )
            name = labels.get(names.CONTAINER_NAME, "")
            if found.id == container_id:
                await self._remove_logs(who, name, attempt, container_id)
        with contextlib.suppress(NotFound):
            await self._runtime.remove_container(container_id)

    async def _collect_sandboxes(self, failures: list[str]) -> int:
        pods = (await self._list_pods()).values()
        self._alive = frozenset(c.id for pod in pods for c in pod.containers)
        removed = 0
        for doomed in plan_sandboxes(pods, self._removable):
            sandbox = doomed.sandbox
            try:
                await self._runtime.stop_pod_sandbox(sandbox.id)
                await self._runtime.remove_pod_sandbox(sandbox.id)
            except NotFound:
                continue
            except RpcError as error:
                failures.append(f"sandbox {sandbox.id}: {error}")
                continue
            removed += 1
            self._journal.record(
                "runtime", "SandboxCollected", doomed.pod.uid, doomed.why, id=sandbox.id
            )
        return removed

    async def _dead_logs(self) -> list[tuple[PodUID, Path]]:
        found = await to_thread.run_sync(lambda: list(pod_log_dirs(self._logs_dir)))
        named = [(PodUID(names.uid_of_log_directory(path.name)), path) for path in found]
        return [(uid, path) for uid, path in named if uid and self._removable(uid)]

    async def _collect_logs(self, failures: list[str]) -> int:
        removed = 0
        for uid, path in await self._dead_logs():
            try:
                await to_thread.run_sync(remove_pod_logs, path)
            except OSError as error:
                failures.append(f"{path}: {error}")
                continue
            removed += 1
            self._journal.record("runtime", "LogDirectoryCollected", uid, path.name)
        if self._links_dir is not None:
            await to_thread.run_sync(remove_dangling_links, self._links_dir, self._alive)
        return removed
