"""Keeps what the API server shows of this node's storage drivers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.aio import jitter
from nodeagent.api.node import Node
from nodeagent.api.storage import CSINode
from nodeagent.csi.client import NodeInfo
from nodeagent.csi.node_objects import (
    TopologyError,
    belongs_to,
    new_csi_node,
    node_patch,
    node_patch_without,
    with_driver,
    without_driver,
)
from nodeagent.journal import Journal
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import ApiError, KubeError, is_away
from nodeagent.kube.paths import CSI_NODES, csi_node
from nodeagent.kube.paths import node as node_path
from nodeagent.log import Log

log = Log("csi")

NOT_INITIALIZED: Final = "CSINode is not yet initialized"
_TRIES: Final = 4
_FIRST_WAIT: Final = 0.01
_WAIT_GROWS: Final = 5.0
_FIRST_START: Final = 0.03
_START_GROWS: Final = 8.0
_LONGEST_START: Final = 30.0
_PATIENCE: Final = 2.0


class NodeStorage:
    """The CSINode of this node, and what drivers write into its Node.

    Args:
        client: asks the server.
        name: the node.
        journal: the flight recorder.
        changed: told that the node may be ready now, or no longer. Never waits.
    """

    def __init__(
        self, client: KubeClient, name: str, journal: Journal, changed: Callable[[], None]
    ) -> None:
        self._client = client
        self._name = name
        self._journal = journal
        self._changed = changed
        self._lock = anyio.Lock()
        self._woken = anyio.Event()
        self._ready = False
        self._began: float | None = None
        self._owed: dict[str, NodeInfo] = {}

    @property
    def error(self) -> str:
        """Why volumes cannot be used yet; "" when they can, or when that is only a moment away."""
        if self._ready or self._began is None:
            return ""
        return NOT_INITIALIZED if anyio.current_time() - self._began >= _PATIENCE else ""

    def retry_now(self) -> None:
        """The API server answers again, or the Node has come."""
        self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Make the CSINode, and show the drivers that came while nobody could be told."""
        task_status.started()
        self._began = anyio.current_time()
        wait, said = _FIRST_START, ""
        while True:
            self._woken = anyio.Event()
            try:
                async with self._lock:
                    await self._catch_up()
            except KubeError as error:
                if str(error) != said:
                    said = str(error)
                    log.info("csi_node_not_made", cause=said)
                with anyio.move_on_after(jitter(wait)):
                    await self._woken.wait()
                wait = min(wait * _START_GROWS, _LONGEST_START)
            else:
                wait, said = _FIRST_START, ""
                await self._woken.wait()

    async def _catch_up(self) -> None:
        if not self._ready:
            await self._csi_node(await self._node())
            self._ready = True
            self._journal.record("csi", "NodeInitialized", node=self._name)
            self._changed()
        for driver, info in list(self._owed.items()):
            try:
                await self._show(driver, info)
            except TopologyError as error:
                log.warning("driver_not_shown", driver=driver, cause=str(error))
            del self._owed[driver]

    async def install(self, driver: str, info: NodeInfo) -> None:
        """Show a driver; later, if the API server does not answer now.

        Raises:
            KubeError: the API server does not take it.
            TopologyError: it contradicts the Node.
        """
        async with self._lock:
            self._owed.pop(driver, None)
            try:
                await self._with_patience(partial(self._show, driver, info))
            except KubeError as error:
                if not is_away(error):
                    raise
                log.info("driver_shown_later", driver=driver, cause=str(error))
                self._owed[driver] = info
                self._woken.set()

    async def _show(self, driver: str, info: NodeInfo) -> None:
        node = await self._node()
        if patch := node_patch(node, driver, info):
            await self._client.patch(node_path(self._name, "status"), patch, Node)
        await self._put(node, lambda found: with_driver(found, driver, info))

    async def uninstall(self, driver: str) -> None:
        """Show it no longer.

        Raises:
            KubeError: the API server does not take it, or does not answer.
        """

        async def once() -> None:
            node = await self._node()
            await self._put(node, lambda found: without_driver(found, driver))
            if patch := node_patch_without(node, driver):
                await self._client.patch(node_path(self._name, "status"), patch, Node)

        async with self._lock:
            self._owed.pop(driver, None)
            await self._with_patience(once)

    async def _with_patience(self, once: Callable[[], Awaitable[None]]) -> None:
        wait, patience = _FIRST_WAIT, anyio.current_time() + _PATIENCE
        for left in reversed(range(_TRIES)):
            try:
                await once()
            except KubeError as error:
                if not left or (is_away(error) and anyio.current_time() >= patience):
                    raise
            else:
                return
            await anyio.sleep(jitter(wait))
            wait *= _WAIT_GROWS

    async def _node(self) -> Node:
        return await self._client.get(node_path(self._name), Node)

    async def _put(self, node: Node, change: Callable[[CSINode], CSINode]) -> None:
        found = await self._csi_node(node)
        wanted = change(found)
        if wanted != found:
            await self._client.put(csi_node(self._name), wanted, CSINode)

    async def _csi_node(self, node: Node) -> CSINode:
        """The CSINode of this Node; made when there is none, or only that of another Node."""
        try:
            found = await self._client.get(csi_node(self._name), CSINode)
        except ApiError as error:
            if not error.not_found:
                raise
        else:
            if belongs_to(found, node):
                return found
            with suppress(ApiError):
                await self._client.delete(csi_node(self._name), uid=found.metadata.uid)
        return await self._client.post(CSI_NODES, new_csi_node(node), CSINode)
