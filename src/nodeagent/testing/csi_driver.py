"""A small storage driver: each volume is a directory, or a file that is a device."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from anyio import to_thread

from nodeagent.csi.client import Abilities, NodeInfo, VolumeFullness
from nodeagent.proto import pluginregistration as registration
from nodeagent.proto.csi import v1
from nodeagent.rpc import InvalidArgument, NotFound, Servable, serve_unix
from nodeagent.volumes.mounter import Mounter, is_mounted

Before: TypeAlias = Callable[[str], Awaitable[None]]
"""Called with the name of each call before it is served; may wait, or raise an RpcError."""

_BLOCK_SIZE: Final = 4 * 2**20
_KINDS: Final = v1.NodeServiceCapabilityRpcType


async def _at_once(_method: str) -> None:
    """Serve it."""


@dataclass(slots=True)
class Told:
    """What the agent said of a registration."""

    registered: bool
    error: str


@dataclass(eq=False)
class CsiDriver:
    """The driver, and all that was asked of it.

    Attributes:
        name: its name.
        data: where its volumes are kept.
        mounter: mounts them.
        info: what it says of the node.
        abilities: what it says it can do.
        versions: of CSI that it says it speaks.
        fullness: how full it says its volumes are.
        before: comes before each call.
        keeps: whether it leaves everything mounted, and says that it does not.
        fake_devices: whether its devices are plain files, for who may not have devices.
        calls: names of calls and their requests, in order.
        told: what the agent said of its registrations.
    """

    name: str
    data: Path
    mounter: Mounter
    info: NodeInfo = field(default_factory=lambda: NodeInfo("node-1", 0, {}))
    abilities: Abilities = field(default_factory=lambda: Abilities(stage=True))
    versions: tuple[str, ...] = ("1.0.0",)
    fullness: VolumeFullness = field(default_factory=VolumeFullness)
    before: Before = _at_once
    keeps: bool = False
    fake_devices: bool = False
    calls: list[tuple[str, Any]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    _devices: dict[str, str] = field(default_factory=dict)

    def count(self) -> Counter[str]:
        """How often each call was made."""
        return Counter(name for name, _ in self.calls)

    def names(self) -> list[str]:
        """The calls in order, without questions that change nothing."""
        return [name for name, _ in self.calls if not name.startswith("NodeGet")]

    def last(self, name: str) -> Any:
        """The newest request of a call."""
        return next(request for called, request in reversed(self.calls) if called == name)

    def volume(self, volume_id: str) -> Path:
        """The directory of a volume."""
        return self.data / volume_id

    def release(self) -> None:
        """Give devices back. Blocking."""
        while self._devices:
            _, device = self._devices.popitem()
            subprocess.run(["losetup", "-d", device], check=True)

    @asynccontextmanager
    async def serving(self, directory: Path, endpoint: Path | None = None) -> AsyncIterator[None]:
        """Serve, and register, by sockets while inside.

        Args:
            directory: where the agent looks for plugins.
            endpoint: where the driver serves; None for the registration's own socket.
        """
        socket = directory / f"{self.name}.sock"
        node, about = _Node(self), _Registration(self, str(endpoint or ""))
        if endpoint is None:
            async with serve_unix((node, about), socket):
                yield
            return
        async with serve_unix((node,), endpoint), serve_unix((about,), socket):
            yield

    def node(self) -> Servable:
        """The service that the agent calls, for who serves it himself."""
        return _Node(self)

    async def take(self, name: str, request: Any) -> None:
        """Write a call down."""
        self.calls.append((name, request))
        await self.before(name)

    # -- what it does to the disk; all of it blocking -------------------------------------------

    def stage(self, volume_id: str, target: Path, *, block: bool) -> None:
        """Make a volume ready at a directory that exists."""
        if not target.is_dir():
            raise InvalidArgument("the staging path is no directory")
        if not block:
            self.show(volume_id, target, block=False, read_only=False)

    def show(self, volume_id: str, target: Path, *, block: bool, read_only: bool) -> None:
        """Make a volume visible at a path."""
        if not target.parent.is_dir():
            raise NotFound("the directory of the target path does not exist")
        source: Path
        if block:
            source = Path(self._device(volume_id))
            target.touch()
        else:
            source = self.volume(volume_id)
            source.mkdir(parents=True, exist_ok=True)
            target.mkdir(exist_ok=True)
        if not is_mounted(self.mounter, target):
            self.mounter.bind(source, target, read_only=read_only)

    def hide(self, target: Path) -> None:
        """Undo that."""
        if self.keeps:
            return
        while is_mounted(self.mounter, target):
            self.mounter.unmount(target)
        if target.is_dir():
            target.rmdir()
        else:
            target.unlink(missing_ok=True)

    def _device(self, volume_id: str) -> str:
        if volume_id not in self._devices:
            image = self.data / f"{volume_id}.img"
            if not image.exists():
                self.data.mkdir(parents=True, exist_ok=True)
                with image.open("wb") as file:
                    file.truncate(_BLOCK_SIZE)
            if self.fake_devices:
                return str(image)
            command = ["losetup", "--find", "--show", str(image)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            self._devices[volume_id] = done.stdout.strip()
        return self._devices[volume_id]

    def forget(self, volume_id: str) -> None:
        """Remove a volume and what is in it."""
        shutil.rmtree(self.volume(volume_id), ignore_errors=True)


class _Registration(registration.RegistrationBase):
    def __init__(self, driver: CsiDriver, endpoint: str) -> None:
        self._driver = driver
        self._endpoint = endpoint

    async def get_info(self, message: registration.InfoRequest) -> registration.PluginInfo:
        del message
        await self._driver.before("GetInfo")
        return registration.PluginInfo(
            type="CSIPlugin",
            name=self._driver.name,
            endpoint=self._endpoint,
            supported_versions=list(self._driver.versions),
        )

    async def notify_registration_status(
        self, message: registration.RegistrationStatus
    ) -> registration.RegistrationStatusResponse:
        self._driver.told.append(Told(message.plugin_registered, message.error))
        return registration.RegistrationStatusResponse()


class _Node(v1.NodeBase):
    def __init__(self, driver: CsiDriver) -> None:
        self._driver = driver

    async def node_get_info(self, message: v1.NodeGetInfoRequest) -> v1.NodeGetInfoResponse:
        await self._driver.take("NodeGetInfo", message)
        info = self._driver.info
        place = v1.Topology(segments=dict(info.topology)) if info.topology else None
        return v1.NodeGetInfoResponse(
            node_id=info.node_id, max_volumes_per_node=info.max_volumes, accessible_topology=place
        )

    async def node_get_capabilities(
        self, message: v1.NodeGetCapabilitiesRequest
    ) -> v1.NodeGetCapabilitiesResponse:
        await self._driver.take("NodeGetCapabilities", message)
        has = self._driver.abilities
        kinds: Mapping[v1.NodeServiceCapabilityRpcType, bool] = {
            _KINDS.STAGE_UNSTAGE_VOLUME: has.stage,
            _KINDS.EXPAND_VOLUME: has.expand,
            _KINDS.GET_VOLUME_STATS: has.stats,
            _KINDS.VOLUME_CONDITION: has.condition,
            _KINDS.SINGLE_NODE_MULTI_WRITER: has.single_writer,
            _KINDS.VOLUME_MOUNT_GROUP: has.mount_group,
        }
        return v1.NodeGetCapabilitiesResponse(
            capabilities=[
                v1.NodeServiceCapability(rpc=v1.NodeServiceCapabilityRpc(type=kind))
                for kind, can in kinds.items()
                if can
            ]
        )

    async def node_stage_volume(
        self, message: v1.NodeStageVolumeRequest
    ) -> v1.NodeStageVolumeResponse:
        await self._driver.take("NodeStageVolume", message)
        target = Path(message.staging_target_path)
        block = _is_block(message.volume_capability)
        await to_thread.run_sync(lambda: self._driver.stage(message.volume_id, target, block=block))
        return v1.NodeStageVolumeResponse()

    async def node_unstage_volume(
        self, message: v1.NodeUnstageVolumeRequest
    ) -> v1.NodeUnstageVolumeResponse:
        await self._driver.take("NodeUnstageVolume", message)
        target = Path(message.staging_target_path)
        await to_thread.run_sync(self._driver.hide, target)
        return v1.NodeUnstageVolumeResponse()

    async def node_publish_volume(
        self, message: v1.NodePublishVolumeRequest
    ) -> v1.NodePublishVolumeResponse:
        await self._driver.take("NodePublishVolume", message)
        target = Path(message.target_path)
        block = _is_block(message.volume_capability)
        await to_thread.run_sync(
            lambda: self._driver.show(
                message.volume_id, target, block=block, read_only=message.readonly
            )
        )
        return v1.NodePublishVolumeResponse()

    async def node_unpublish_volume(
        self, message: v1.NodeUnpublishVolumeRequest
    ) -> v1.NodeUnpublishVolumeResponse:
        await self._driver.take("NodeUnpublishVolume", message)
        await to_thread.run_sync(self._driver.hide, Path(message.target_path))
        return v1.NodeUnpublishVolumeResponse()

    async def node_get_volume_stats(
        self, message: v1.NodeGetVolumeStatsRequest
    ) -> v1.NodeGetVolumeStatsResponse:
        await self._driver.take("NodeGetVolumeStats", message)
        told = self._driver.fullness
        units = {v1.VolumeUsageUnit.BYTES: told.bytes, v1.VolumeUsageUnit.INODES: told.inodes}
        usage = [
            v1.VolumeUsage(total=found[0], available=found[1], used=found[2], unit=unit)
            for unit, found in units.items()
            if found is not None
        ]
        return v1.NodeGetVolumeStatsResponse(
            usage=usage,
            volume_condition=v1.VolumeCondition(abnormal=told.abnormal, message="")
            if told.abnormal is not None
            else None,
        )

    async def node_expand_volume(
        self, message: v1.NodeExpandVolumeRequest
    ) -> v1.NodeExpandVolumeResponse:
        await self._driver.take("NodeExpandVolume", message)
        wanted = message.capacity_range
        return v1.NodeExpandVolumeResponse(capacity_bytes=wanted.required_bytes if wanted else 0)


def _is_block(capability: v1.VolumeCapability | None) -> bool:
    return capability is not None and capability.block is not None
