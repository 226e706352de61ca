"""Volumes that storage drivers serve.

docs/behaviour/csi.md, "Volumes".
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from nodeagent.api import Volume
from nodeagent.api.storage import CSIDriver
from nodeagent.csi.client import Abilities, DriverClient, is_final
from nodeagent.csi.metrics import CsiMetrics
from nodeagent.csi.registry import DriverMissingError, DriverRegistry
from nodeagent.model import PodUID
from nodeagent.model.volumes import MountedVolume
from nodeagent.rpc import RpcError
from nodeagent.volumes import csi_data
from nodeagent.volumes import csi_names as names
from nodeagent.volumes.csi_asks import asked, driver_usage
from nodeagent.volumes.csi_attach import Attachments
from nodeagent.volumes.csi_block import (
    DeviceLocks,
    LoopLocks,
    map_device,
    remove_published,
    unmap_device,
)
from nodeagent.volumes.csi_calls import CallMaker, FindDriver
from nodeagent.volumes.csi_data import EPHEMERAL, PERSISTENT, VolumeData
from nodeagent.volumes.csi_errors import describe
from nodeagent.volumes.csi_stages import Stage as StagedVolume
from nodeagent.volumes.csi_stages import Stages
from nodeagent.volumes.csi_volume import (
    CsiVolume,
    attach_required,
    from_inline,
    gives_group,
    serves_inline,
)
from nodeagent.volumes.hand_over import hand_over
from nodeagent.volumes.mounter import Mounter, MountError, is_mounted
from nodeagent.volumes.plugin import SetUp, Stage, TearDown, VolumeError
from nodeagent.volumes.usage import Measure, VolumeUsage

_ONE_POD: Final = (
    "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiParts:
    """What the plugin stands on.

    Attributes:
        root: the agent's directory.
        node_name: this node.
        registry: the drivers.
        find_driver: how they want to be treated.
        calls: puts calls together.
        attachments: what has to be attached.
        stages: what is staged.
        metrics: where operations are counted.
        locks: keep devices open.
    """

    root: Path
    node_name: str
    registry: DriverRegistry
    find_driver: FindDriver
    calls: CallMaker
    attachments: Attachments
    stages: Stages
    metrics: CsiMetrics
    locks: DeviceLocks = field(default_factory=LoopLocks)


@dataclass(frozen=True, slots=True)
class _Ready:
    """What a call needs that was found out before."""

    volume: CsiVolume
    driver: CSIDriver | None
    client: DriverClient
    abilities: Abilities
    context: dict[str, str]
    staged: str
    """Where it is staged; "" for a driver that does not stage."""


class CsiPlugin:
    """Volumes of drivers: inline ones of pods, and persistent ones for who resolves claims."""

    name = names.PLUGIN
    refreshes = True

    def __init__(self, parts: CsiParts) -> None:
        self._parts = parts
        self._locks: dict[tuple[str, str], anyio.Lock] = {}
        self._wanted: dict[tuple[str, str], CsiVolume] = {}
        self._waiting: set[PodUID] = set()
        self.try_again: Callable[[PodUID], None] = lambda _uid: None
        """Has the volumes of a pod tried again."""

    def handles(self, volume: Volume) -> bool:
        """Whether a pod asks a driver itself."""
        return volume.csi is not None

    def wake(self) -> None:
        """A driver has come, or something is attached: who waits may go on."""
        waiting, self._waiting = self._waiting, set()
        for uid in waiting:
            self.try_again(uid)

    # -- making ------------------------------------------------------------------------------

    async def set_up(self, request: SetUp) -> MountedVolume:
        """Have an inline volume made."""
        return await self.set_up_volume(request, from_inline(request.pod, request.volume))

    async def set_up_volume(self, request: SetUp, volume: CsiVolume) -> MountedVolume:
        """Have a volume staged and published.

        Raises:
            VolumeError: it cannot be, now.
        """
        async with self._locked(request.uid, volume.name):
            await self._parts.stages.ready()
            operation = "map_volume" if volume.block else "volume_mount"
            with self._parts.metrics.operation(f"{names.PLUGIN}:{volume.driver}", operation):
                return await self._make(request, volume)

    async def _make(self, request: SetUp, volume: CsiVolume) -> MountedVolume:
        self._waiting.discard(request.uid)
        try:
            ready = await self._prepare(request, volume)
        except VolumeError as error:
            if error.quiet:
                self._waiting.add(request.uid)
            raise
        await self._publish(request, ready, first=True)
        path = self._target(request.uid, volume)
        if volume.block:
            path = await self._map(request, volume)
        elif gives_group(volume, ready.driver, request.ownership.fs_group) and not (
            ready.abilities.mount_group
        ):
            await hand_over(request, path)
        return MountedVolume(
            request.volume.name,
            str(path),
            read_only=volume.read_only,
            block=volume.block,
            groups=volume.groups,
            relabel=not volume.read_only and not volume.block,
        )

    async def _prepare(self, request: SetUp, volume: CsiVolume) -> _Ready:
        """Everything up to the staging, which is done once for all pods."""
        parts = self._parts
        driver = parts.find_driver(volume.driver)
        self._wanted[request.uid, volume.name] = volume
        if not volume.persistent:
            if text := serves_inline(volume.driver, driver):
                raise VolumeError(text)
            client = self._client(request.uid, volume, Stage.SET_UP)
            abilities = await asked(client.abilities, Stage.SET_UP)
            return _Ready(volume, driver, client, abilities, {}, "")
        stage = parts.stages.of(volume)
        if volume.one_pod and stage.users - {request.uid}:
            raise VolumeError(_ONE_POD)
        stage.users.add(request.uid)
        context: dict[str, str] = {}
        if attach_required(driver):
            parts.attachments.want(volume.unique_name)
            await parts.attachments.check(volume, request.uid)
            context = dict(await parts.attachments.context(volume, request.uid))
        where = Stage.MAP_DEVICE if volume.block else Stage.DEVICE
        client = self._client(request.uid, volume, where)
        abilities = await asked(client.abilities, where)
        ready = _Ready(
            volume, driver, client, abilities, context, str(stage.path) if abilities.stage else ""
        )
        async with stage.lock:
            await self._stage(request, ready, stage, where)
        return ready

    async def _stage(
        self, request: SetUp, ready: _Ready, stage: StagedVolume, where: Stage
    ) -> None:
        volume = ready.volume
        if stage.staged or not (ready.staged or volume.block):
            return
        known, data = stage.touched, self._data(volume)

        def make() -> None:
            csi_data.save(stage.data_dir, data)
            stage.path.mkdir(parents=True, exist_ok=True, mode=0o750)

        await request.threads.run(make)
        stage.touched = True
        if ready.staged:
            what = await self._parts.calls.staging(
                volume,
                ready.abilities,
                request.ownership.fs_group,
                ready.context,
                ready.staged,
            )
            try:
                await ready.client.stage(what)
            except RpcError as error:
                if is_final(error) and not known:
                    await self._parts.stages.undo(stage)
                raise VolumeError(describe(error), stage=where) from error
        stage.staged = True

    async def _publish(self, request: SetUp, ready: _Ready, *, first: bool) -> None:
        volume = ready.volume
        where = Stage.MAP if volume.block else Stage.SET_UP
        target = self._target(request.uid, volume)
        data = self._data(volume)
        what = await self._parts.calls.publishing(
            request.pod,
            volume,
            ready.driver,
            ready.abilities,
            request.ownership.fs_group,
            ready.context,
            ready.staged,
        )

        def make() -> bool:
            known = is_mounted(request.mounter, target)
            if volume.block:
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            else:
                csi_data.save(target.parent, data)
            return known

        known = await request.threads.run(make)
        try:
            await ready.client.publish(what, str(target), read_only=volume.read_only)
        except RpcError as error:
            if first and not known and is_final(error):
                with suppress(OSError, MountError):
                    await request.threads.run(
                        lambda: self._clear(request.uid, volume.name, volume.block, request.mounter)
                    )
            raise VolumeError(describe(error), stage=where) from error

    async def _map(self, request: SetUp, volume: CsiVolume) -> Path:
        uid, parts = request.uid, self._parts
        try:
            return await request.threads.run(
                lambda: map_device(parts.root, uid, volume.name, request.mounter, parts.locks)
            )
        except (MountError, OSError) as error:
            raise VolumeError(describe(error), stage=Stage.MAP) from error

    # -- keeping -----------------------------------------------------------------------------

    async def refresh(self, request: SetUp) -> bool:
        """Have an inline volume published again, if its driver wants that."""
        return await self.refresh_volume(request, from_inline(request.pod, request.volume))

    async def refresh_volume(self, request: SetUp, volume: CsiVolume) -> bool:
        """Have a volume published again, if its driver wants that; nothing else changes.

        Raises:
            VolumeError: it does not work; the volume stays as it is.
        """
        driver = self._parts.find_driver(volume.driver)
        if driver is None or not driver.spec.requires_republish:
            return False
        async with self._locked(request.uid, volume.name):
            ready = await self._prepare(request, volume)
            await self._publish(request, ready, first=False)
        return False

    async def measure(self, request: Measure) -> VolumeUsage | None:
        """How full it is, if its driver says that."""
        return await self.measure_volume(request, request.name)

    async def measure_volume(self, request: Measure, spec: str) -> VolumeUsage | None:
        """How full a volume is.

        Args:
            request: whose volume.
            spec: name of the PersistentVolume, or of an inline volume.

        Raises:
            OSError: its driver does not say now.
        """
        wanted = self._wanted.get((request.uid, spec))
        if wanted is None:
            return None
        try:
            client = self._parts.registry.find(wanted.driver)
            return await driver_usage(client, wanted.handle, self._target(request.uid, wanted))
        except (RpcError, DriverMissingError) as error:
            raise OSError(describe(error)) from error

    # -- unmaking ----------------------------------------------------------------------------

    async def tear_down(self, request: TearDown) -> None:
        """Have a volume unpublished; the last pod's is unstaged after that."""
        spec = request.directory.name
        block = request.directory.parent.parent.name == names.DEVICES
        async with self._locked(request.uid, spec):
            await self._parts.stages.ready()
            await self._unmake(request, spec, block=block)
            wanted = self._wanted.pop((request.uid, spec), None)
            self._waiting.discard(request.uid)
            if wanted is not None and wanted.persistent:
                self._parts.stages.release(wanted.driver, wanted.handle, request.uid)
        self._locks.pop((request.uid, spec), None)

    async def _unmake(self, request: TearDown, spec: str, *, block: bool) -> None:
        data_dir = names.block_dir(self._parts.root, spec) / "data" if block else request.directory
        data = await request.threads.run(lambda: csi_data.load(data_dir))
        there = await request.threads.run(lambda: csi_data.is_there(request.directory))
        if not there:
            return
        target = (
            names.block_publish_path(self._parts.root, spec, request.uid)
            if block
            else request.directory / "mount"
        )
        mounter, uid = request.mounter, request.uid
        if data is not None:
            operation = "unmap_volume" if block else "volume_unmount"
            with self._parts.metrics.operation(f"{names.PLUGIN}:{data.driver}", operation):
                if block:
                    await request.threads.run(
                        lambda: unmap_device(
                            self._parts.root, uid, spec, mounter, self._parts.locks
                        )
                    )
                try:
                    client = self._parts.registry.find(data.driver)
                    await client.unpublish(data.handle, str(target))
                except (RpcError, DriverMissingError) as error:
                    if isinstance(error, DriverMissingError):
                        self._waiting.add(uid)
                    raise VolumeError(describe(error)) from error
        await request.threads.run(lambda: self._clear(uid, spec, block, mounter))
        if data is not None and data.persistent:
            self._parts.stages.release(data.driver, data.handle, uid)

    def _clear(self, uid: str, spec: str, block: bool, mounter: Mounter) -> None:
        """Remove what is left of a volume of a pod, and nothing that is in the volume."""
        root = self._parts.root
        if block:
            remove_published(root, uid, spec)
            return
        directory = names.volume_dir(root, uid, spec)
        target = directory / "mount"
        if is_mounted(mounter, target):
            msg = f"{target} is still mounted although the driver has unpublished it"
            raise MountError(msg)
        with suppress(FileNotFoundError):
            target.rmdir()
        csi_data.remove(directory)

    # -- small things ------------------------------------------------------------------------

    def _locked(self, uid: str, spec: str) -> anyio.Lock:
        return self._locks.setdefault((uid, spec), anyio.Lock())

    def _client(self, uid: PodUID, volume: CsiVolume, stage: Stage) -> DriverClient:
        try:
            return self._parts.registry.find(volume.driver)
        except DriverMissingError as error:
            self._waiting.add(uid)
            raise VolumeError(str(error), stage=stage) from error

    def _target(self, uid: str, volume: CsiVolume) -> Path:
        if volume.block:
            return names.block_publish_path(self._parts.root, volume.name, uid)
        return names.volume_dir(self._parts.root, uid, volume.name) / "mount"

    def _data(self, volume: CsiVolume) -> VolumeData:
        node = self._parts.node_name
        attachment = names.attachment_name(volume.driver, volume.handle, node)
        return VolumeData(
            volume.driver,
            volume.handle,
            volume.name,
            node,
            attachment if volume.persistent else "",
            PERSISTENT if volume.persistent else EPHEMERAL,
        )
