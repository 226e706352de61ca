"""Volumes that are, or may be, staged on this node, and the end of those that no pod has.

docs/behaviour/csi.md, "Volumes".
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.csi.client import TIMEOUT
from nodeagent.csi.metrics import CsiMetrics
from nodeagent.csi.registry import DriverMissingError, DriverRegistry
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.rpc import RpcError
from nodeagent.volumes import csi_data
from nodeagent.volumes import csi_names as names
from nodeagent.volumes.csi_attach import Attachments
from nodeagent.volumes.csi_errors import describe
from nodeagent.volumes.csi_volume import CsiVolume
from nodeagent.volumes.mounter import Mounter, MountError, is_mounted
from nodeagent.volumes.reconcile import back_off
from nodeagent.volumes.threads import DiskThreads

log = Log("csi")

_EXPECTED: Final = (RpcError, DriverMissingError, MountError, OSError)


@dataclass(slots=True, eq=False)
class Stage:
    """One volume that outlives its pods.

    Attributes:
        driver: who serves it.
        handle: the driver's name of it.
        name: of its PersistentVolume; "" when only the place is known.
        block: whether it is a device.
        path: where it is staged.
        users: pods that have it, or may have it.
        one_pod: whether one of them is enough.
        staged: whether this agent knows that it is staged.
        touched: whether it may be staged: then it must be unstaged in the end.
        lock: held by who stages or unstages it.
    """

    driver: str
    handle: str
    name: str
    block: bool
    path: Path
    users: set[str] = field(default_factory=set)
    one_pod: bool = False
    staged: bool = False
    touched: bool = False
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    busy: bool = False
    failures: int = 0
    retry_at: float = 0.0
    said: str = ""

    @property
    def unique_name(self) -> str:
        """How the Node lists it."""
        return names.unique_name(self.driver, self.handle)

    @property
    def data_dir(self) -> Path:
        """Where its data are written."""
        if self.block:
            return self.path.parent.parent / self.path.name / "data"
        return self.path.parent


class Stages:
    """All of them. What no pod has any more is unstaged, however often that fails.

    Args:
        root: the agent's directory.
        registry: the drivers.
        attachments: told when a volume may be detached.
        metrics: where operations are counted.
        journal: the flight recorder.
        mounter: says what is mounted.
    """

    def __init__(
        self,
        root: Path,
        registry: DriverRegistry,
        attachments: Attachments,
        metrics: CsiMetrics,
        journal: Journal,
        mounter: Mounter,
    ) -> None:
        self._root = root
        self._registry = registry
        self._attachments = attachments
        self._metrics = metrics
        self._journal = journal
        self._mounter = mounter
        self._threads = DiskThreads()
        self._stages: dict[str, Stage] = {}
        self._recalled = anyio.Event()
        self._woken = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Find out what an earlier agent left, then unstage what nobody needs, until cancelled."""
        task_status.started()
        await self._recall()
        async with anyio.create_task_group() as tasks:
            while True:
                self._woken = anyio.Event()
                due = self._begin(tasks)
                with anyio.CancelScope(deadline=due):
                    await self._woken.wait()

    def wake(self) -> None:
        """Try again now what failed: a driver may have come."""
        for stage in self._stages.values():
            stage.failures, stage.retry_at = 0, 0.0
        self._woken.set()

    async def ready(self) -> None:
        """Return when it is known what an earlier agent left."""
        await self._recalled.wait()

    def all(self) -> list[Stage]:
        """The volumes that pods have, or that are, or may be, staged."""
        return list(self._stages.values())

    def of(self, volume: CsiVolume) -> Stage:
        """The stage of a volume."""
        path = (
            names.block_staging_path(self._root, volume.name)
            if volume.block
            else names.staging_path(self._root, volume.driver, volume.handle)
        )
        stage = self._get(volume.driver, volume.handle, volume.name, volume.block, path)
        stage.one_pod, stage.name = volume.one_pod, volume.name
        return stage

    async def undo(self, stage: Stage) -> None:
        """Staging it has failed for good, and it was not staged before: leave nothing."""
        with suppress(OSError, MountError):
            await self._threads.run(lambda: remove_stage(self._mounter, stage), TIMEOUT)
            stage.touched = False

    def release(self, driver: str, handle: str, uid: str) -> None:
        """A pod no longer has a volume."""
        stage = self._stages.get(names.unique_name(driver, handle))
        if stage is None:
            return
        stage.users.discard(uid)
        if not stage.users:
            self._woken.set()

    async def _recall(self) -> None:
        found, used = await self._threads.run(
            lambda: (
                list(csi_data.staged(self._root)),
                list(csi_data.published(self._root)),
            )
        )
        for block, path, data in found:
            stage = self._get(data.driver, data.handle, data.spec_name, block, path)
            stage.touched = True
        for uid, spec, data in used:
            if not data.persistent:
                continue
            path = names.staging_path(self._root, data.driver, data.handle)
            self._get(data.driver, data.handle, spec, block=False, path=path).users.add(uid)
        self._recalled.set()

    def _get(self, driver: str, handle: str, name: str, block: bool, path: Path) -> Stage:
        key = names.unique_name(driver, handle)
        stage = self._stages.get(key)
        if stage is None:
            stage = self._stages[key] = Stage(driver, handle, name, block, path)
        return stage

    # -- the end of what nobody has ----------------------------------------------------------

    def _begin(self, tasks: TaskGroup) -> float:
        """Begin to unstage what can be; the loop time at which there is more to do."""
        due, now = float("inf"), anyio.current_time()
        for key, stage in list(self._stages.items()):
            if stage.users or stage.busy:
                continue
            if not stage.touched:
                # A driver that does not stage. Who is just about to use it holds the lock.
                if not stage.lock.locked():
                    self._gone(key, stage)
            elif stage.retry_at > now:
                due = min(due, stage.retry_at)
            else:
                stage.busy = True
                tasks.start_soon(self._end, key, stage, name="unstage")
        return due

    async def _end(self, key: str, stage: Stage) -> None:
        try:
            async with stage.lock:
                if not stage.users:
                    stage.staged = False
                    with self._metrics.operation(
                        f"{names.PLUGIN}:{stage.driver}", "unmount_device"
                    ):
                        await self._unstage(stage)
                    stage.touched = False
                    if not stage.users:
                        self._gone(key, stage)
        except _EXPECTED as error:
            self._failed(stage, error)
        except Exception as error:  # noqa: BLE001 - the others go on
            log.fault("unstage_broke", error, volume=stage.handle, driver=stage.driver)
            self._failed(stage, error)
        finally:
            stage.busy = False
            self._woken.set()

    async def _unstage(self, stage: Stage) -> None:
        client = self._registry.find(stage.driver)
        if (await client.abilities()).stage:
            await client.unstage(stage.handle, str(stage.path))
        await self._threads.run(lambda: remove_stage(self._mounter, stage), TIMEOUT)
        self._journal.record("csi", "VolumeUnstaged", why=stage.handle, driver=stage.driver)

    def _failed(self, stage: Stage, error: Exception) -> None:
        stage.failures += 1
        stage.retry_at = anyio.current_time() + back_off(stage.failures)
        text = describe(error)
        if text != stage.said:
            stage.said = text
            log.warning("not_unstaged", volume=stage.handle, driver=stage.driver, cause=text)
            self._journal.record("csi", "UnstageFailed", why=text, volume=stage.handle)

    def _gone(self, key: str, stage: Stage) -> None:
        if self._stages.get(key) is stage:
            del self._stages[key]
        self._attachments.release(stage.unique_name)


def remove_stage(mounter: Mounter, stage: Stage) -> None:
    """Remove what is left of a staging place; never anything that is in the volume. Blocking.

    Raises:
        MountError: it is still mounted.
        OSError: there is something in it.
    """
    if is_mounted(mounter, stage.path):
        msg = f"{stage.path} is still mounted although the driver has unstaged it"
        raise MountError(msg)
    with suppress(FileNotFoundError):
        stage.path.rmdir()
    csi_data.remove(stage.data_dir)
    if stage.block:
        for directory in (stage.data_dir.parent / "dev", stage.data_dir.parent):
            with suppress(FileNotFoundError):
                directory.rmdir()
