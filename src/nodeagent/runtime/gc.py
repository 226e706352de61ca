"""Cleaning up behind pods: dead containers, sandboxes, log directories.

docs/behaviour/runtime.md, "Garbage".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus

from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import ContainerID, ContainerState, PodUID, RuntimeContainer, RuntimePod
from nodeagent.proto.runtime import v1
from nodeagent.rpc import NotFound, RpcError
from nodeagent.runtime import names
from nodeagent.runtime.errors import describe
from nodeagent.runtime.gc_plan import (
    DeadContainer,
    GCPolicy,
    Removable,
    dead_containers,
    plan_containers,
    plan_sandboxes,
)
from nodeagent.runtime.grace import MINIMUM_GRACE
from nodeagent.runtime.logs import (
    container_log,
    pod_log_dirs,
    remove_container_logs,
    remove_dangling_links,
    remove_pod_logs,
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


class ContainerGC:
    """Removes what dead containers leave behind.

    Args:
        runtime: where containers and sandboxes are removed.
        list_pods: lists all pods that the runtime has.
        removable: whether everything of a pod may go: it is deleted and terminated, evicted,
            or unknown although all sources have spoken.
        sources_ready: whether all sources have spoken; log directories wait for it.
        logs_dir: where pods' log directories lie.
        links_dir: where links to log files lie; None for nowhere.
        policy: what is kept.
        journal: the flight recorder.
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
    ) -> None:
        self._runtime = runtime
        self._list_pods = list_pods
        self._removable = removable
        self._sources_ready = sources_ready
        self._logs_dir = logs_dir
        self._links_dir = links_dir
        self._policy = policy or GCPolicy()
        self._journal = journal or Journal()
        self._log = Log("runtime.gc")
        self._first_seen: dict[ContainerID, float] = {}
        self._alive: frozenset[ContainerID] = frozenset()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Collect every period until cancelled."""
        task_status.started()
        while True:
            await anyio.sleep(self._policy.period)
            result = await self.collect()
            if result.failures:
                self._log.warning("gc_incomplete", failures=len(result.failures))

    async def collect(self) -> Collected:
        """Remove what may go. One failure does not stop the rest; all are in the result."""
        failures: list[str] = []
        containers = sandboxes = log_dirs = 0
        try:
            containers = await self._collect_containers(failures)
            sandboxes = await self._collect_sandboxes(failures)
            if self._sources_ready():
                log_dirs = await self._collect_logs(failures)
        except RpcError as error:
            failures.append(describe(error))
        for failure in failures:
            self._journal.record("runtime", "ContainerGCFailed", "", failure)
        return Collected(containers, sandboxes, log_dirs, tuple(failures))

    def _may_go(self, uid: PodUID) -> bool:
        return self._sources_ready() and self._removable(uid)

    async def _collect_containers(self, failures: list[str]) -> int:
        pods = (await self._list_pods()).values()
        self._note_ages(pods)
        dead = dead_containers(pods, self._old_enough)
        removed = 0
        for each in plan_containers(dead, self._policy, self._may_go):
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

    async def _remove(self, dead: DeadContainer) -> None:
        container, pod = dead.container, dead.pod
        if container.state is ContainerState.UNKNOWN:
            await self._runtime.stop_container(container.id, MINIMUM_GRACE)
        who = names.PodNames(pod.name, pod.namespace, pod.uid)
        log = container_log(self._logs_dir, who, container.name, container.attempt)
        await to_thread.run_sync(remove_container_logs, log)
        await self._runtime.remove_container(container.id)
        self._journal.record(
            "runtime", "ContainerCollected", pod.uid, "", container=container.name, id=container.id
        )

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
            if who.uid and name and found.id == container_id:
                log = container_log(self._logs_dir, who, name, attempt)
                await to_thread.run_sync(remove_container_logs, log)
        try:
            await self._runtime.remove_container(container_id)
        except NotFound:
            return

    async def _collect_sandboxes(self, failures: list[str]) -> int:
        pods = (await self._list_pods()).values()
        self._alive = frozenset(c.id for pod in pods for c in pod.containers)
        removed = 0
        for pod, sandbox in plan_sandboxes(pods, self._may_go):
            try:
                await self._runtime.stop_pod_sandbox(sandbox.id)
                await self._runtime.remove_pod_sandbox(sandbox.id)
            except RpcError as error:
                failures.append(f"sandbox {sandbox.id}: {error}")
                continue
            removed += 1
            self._journal.record("runtime", "SandboxCollected", pod.uid, "", id=sandbox.id)
        return removed

    async def _collect_logs(self, failures: list[str]) -> int:
        removed = 0
        for path in await to_thread.run_sync(lambda: list(pod_log_dirs(self._logs_dir))):
            uid = PodUID(names.uid_of_log_directory(path.name))
            if not uid or not self._may_go(uid):
                continue
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
