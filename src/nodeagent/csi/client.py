"""Calls of one storage driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from nodeagent.csi.metrics import CsiMetrics
from nodeagent.rpc import (
    Aborted,
    Cancelled,
    DeadlineExceeded,
    Message,
    ResourceExhausted,
    RpcChannel,
    RpcError,
    Unavailable,
)

if TYPE_CHECKING:
    from nodeagent.proto.csi.v1 import VolumeCapability

TIMEOUT: Final = 120.0
"""Seconds that a driver has for a call."""

_NOT_FINAL: Final = (Cancelled, DeadlineExceeded, Unavailable, ResourceExhausted, Aborted)

Reply = TypeVar("Reply", bound=Message)


def is_final(error: RpcError) -> bool:
    """Whether a failed call is over, and had no effect.

    Otherwise the driver may still be at it, or may have done it: it must be undone.
    """
    return not isinstance(error, _NOT_FINAL)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a driver can do on a node.

    Attributes:
        stage: volumes are staged before they are published.
        expand: file systems grow with their volumes.
        stats: it says how full volumes are.
        condition: it says whether something is wrong with them.
        single_writer: it tells one pod from several pods of one node.
        mount_group: it sets the group of files itself.
    """

    stage: bool = False
    expand: bool = False
    stats: bool = False
    condition: bool = False
    single_writer: bool = False
    mount_group: bool = False


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a node is for a driver.

    Attributes:
        node_id: its name there.
        max_volumes: how many volumes it can have; 0 for any number.
        topology: where it is.
    """

    node_id: str
    max_volumes: int
    topology: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFullness:
    """How full a volume is, as its driver says.

    Attributes:
        bytes: all, free and used; None when it does not say.
        inodes: likewise.
        abnormal: whether something is wrong with it; None when it does not say.
    """

    bytes: tuple[int, int, int] | None = None
    inodes: tuple[int, int, int] | None = None
    abnormal: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A volume that is to be staged or published.

    Attributes:
        volume_id: the driver's name of it.
        staging_path: where it is, or shall be, staged; "" for a driver that does not stage.
        capability: how it is to be used.
        publish_context: what attaching it gave.
        volume_context: what making it gave, and what the driver wants to know of the pod.
        secrets: credentials; never logged.
    """

    volume_id: str
    staging_path: str
    capability: VolumeCapability
    publish_context: Mapping[str, str]
    volume_context: Mapping[str, str]
    secrets: Mapping[str, str]


class DriverClient:
    """Calls a driver. All methods raise ``RpcError``.

    Args:
        name: the driver's name.
        endpoint: path of its socket.
        metrics: where calls are counted.
        timeout: seconds that a call may take.
    """

    def __init__(
        self, name: str, endpoint: str, metrics: CsiMetrics, timeout: float = TIMEOUT
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self._metrics = metrics
        self._timeout = timeout
        self._channel = RpcChannel(endpoint)

    async def aclose(self) -> None:
        """Close the connection; calls in flight fail as unavailable."""
        await self._channel.aclose()

    async def info(self) -> NodeInfo:
        """Ask what this node is."""
        from nodeagent.proto.csi import v1

        reply = await self._call("NodeGetInfo", v1.NodeGetInfoRequest(), v1.NodeGetInfoResponse)
        place = reply.accessible_topology
        return NodeInfo(
            reply.node_id, reply.max_volumes_per_node, dict(place.segments) if place else {}
        )

    async def abilities(self) -> Abilities:
        """Ask what the driver can do."""
        from nodeagent.proto.csi import v1

        reply = await self._call(
            "NodeGetCapabilities", v1.NodeGetCapabilitiesRequest(), v1.NodeGetCapabilitiesResponse
        )
        kinds = {c.rpc.type for c in reply.capabilities if c.rpc is not None}
        known = v1.NodeServiceCapabilityRpcType
        return Abilities(
            stage=known.STAGE_UNSTAGE_VOLUME in kinds,
            expand=known.EXPAND_VOLUME in kinds,
            stats=known.GET_VOLUME_STATS in kinds,
            condition=known.VOLUME_CONDITION in kinds,
            single_writer=known.SINGLE_NODE_MULTI_WRITER in kinds,
            mount_group=known.VOLUME_MOUNT_GROUP in kinds,
        )

    async def stage(self, what: Publication) -> None:
        """Make a volume ready for all pods."""
        from nodeagent.proto.csi import v1

        request = v1.NodeStageVolumeRequest(
            volume_id=what.volume_id,
            publish_context=dict(what.publish_context),
            staging_target_path=what.staging_path,
            volume_capability=what.capability,
            secrets=dict(what.secrets),
            volume_context=dict(what.volume_context),
        )
        await self._call("NodeStageVolume", request, v1.NodeStageVolumeResponse)

    async def unstage(self, volume_id: str, staging_path: str) -> None:
        """Undo that."""
        from nodeagent.proto.csi import v1

        request = v1.NodeUnstageVolumeRequest(volume_id=volume_id, staging_target_path=staging_path)
        await self._call("NodeUnstageVolume", request, v1.NodeUnstageVolumeResponse)

    async def publish(self, what: Publication, target_path: str, *, read_only: bool) -> None:
        """Show a volume to a pod."""
        from nodeagent.proto.csi import v1

        request = v1.NodePublishVolumeRequest(
            volume_id=what.volume_id,
            publish_context=dict(what.publish_context),
            staging_target_path=what.staging_path,
            target_path=target_path,
            volume_capability=what.capability,
            readonly=read_only,
            secrets=dict(what.secrets),
            volume_context=dict(what.volume_context),
        )
        await self._call("NodePublishVolume", request, v1.NodePublishVolumeResponse)

    async def unpublish(self, volume_id: str, target_path: str) -> None:
        """Undo that."""
        from nodeagent.proto.csi import v1

        request = v1.NodeUnpublishVolumeRequest(volume_id=volume_id, target_path=target_path)
        await self._call("NodeUnpublishVolume", request, v1.NodeUnpublishVolumeResponse)

    async def usage(self, volume_id: str, path: str) -> VolumeFullness:
        """How full a volume is that is published at a path."""
        from nodeagent.proto.csi import v1

        request = v1.NodeGetVolumeStatsRequest(volume_id=volume_id, volume_path=path)
        reply = await self._call("NodeGetVolumeStats", request, v1.NodeGetVolumeStatsResponse)
        units = v1.VolumeUsageUnit
        found = {one.unit: (one.total, one.available, one.used) for one in reply.usage}
        condition = reply.volume_condition
        return VolumeFullness(
            bytes=found.get(units.BYTES),
            inodes=found.get(units.INODES),
            abnormal=None if condition is None else condition.abnormal,
        )

    async def expand(self, what: Publication, path: str, size: int) -> int:
        """Let a volume's file system grow; its size, 0 when the driver does not say."""
        from nodeagent.proto.csi import v1

        request = v1.NodeExpandVolumeRequest(
            volume_id=what.volume_id,
            volume_path=path,
            capacity_range=v1.CapacityRange(required_bytes=size),
            staging_target_path=what.staging_path,
            volume_capability=what.capability,
            secrets=dict(what.secrets),
        )
        reply = await self._call("NodeExpandVolume", request, v1.NodeExpandVolumeResponse)
        return reply.capacity_bytes

    async def _call(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        path = f"/csi.v1.Node/{method}"
        with self._metrics.call(self.name, path):
            return await self._channel.unary(path, request, reply, timeout=self._timeout)
