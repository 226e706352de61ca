"""Mirror pods: the API's copies of static pods, so that the cluster sees them.

Nobody waits for the API server here: static pods run whether it is there or not. Rows and their
tests: docs/behaviour/status.md, "Mirror pods".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.aio import jitter as default_jitter
from nodeagent.api import Pod
from nodeagent.api.codec import to_builtins
from nodeagent.api.node import Node
from nodeagent.journal import Journal
from nodeagent.kube import ApiError, KubeClient, paths
from nodeagent.log import Log
from nodeagent.model import FullName, PodUID
from nodeagent.model.annotations import CONFIG_HASH, CONFIG_MIRROR
from nodeagent.pods.api_work import ApiWork
from nodeagent.pods.housekeeping import Sweep
from nodeagent.pods.manager import PodManager, mirrors, pod_full_name
from nodeagent.pods.status import is_static
from nodeagent.pods.worker_state import WorkerState

log = Log("pods.mirror_pods")

NODE_POLL: Final = 1.0
_SERVER_SETS: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
)


def mirror_of(pod: Pod, node: Node) -> dict[str, Any]:
    """The object to create for a static pod: the pod itself, owned by its node. Pure."""
    body: dict[str, Any] = to_builtins(pod)
    metadata = {k: v for k, v in body["metadata"].items() if k not in _SERVER_SETS}
    annotations = pod.metadata.annotations
    metadata["annotations"] = {**annotations, CONFIG_MIRROR: annotations.get(CONFIG_HASH, "")}
    metadata["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": node.metadata.name,
            "uid": node.metadata.uid,
            "controller": True,
        }
    ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body["spec"]}


def ends_under(name: FullName, states: Mapping[PodUID, WorkerState]) -> bool:
    """Whether a static pod of that full name is stopping, and its mirror has yet to show it."""
    return any(
        state.static
        and state.full_name == name
        and state.started_at is not None
        and state.termination_requested
        and state.terminated_at is None
        for state in states.values()
    )


class MirrorPods:
    """The service.

    Args:
        client: the API server.
        node: this node as the API shows it; None while it is not known.
        manager: the desired pods and mirrors.
        ends: whether a static pod of a full name is stopping.
        heard: whether the API's pods are known, so that a mirror that is not there is none.
        journal: flight recorder.
        jitter: spreads retries.
    """

    def __init__(
        self,
        client: KubeClient,
        node: Callable[[], Node | None],
        manager: PodManager,
        *,
        ends: Callable[[FullName], bool],
        heard: Callable[[], bool] = lambda: True,
        journal: Journal | None = None,
        jitter: Callable[[float], float] = default_jitter,
    ) -> None:
        self._client = client
        self._node = node
        self._manager = manager
        self._ends = ends
        self._heard = heard
        self._journal = journal or Journal()
        self._work: ApiWork[FullName] = ApiWork(
            "pods.mirror_pods",
            self._reconcile,
            tick=self._look_for_node,
            period=NODE_POLL,
            jitter=jitter,
        )
        self._begun = False
        self._waiting: set[FullName] = set()

    def want(self, pod: Pod) -> None:
        """Have the mirror of a static pod made, or made anew; other pods have none."""
        if is_static(pod):
            self._work.want(pod_full_name(pod))

    async def sweep(self, _sweep: Sweep) -> None:
        """Delete mirrors whose static pod is gone, once it has stopped."""
        for mirror in self._manager.orphaned_mirrors():
            self._work.want(pod_full_name(mirror))

    def node_changed(self) -> None:
        """The node may have appeared; noticed without this too, a second later."""
        self._look_for_node()

    def retry_now(self) -> None:
        """The server seems to be back: wait for no back-off."""
        self._work.retry_now()

    async def drained(self) -> None:
        """Return when nothing is left to do; the caller's scope bounds the wait."""
        await self._work.drained()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Make and delete mirrors until cancelled."""
        await self._work.run(task_status=task_status)

    def _usable_node(self) -> Node | None:
        node = self._node() if self._heard() else None
        if node is None or node.metadata.deletion_timestamp is not None:
            return None
        return node if node.metadata.uid else None

    def _look_for_node(self) -> None:
        if (self._begun and not self._waiting) or self._usable_node() is None:
            return
        if not self._begun:
            self._begun = True
            for pod in self._manager.get_pods():
                self.want(pod)
        waiting, self._waiting = self._waiting, set()
        for name in waiting:
            self._work.want(name)

    async def _reconcile(self, name: FullName) -> None:
        pod = self._manager.get_by_full_name(name)
        mirror = self._manager.get_mirror_by_full_name(name)
        if pod is None or not is_static(pod):
            if mirror is not None and pod is None and not self._ends(name):
                await self._delete(mirror, "its pod is gone")
            return
        if mirror is not None:
            if mirror.metadata.deletion_timestamp is not None:
                why = "somebody deleted it"
            elif not mirrors(mirror, pod):
                why = "its pod has changed"
            else:
                return
            if not await self._delete(mirror, why):
                return
        await self._create(pod)

    async def _create(self, pod: Pod) -> None:
        node = self._usable_node()
        if node is None:
            self._waiting.add(pod_full_name(pod))
            return
        try:
            made = await self._client.post(
                paths.pods_in(pod.metadata.namespace), mirror_of(pod, node), Pod
            )
        except ApiError as error:
            if error.already_exists and await self._is_there(pod):
                return
            raise
        self._journal.record("mirror", "MirrorCreated", pod.metadata.uid, f"as {made.metadata.uid}")

    async def _is_there(self, pod: Pod) -> bool:
        """Whether the pod that has the name already is the mirror that we want."""
        meta = pod.metadata
        return mirrors(await self._client.get(paths.pod(meta.namespace, meta.name), Pod), pod)

    async def _delete(self, mirror: Pod, why: str) -> bool:
        """Delete a mirror; False when another pod has its name meanwhile."""
        meta = mirror.metadata
        uid = self._manager.translate(PodUID(meta.uid))
        try:
            await self._client.delete(
                paths.pod(meta.namespace, meta.name), grace_seconds=0, uid=meta.uid
            )
        except ApiError as error:
            if error.conflict:
                return False
            if not error.not_found:
                raise
        self._journal.record("mirror", "MirrorDeleted", uid, why)
        return True
