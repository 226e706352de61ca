"""Pods that the API server has bound to this node (docs/behaviour/api-source.md)."""

from __future__ import annotations

from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus

from nodeagent.api import Pod
from nodeagent.journal import Journal
from nodeagent.kube import KubeClient, paths
from nodeagent.kube.informer import Informer
from nodeagent.kube.reflector import Reflected
from nodeagent.log import Log
from nodeagent.model import API_SOURCE, Snapshot
from nodeagent.sources.api_checkpoint import ApiCheckpoint, CheckpointWriter, SavedPods
from nodeagent.sources.api_names import name_fault
from nodeagent.sources.source import Publish

log = Log("source.api")

PATIENCE: Final = 20.0
"""Seconds that the server has for its first answer before the pods of a checkpoint start."""


class ApiSource:
    """The pods of one node, from the API server or, while it is away, from a checkpoint.

    Args:
        client: asks the server.
        node_name: name of the node.
        checkpoint: where the pods are kept for the time without a server, or None.
        patience: see ``PATIENCE``.
        journal: flight recorder.
        watch_list: whether to ask for a WatchList.
    """

    name = API_SOURCE

    def __init__(
        self,
        client: KubeClient,
        node_name: str,
        *,
        checkpoint: ApiCheckpoint | None = None,
        patience: float = PATIENCE,
        journal: Journal | None = None,
        watch_list: bool = True,
    ) -> None:
        self._node_name = node_name
        self._checkpoint = checkpoint
        self._patience = patience
        self._journal = journal or Journal(16)
        self._changed = anyio.Event()
        reflected = Reflected(
            paths.PODS,
            "pods",
            {"fieldSelector": f"spec.nodeName={node_name}"},
            self._journal,
            watch_list,
        )
        self.informer: Informer[Pod] = Informer(
            client,
            Pod,
            "Pod",
            reflected,
            self._on_change,
            accepts=self._is_ours,
            fault=name_fault,
        )
        self._writer: CheckpointWriter | None = None
        if checkpoint is not None:
            objects, reflector = (
                (lambda: self.informer.objects),
                (lambda: self.informer.reflector.version),
            )
            self._writer = CheckpointWriter(checkpoint, objects, reflector, self._journal)

    @property
    def synced(self) -> bool:
        """Whether the server has said which pods it wants since the agent started."""
        return self.informer.synced

    @property
    def trouble(self) -> str:
        """Why the server cannot be asked for pods, "" while it can."""
        return self.informer.trouble

    def problems(self) -> dict[str, str]:
        """The pods whose present version cannot be used, and why."""
        return dict(self.informer.bad)

    def refused(self) -> dict[str, str]:
        """Why the checkpoint could not be saved, by the file's name; empty when it could."""
        return {} if self._checkpoint is None else self._checkpoint.refused

    def retry_now(self) -> None:
        """Ask at once instead of waiting: there is reason to believe that the server is back."""
        self.informer.retry_now()

    def _is_ours(self, pod: Pod) -> bool:
        return pod.spec.node_name == self._node_name

    def _on_change(self) -> None:
        self._changed.set()
        if self._writer is not None:
            self._writer.wake()

    async def run(
        self, publish: Publish, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        """Publish the server's pods after every change, until cancelled.

        The agent's start does not wait for the server. Without its answer the pods of the
        checkpoint are published after a while.
        """
        saved = await self._load()
        task_status.started()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.informer.run)
            if self._writer is not None:
                tasks.start_soon(self._writer.run)
            if saved.pods:
                await self._await_server(saved, publish)
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                await publish(self._snapshot())

    async def _load(self) -> SavedPods:
        if self._checkpoint is None:
            return SavedPods()
        saved = await to_thread.run_sync(self._checkpoint.load)
        if problem := self._checkpoint.problem:
            self._journal.record("source", "CheckpointDamaged", why=problem)
        if saved.version:
            # The list then shows nothing older, and a pod that cannot be read keeps its version.
            self.informer.seed(saved.pods, saved.version)
        return saved

    async def _await_server(self, saved: SavedPods, publish: Publish) -> None:
        with anyio.move_on_after(self._patience):
            await self.informer.wait_synced()
        if self.informer.synced:
            return
        cause = self.trouble or "it has not answered yet"
        log.warning(
            "api_pods_from_checkpoint",
            pods=len(saved.pods),
            waited=self._patience,
            cause=cause,
            effect="they run until the server says otherwise",
        )
        self._journal.record("source", "CheckpointUsed", why=cause, pods=len(saved.pods))
        await publish(Snapshot(self.name, saved.pods, remembered=True))

    def _snapshot(self) -> Snapshot:
        """All pods. Where one cannot be read at all, what runs of it must not be cleaned up."""
        pods = tuple(self.informer.objects.values())
        return Snapshot(self.name, pods, remembered=self.informer.incomplete)
