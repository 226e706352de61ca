"""Takes storage drivers that register themselves."""

from __future__ import annotations

import re
from typing import Final

import anyio

from nodeagent.csi.client import DriverClient, NodeInfo
from nodeagent.csi.metrics import CsiMetrics
from nodeagent.csi.node_objects import TopologyError
from nodeagent.csi.node_storage import NodeStorage
from nodeagent.csi.registration import Plugin, PluginRefusedError
from nodeagent.csi.registry import DriverRegistry
from nodeagent.kube.errors import KubeError
from nodeagent.log import Log
from nodeagent.rpc import RpcError

log = Log("csi")

_VERSION: Final = re.compile(r"v?(\d+)(\.\d+)?(\.\d+)?([-+].*)?")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?")
_LONGEST_NAME: Final = 63
_TRIES: Final = 4
_FIRST_WAIT: Final = 0.01
_WAIT_GROWS: Final = 5.0


class CsiDrivers:
    """The plugin handler of storage drivers.

    Args:
        registry: where they are found from then on.
        storage: shows them to the API server.
        metrics: where their calls are counted.
    """

    def __init__(self, registry: DriverRegistry, storage: NodeStorage, metrics: CsiMetrics) -> None:
        self._registry = registry
        self._storage = storage
        self._metrics = metrics
        self._clients: dict[tuple[str, str], DriverClient] = {}

    def validate(self, plugin: Plugin) -> None:
        """Refuse what speaks another version, or has a name that cannot be one."""
        if not _NAME.fullmatch(plugin.name) or len(plugin.name) > _LONGEST_NAME:
            msg = (
                f'"{plugin.name}" is not the name of a CSI driver: at most {_LONGEST_NAME} '
                "letters, digits, dashes and dots"
            )
            raise PluginRefusedError(msg)
        majors = [m[1] for v in plugin.versions if (m := _VERSION.fullmatch(v.strip()))]
        if "1" not in majors:
            listed = ", ".join(plugin.versions) or "none"
            msg = f'CSI driver "{plugin.name}" has versions {listed}: version 1 is needed'
            raise PluginRefusedError(msg)

    async def register(self, plugin: Plugin) -> None:
        """Ask the driver what this node is, and show it."""
        try:
            client = DriverClient(plugin.name, plugin.endpoint, self._metrics)
        except ValueError as error:
            raise PluginRefusedError(str(error)) from error
        done = False
        try:
            info = await self._info(client)
            if not info.node_id:
                raise PluginRefusedError("error adding CSI driver node info: nodeID is empty")
            await self._storage.install(plugin.name, info)
            done = True
        except (RpcError, KubeError, TopologyError) as error:
            msg = f"error updating CSI driver {plugin.name}: {error}"
            raise PluginRefusedError(msg) from error
        finally:
            if not done:
                with anyio.CancelScope(shield=True):
                    await client.aclose()
        self._clients[plugin.name, plugin.endpoint] = client
        await self._registry.put(client)

    async def _info(self, client: DriverClient) -> NodeInfo:
        wait = _FIRST_WAIT
        for left in reversed(range(_TRIES)):
            try:
                return await client.info()
            except RpcError:
                if not left:
                    raise
            await anyio.sleep(wait)
            wait *= _WAIT_GROWS
        raise AssertionError("unreachable")

    async def unregister(self, plugin: Plugin) -> None:
        """The driver is gone."""
        client = self._clients.pop((plugin.name, plugin.endpoint), None)
        if client is None:
            return
        await self._registry.remove(client)
        if self._registry.has(plugin.name):
            return  # another one has taken its place
        try:
            await self._storage.uninstall(plugin.name)
        except KubeError as error:
            log.warning("driver_still_shown", driver=plugin.name, cause=str(error))
