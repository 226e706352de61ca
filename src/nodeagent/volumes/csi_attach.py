"""Which volumes have to be attached to this node, and whether they are.

docs/behaviour/csi.md, "Attaching".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from nodeagent.api.node import Node
from nodeagent.api.storage import VolumeAttachment
from nodeagent.kube.errors import KubeError
from nodeagent.kube.paths import volume_attachment
from nodeagent.model import PodUID
from nodeagent.volumes.csi_names import attachment_name
from nodeagent.volumes.csi_volume import CsiVolume
from nodeagent.volumes.last_heard import Heard, LastHeard
from nodeagent.volumes.plugin import Stage, VolumeError

_LIMIT_EXCEEDED: Final = "VolumeAttachmentLimitExceeded"
_RESOURCE_EXHAUSTED: Final = 8
"""What gRPC calls it when there is no room for one more."""
_NOT_TOLD: Final = (
    "Volume has not been added to the list of VolumesInUse in the node's volume status"
)


class Attachments:
    """The volumes that others attach to, and detach from, this node.

    Args:
        heard: asks the API server, and knows what it said last.
        node_name: this node.
        node: this node as the API server shows it.
        managed: whether a controller attaches volumes, and says so in the Node's status.

    Attributes:
        on_wanted: called when other volumes are in use than before: the Node shall tell.
        on_told: called when the Node has told.
        on_full: called with the driver of a volume for which there was no room.
    """

    def __init__(
        self,
        heard: LastHeard,
        node_name: str,
        node: Callable[[], Node | None],
        *,
        managed: bool = True,
    ) -> None:
        self._heard = heard
        self._node_name = node_name
        self._node = node
        self._managed = managed
        self._used: set[str] = set()
        self._told: frozenset[str] = frozenset()
        self._complete = False
        self.on_wanted: list[Callable[[], None]] = []
        self.on_told: list[Callable[[], None]] = []
        self.on_full: list[Callable[[str], None]] = []

    def complete(self) -> None:
        """What an earlier agent left is known: from now on the list is right."""
        self._complete = True
        self._tell(self.on_wanted)

    def in_use(self) -> Sequence[str] | None:
        """The volumes that must stay attached; None as long as that is not known."""
        return sorted(self._used) if self._complete else None

    def reported(self, volumes: Sequence[str]) -> None:
        """The API server has these as volumes in use."""
        told = frozenset(volumes)
        news, self._told = told - self._told, told
        if news:
            self._tell(self.on_told)

    def want(self, name: str) -> None:
        """A volume is, or will be, in use."""
        if name not in self._used:
            self._used.add(name)
            self._tell(self.on_wanted)

    def release(self, name: str) -> None:
        """It is no longer, and may be detached."""
        if name in self._used:
            self._used.discard(name)
            self._tell(self.on_wanted)

    async def check(self, volume: CsiVolume, uid: PodUID) -> None:
        """Make sure that the volume is attached, as far as the Node knows.

        While the API server does not answer, what it said last to the pod counts.

        Raises:
            VolumeError: it is not, yet; or it never will be, since the node can have no more.
        """
        if not self._managed or (self._in_status(volume) and self._attached(volume)):
            return
        found = await self._attachment(volume, uid) if self._attached_before(volume, uid) else None
        if found is not None and not found.fresh:
            return
        if not self._in_status(volume):
            raise VolumeError(_NOT_TOLD, stage=Stage.ATTACH, quiet=True)
        found = found or await self._attachment(volume, uid)
        problem = None if found is None else found.item.status.attach_error
        if problem is not None and problem.error_code == _RESOURCE_EXHAUSTED:
            for listener in self.on_full:
                listener(volume.driver)
            raise VolumeError(problem.message, stage=Stage.ATTACH, reject=_LIMIT_EXCEEDED)
        text = "Volume not attached according to node status"
        raise VolumeError(text, stage=Stage.ATTACH, quiet=True)

    def _in_status(self, volume: CsiVolume) -> bool:
        return volume.unique_name in self._told

    def _attached(self, volume: CsiVolume) -> bool:
        node = self._node()
        attached = () if node is None else node.status.volumes_attached
        return any(one.name == volume.unique_name for one in attached)

    def _attached_before(self, volume: CsiVolume, uid: PodUID) -> bool:
        return self._heard.has(self._path(volume), uid)

    def _path(self, volume: CsiVolume) -> str:
        return volume_attachment(attachment_name(volume.driver, volume.handle, self._node_name))

    async def _attachment(self, volume: CsiVolume, uid: PodUID) -> Heard[VolumeAttachment] | None:
        try:
            return await self._heard.get(self._path(volume), VolumeAttachment, uid)
        except KubeError:
            return None  # it is waited for anyway

    async def context(self, volume: CsiVolume, uid: PodUID) -> Mapping[str, str]:
        """What attaching the volume gave.

        Raises:
            VolumeError: it is not attached after all.
        """
        name = attachment_name(volume.driver, volume.handle, self._node_name)
        what = f"volume attachment {name}"
        try:
            heard = await self._heard.get(self._path(volume), VolumeAttachment, uid)
        except KubeError as error:
            text = f"volume {volume.handle} has GET error for {what}: {error}"
            raise VolumeError(text, stage=Stage.ATTACH) from error
        found = heard.item
        if found.metadata.deletion_timestamp is not None:
            msg = f"{what} is being deleted"
            raise VolumeError(msg, stage=Stage.ATTACH)
        if found.status.attached:
            return found.status.attachment_metadata
        if found.status.attach_error is not None:
            raise VolumeError(found.status.attach_error.message, stage=Stage.ATTACH)
        msg = f"{what} is not attached yet"
        raise VolumeError(msg, stage=Stage.ATTACH, quiet=True)

    def _tell(self, listeners: list[Callable[[], None]]) -> None:
        for listener in listeners:
            listener()
