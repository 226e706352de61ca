"""Volumes of pods on this host: made, kept up to date, and removed.

docs/behaviour/volumes.md, "Manager". What is to be done about a volume is decided by
:mod:`nodeagent.volumes.reconcile`; here it is done, one step per volume at a time, in tasks of
:meth:`VolumeManager.run`.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.api import Pod, Volume
from nodeagent.clock import Clock, SystemClock
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import DeadlineError, PodUID, RejectedError, SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.empty_dir import EmptyDirPlugin
from nodeagent.volumes.followers import Followers, refers
from nodeagent.volumes.host_path import HostPathPlugin
from nodeagent.volumes.leftovers import (
    describe_left,
    make_pod_dirs,
    pods_on_disk,
    remove_pod_dir,
    volumes_on_disk,
)
from nodeagent.volumes.mounter import Mounter, MountError, SystemMounter
from nodeagent.volumes.operations import Operations, Record, nobody, say
from nodeagent.volumes.plugin import PluginRegistry, Stage, VolumePlugin, directory_name
from nodeagent.volumes.pod_volumes import (
    TIMED_OUT,
    OneVolume,
    PodVolumes,
    still_mounted,
    unready,
)
from nodeagent.volumes.reconcile import Held, VolumeState, at_once, back_off, began, next_step, wish
from nodeagent.volumes.stats import StatsService
from nodeagent.volumes.sub_path_service import SubPathService
from nodeagent.volumes.sub_paths import clean_sub_paths
from nodeagent.volumes.threads import DiskThreads
from nodeagent.volumes.usage import VolumeUsages
from nodeagent.volumes.wanted import needed_volumes

FAILED_MOUNT: Final = "FailedMount"
FAILED_UNMOUNT: Final = "FailedUnMount"
FAILED_DIRECTORIES: Final = "Failed"
_LONGEST_FILE_NAME: Final = 255
_ORPHAN_PATIENCE: Final = 2.0
_AT_A_TIME: Final = 8
_DIRS_LAST: Final = 30.0
"""Seconds for which directories that were made are taken to be there; a pod at rest is looked
after less often. A pod that starts is, several times a second."""

OnNote: TypeAlias = Callable[[PodUID], None]
"""Told that :meth:`VolumeManager.note` of a pod has changed."""


def _not_interested(_uid: PodUID) -> None:
    """Nobody shows notes."""


class VolumeManager:
    """Makes pods' directories and volumes, and removes them.

    Everything is idempotent. A step that hangs (a dead network file system) holds up its own
    volume and nobody else.

    Args:
        root_dir: the agent's directory.
        journal: the flight recorder.
        timeout: seconds that a pod waits for its volumes at a time.
        plugins: the kinds of volumes; emptyDir and hostPath by default.
        mounter: mounts.
        record: emits events about pods.
        clock: wall clock, for what is shown.
        note_after: seconds after which a pod that waits says what for.
    """

    def __init__(
        self,
        root_dir: Path,
        journal: Journal | None = None,
        *,
        timeout: float = 123.0,
        plugins: PluginRegistry | None = None,
        mounter: Mounter | None = None,
        record: Record = nobody,
        clock: Clock | None = None,
        note_after: float = 10.0,
    ) -> None:
        self._pods_dir = root_dir / "pods"
        self._plugins = plugins or PluginRegistry((EmptyDirPlugin(), HostPathPlugin()))
        self._mounter = mounter or SystemMounter()
        self._threads = DiskThreads()
        self._journal = journal or Journal()
        self._timeout = timeout
        self._note_after = note_after
        self._log = Log("volumes")
        self._pods: dict[PodUID, PodVolumes] = {}
        self.stats = StatsService(self._pods, self._pods_dir, VolumeUsages(self._threads, clock))
        """Tells what volumes take."""
        self._followers = Followers()
        self._dirs_made: dict[PodUID, float] = {}
        self._tasks: TaskGroup | None = None
        self._operations = Operations(
            root_dir, self._mounter, self._threads, record, clock or SystemClock(), self._journal
        )
        self.sub_paths = SubPathService(self._pods_dir, self._mounter, self._threads)
        """Mounts parts of volumes for containers."""
        self.on_note: OnNote = _not_interested

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work on volumes until cancelled. A step that is under way is left behind then."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                task_status.started()
                await anyio.sleep_forever()
            finally:
                self._tasks = None
                for held in self._pods.values():
                    held.stop_timer()
                tasks.cancel_scope.cancel()

    def pod_dir(self, uid: PodUID) -> Path:
        """The pod's directory."""
        if not _is_file_name(uid):
            message = f"pod UID {uid!r} is no file name"
            raise SyncError(message, reason=FAILED_DIRECTORIES)
        return self._pods_dir / uid

    async def make_pod_dirs(self, uid: PodUID) -> None:
        """Make the pod's directories.

        Raises:
            SyncError: with the reason ``Failed``.
        """
        path = self.pod_dir(uid)
        try:
            await self._threads.run(lambda: make_pod_dirs(path), self._timeout)
        except OSError as error:
            message = f"error making pod data directories: {say(error)}"
            raise SyncError(message, reason=FAILED_DIRECTORIES) from error
        self._dirs_made[uid] = anyio.current_time()

    async def mount(self, pod: Pod) -> dict[str, MountedVolume]:
        """Make the volumes that containers of the pod use ready; returns them by name.

        Content that may be behind is brought up to date, which is not waited for.

        Raises:
            DeadlineError: some are not ready in time. Events have told why.
            RejectedError: the pod can never have one of them here.
            SyncError: with the reason ``FailedMount``: one cannot be made ready as things are.
        """
        uid = PodUID(pod.metadata.uid)
        began_at = anyio.current_time()
        if began_at - self._dirs_made.get(uid, -math.inf) > _DIRS_LAST:
            await self.make_pod_dirs(uid)
        held = self._want(pod)
        self._kick(held)
        try:
            with anyio.fail_after(self._timeout):
                await self._until_ready(held)
        except TimeoutError:
            raise DeadlineError(unready(held, TIMED_OUT), reason=FAILED_MOUNT) from None
        finally:
            self._note(held, waiting=False)
        mounted = {v.name: v.mounted for v in held.wanted() if v.mounted is not None}
        if held.told != mounted.keys():
            took = anyio.current_time() - began_at
            self._journal.record(
                "volumes", "VolumesMounted", uid, "", took, volumes=sorted(mounted)
            )
            held.told = frozenset(mounted)
        return mounted

    async def _until_ready(self, held: PodVolumes) -> None:
        due = anyio.current_time() + self._note_after
        while missing := held.missing():
            for volume in missing:
                if volume.reject:
                    raise RejectedError(volume.error, reason=volume.reject)
                if volume.error and volume.stage is Stage.PROCESS:
                    raise SyncError(unready(held, volume.error), reason=FAILED_MOUNT)
            if any(volume.error for volume in missing):
                self._note(held, waiting=True)
            changed = held.changed
            with anyio.move_on_at(due) if due else anyio.CancelScope() as scope:
                await changed.wait()
            if scope.cancelled_caught:
                due = 0.0
                self._note(held, waiting=True)

    def note(self, uid: PodUID) -> str:
        """What a pod waits for that has waited for some time; "" for nothing."""
        held = self._pods.get(uid)
        if held is None or not held.waiting:
            return ""
        return "; ".join(filter(None, (v.trouble() for v in held.missing())))

    def _note(self, held: PodVolumes, *, waiting: bool) -> None:
        if held.waiting or waiting:
            held.waiting = waiting
            if waiting:
                self.on_note(held.uid)

    def object_changed(self, namespace: str, kind: str, name: str) -> None:
        """An object is new, different or gone: volumes with its content follow at once."""
        if uids := self._followers.of(namespace, kind, name):
            self._refresh_some(uids, kind, name)

    def _refresh_some(self, uids: list[PodUID], kind: str, name: str) -> None:
        """A few at a time: nobody else on the loop has to wait for all of them."""
        for uid in uids[:_AT_A_TIME]:
            held = self._pods.get(uid)
            if held is None or held.pod is None:
                continue
            for volume in held.wanted():
                if volume.spec is not None and refers(volume.spec, kind, name):
                    volume.state = wish(volume.state, wanted=True, stale=True)
            self._kick(held)
        if rest := uids[_AT_A_TIME:]:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._refresh_some, rest, kind, name)

    def try_again(self, uid: PodUID) -> None:
        """What a volume of the pod has waited for may be there now: do not wait longer."""
        held = self._pods.get(uid)
        if held is None:
            return
        for volume in held.missing() if held.pod is not None else held.left():
            volume.state = at_once(volume.state)
        self._kick(held)

    def _want(self, pod: Pod) -> PodVolumes:
        """Note what the pod needs.

        Raises:
            SyncError: there is no plugin for one of its volumes.
        """
        uid = PodUID(pod.metadata.uid)
        wanted: dict[str, tuple[Volume, VolumePlugin]] = {}
        for spec in needed_volumes(pod):
            plugin = self._plugins.find(spec)
            if plugin is None:
                message = f'volume "{spec.name}": this kind of volume is not supported'
                raise SyncError(message, reason=FAILED_MOUNT)
            wanted[f"volumes/{directory_name(plugin.name)}/{spec.name}"] = spec, plugin
        held = self._pods.setdefault(uid, PodVolumes(uid))
        if held.pod is None or held.pod.spec.volumes != pod.spec.volumes:
            self._followers.follow(pod)
        held.pod = pod
        for place, (spec, plugin) in wanted.items():
            volume = held.volumes.get(place)
            if volume is None:
                volume = held.volumes[place] = OneVolume(spec.name, place, plugin)
            volume.spec = spec
            if volume.stage is Stage.PROCESS and volume.error:
                # What it refers to may be usable by now: each sync of the pod looks again.
                volume.error = ""
                volume.state = wish(volume.state, wanted=False)
            volume.state = wish(volume.state, wanted=True, stale=plugin.refreshes)
        return held

    def _kick(self, held: PodVolumes) -> None:
        """Begin what can be done now, and come back when more can be."""
        held.stop_timer()
        if self._tasks is None:
            return
        now, due = anyio.current_time(), float("inf")
        for volume in held.volumes.values():
            step = next_step(volume.state, now)
            if step is not None:
                volume.state = began(volume.state, step)
                self._tasks.start_soon(
                    self._operations.perform, held, volume, step, self._kick, name="volume"
                )
            elif volume.state.busy is None and volume.state.retry_at > now:
                due = min(due, volume.state.retry_at)
        if due < float("inf"):
            loop = asyncio.get_running_loop()
            held.timer = loop.call_later(due - now, self._kick, held)

    async def unmount(self, uid: PodUID) -> None:
        """Remove the pod's volumes and its directory; nothing to remove is fine.

        Raises:
            SyncError: something is left: a foreign mount, what is in use, or what hangs.
        """
        if not _is_file_name(uid):
            # Such a pod never got a directory, and must end all the same.
            return
        held = self._pods.setdefault(uid, PodVolumes(uid))
        await self._unmount(held, self._timeout)

    async def remove_orphan(self, uid: PodUID) -> bool:
        """Remove what is left of a pod that nobody wants; True when nothing is.

        What cannot be removed is tried again after a back-off, and waited for only shortly.

        Raises:
            SyncError: something is left; each cause is raised once.
        """
        held = self._pods.setdefault(uid, PodVolumes(uid))
        now = anyio.current_time()
        if now < held.retry_at:
            return False
        try:
            await self._unmount(held, _ORPHAN_PATIENCE)
        except SyncError as error:
            held.failures += 1
            held.retry_at = now + back_off(held.failures)
            if held.reported == str(error):
                return False
            held.reported = str(error)
            raise
        return True

    async def _unmount(self, held: PodVolumes, patience: float) -> None:
        began_at, path = anyio.current_time(), self.pod_dir(held.uid)
        held.pod = None
        self._dirs_made.pop(held.uid, None)
        held.stop_timer()
        try:
            with anyio.fail_after(patience):
                await self._find_leftovers(held, path)
                for volume in held.volumes.values():
                    volume.state = wish(volume.state, wanted=True)
                    volume.state = wish(volume.state, wanted=False)
                    volume.error = ""
                await self._threads.run(lambda: clean_sub_paths(self._mounter, path))
                self._kick(held)
                await self._until_gone(held)
                existed, removal = await self._threads.run(lambda: remove_pod_dir(path))
        except TimeoutError:
            raise SyncError(still_mounted(held, TIMED_OUT), reason=FAILED_UNMOUNT) from None
        except (MountError, OSError) as error:
            raise SyncError(say(error), reason=FAILED_UNMOUNT) from error
        if not removal.complete:
            raise SyncError(describe_left(path, removal), reason=FAILED_UNMOUNT)
        self._forget(held)
        if existed:
            took = anyio.current_time() - began_at
            self._journal.record("volumes", "PodDirectoryRemoved", held.uid, "", took)

    async def _find_leftovers(self, held: PodVolumes, path: Path) -> None:
        for kind, directory, name in await self._threads.run(lambda: volumes_on_disk(path)):
            plugin = self._plugins.by_directory(directory)
            place = f"{kind}/{directory}/{name}"
            if plugin is not None and place not in held.volumes:
                state = VolumeState(wanted=False, held=Held.UNCERTAIN)
                held.volumes[place] = OneVolume(name, place, plugin, state=state)

    async def _until_gone(self, held: PodVolumes) -> None:
        while left := held.left():
            if all(volume.error and volume.state.busy is None for volume in left):
                raise SyncError(still_mounted(held, left[0].error), reason=FAILED_UNMOUNT)
            await held.changed.wait()

    def _forget(self, held: PodVolumes) -> None:
        held.stop_timer()
        self._pods.pop(held.uid, None)
        self.stats.forget(held.uid)
        self._followers.forget(held.uid)

    async def pods_on_disk(self) -> list[PodUID]:
        """The pods that have a directory."""
        found = await self._threads.run(lambda: pods_on_disk(self._pods_dir))
        return [PodUID(name) for name in found]


def _is_file_name(uid: PodUID) -> bool:
    if uid in ("", ".", "..") or "/" in uid or "\0" in uid:
        return False
    return len(os.fsencode(uid)) <= _LONGEST_FILE_NAME
