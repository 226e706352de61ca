"""Volumes whose file systems grow after them.

docs/behaviour/csi.md, "Growing".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from nodeagent.api.quantity import Quantity
from nodeagent.api.storage import PersistentVolumeClaim
from nodeagent.csi.registry import DriverMissingError, DriverRegistry
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import KubeError
from nodeagent.kube.paths import claim as claim_path
from nodeagent.log import Log
from nodeagent.rpc import RpcError
from nodeagent.volumes import csi_names as names
from nodeagent.volumes.claims import Claimed
from nodeagent.volumes.csi_calls import CallMaker
from nodeagent.volumes.csi_errors import describe
from nodeagent.volumes.csi_volume import CsiVolume
from nodeagent.volumes.plugin import SetUp

log = Log("csi")

_STORAGE: Final = "storage"
_RESIZING: Final = ("Resizing", "FileSystemResizePending", "NodeResizeError")


class Expander:
    """Lets volumes grow on this node, and says so in their claims.

    Args:
        root: the agent's directory.
        registry: the drivers.
        calls: puts calls together.
        client: is told.
        node_name: this node.
    """

    def __init__(
        self,
        root: Path,
        registry: DriverRegistry,
        calls: CallMaker,
        client: KubeClient,
        node_name: str,
    ) -> None:
        self._root = root
        self._registry = registry
        self._calls = calls
        self._client = client
        self._node_name = node_name
        self._grown: dict[str, int] = {}

    async def expand(self, request: SetUp, claimed: Claimed, volume: CsiVolume) -> bool:
        """Let a volume grow that is smaller than it shall be; says whether it has.

        One that cannot grow now stays as it is, and usable: an event says why.
        """
        if not claimed.fresh:
            return False  # nobody could be told
        have = claimed.claim.status.capacity.get(_STORAGE)
        size = volume.capacity
        if have is None or not size or have.value() >= size or volume.read_only:
            return False
        try:
            return await self._grow(request, claimed, volume, size)
        except (RpcError, DriverMissingError, KubeError) as error:
            text = (
                f'MountVolume.NodeExpandVolume failed for volume "{volume.name}" : '
                f"{describe(error)}"
            )
            request.note("Warning", "FileSystemResizeFailed", text)
            return False

    async def _grow(self, request: SetUp, claimed: Claimed, volume: CsiVolume, size: int) -> bool:
        client = self._registry.find(volume.driver)
        if self._grown.get(volume.unique_name) != size:
            abilities = await client.abilities()
            if not abilities.expand:
                return False
            staged = self._staged(volume) if abilities.stage else ""
            what = await self._calls.expanding(volume, abilities, staged)
            await client.expand(what, self._target(request.uid, volume), size)
            # The driver has done it; telling the claim may have to be tried again.
            self._grown[volume.unique_name] = size
        wanted = claimed.volume.spec.capacity[_STORAGE]
        path = claim_path(claimed.claim.metadata.namespace, claimed.claim.metadata.name, "status")
        await self._client.patch(path, resized(claimed.claim, wanted), PersistentVolumeClaim)
        self._grown.pop(volume.unique_name, None)
        text = (
            f'MountVolume.NodeExpandVolume succeeded for volume "{volume.name}" {self._node_name}'
        )
        request.note("Normal", "FileSystemResizeSuccessful", text)
        log.info("volume_expanded", volume=volume.name, bytes=size)
        return True

    def _staged(self, volume: CsiVolume) -> str:
        if volume.block:
            return str(names.block_staging_path(self._root, volume.name))
        return str(names.staging_path(self._root, volume.driver, volume.handle))

    def _target(self, uid: str, volume: CsiVolume) -> str:
        if volume.block:
            return str(names.block_publish_path(self._root, volume.name, uid))
        return str(names.volume_dir(self._root, uid, volume.name) / "mount")


def resized(claim: PersistentVolumeClaim, size: Quantity) -> dict[str, Any]:
    """The patch that says that a claim's volume has grown. Pure."""
    ended = [c.type for c in claim.status.conditions if c.type in _RESIZING]
    status: dict[str, Any] = {"capacity": {_STORAGE: str(size)}}
    if ended:
        status["conditions"] = [{"type": name, "$patch": "delete"} for name in ended]
    if _STORAGE in claim.status.allocated_resource_statuses:
        status["allocatedResourceStatuses"] = {_STORAGE: None}
    return {"status": status}
