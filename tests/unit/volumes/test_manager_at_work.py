"""When volumes are made, tried again and removed (docs/behaviour/volumes.md, "Manager")."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pytest
from tests.unit.volumes.content_lab import Rig, make_pod, running, until

from nodeagent.api import (
    Container,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    NFSVolumeSource,
    ObjectMeta,
    Pod,
    PodSpec,
    Volume,
)
from nodeagent.model import DeadlineError, PodUID, SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.testing import RecordedMounter
from nodeagent.volumes import VolumeManager
from nodeagent.volumes.mounter import MountError
from nodeagent.volumes.nfs import NfsPlugin, export
from nodeagent.volumes.plugin import PluginRegistry, SetUp, Stage, TearDown, VolumeError

pytestmark = pytest.mark.anyio

UID = PodUID("uid-1")
MEMORY = Volume(name="v", empty_dir=EmptyDirVolumeSource(medium="Memory"))
DISK = Volume(name="disk", empty_dir=EmptyDirVolumeSource())


async def test_only_volumes_that_a_container_uses_are_made(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        pod = Pod(
            metadata=ObjectMeta(name="web", uid=UID),
            spec=PodSpec(volumes=(MEMORY,), containers=(Container(name="main"),)),
        )
        assert await rig.manager.mount(pod) == {}
        assert rig.mounter.calls == []


async def test_a_failure_is_told_and_tried_again_while_the_pod_waits(tmp_path: Path) -> None:
    target = tmp_path / "late"
    volume = Volume(name="v", host_path=HostPathVolumeSource(path=str(target), type="Directory"))
    async with running(tmp_path, timeout=60) as rig:
        seen: list[str] = []

        def on_note(uid: PodUID) -> None:
            seen.append(rig.manager.note(uid))
            target.mkdir(exist_ok=True)

        rig.manager.on_note = on_note
        began = anyio.current_time()
        assert await rig.manager.mount(make_pod(volume))
        assert 0.5 <= anyio.current_time() - began < 5
        cause = f"hostPath type check failed: {target} is not a directory: it does not exist"
        assert seen[0] == f'volume "v": {cause}'
        assert rig.events == [
            ("Warning", "FailedMount", f'MountVolume.SetUp failed for volume "v" : {cause}')
        ]
        assert rig.manager.note(UID) == ""


async def test_a_volume_that_hangs_holds_up_nobody_else_and_its_pod_says_since_when(
    tmp_path: Path,
) -> None:
    released = threading.Event()

    def hang(call: str) -> None:
        if call.startswith("mount") and "uid-1" in call:
            released.wait(30)

    async with running(tmp_path, timeout=0.2) as rig:
        rig.mounter.before = hang
        try:
            says = r'unmounted volumes=\[v\].*volume "v": mounting since \d{4}-.*no answer yet'
            with pytest.raises(DeadlineError, match=says):
                await rig.manager.mount(make_pod(MEMORY))
            # The same step is not begun a second time.
            with pytest.raises(DeadlineError, match=says):
                await rig.manager.mount(make_pod(MEMORY))
            assert await rig.manager.mount(make_pod(MEMORY, uid="uid-2"))
            with pytest.raises(SyncError, match=r"mounted volumes=\[v\]: timed out"):
                await rig.manager.unmount(UID)
            assert rig.events == []
        finally:
            released.set()
        await until(lambda: rig.mounter.points == [] or len(rig.mounter.calls) > 2)
        await rig.manager.unmount(UID)
        assert all("uid-1" not in point.path for point in rig.mounter.points)


async def test_what_an_earlier_agent_left_is_taken_over_or_removed(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.manager.mount(make_pod(MEMORY, DISK))
        points = rig.mounter.points
        (rig.volume_dir("empty-dir", "disk") / "file").write_text("x")
    async with running(tmp_path) as rig:
        rig.mounter.points = points
        await rig.manager.mount(make_pod(MEMORY, DISK))
        assert rig.mounter.calls == []
        assert (rig.volume_dir("empty-dir", "disk") / "file").read_text() == "x"
    async with running(tmp_path) as rig:
        rig.mounter.points = points
        assert await rig.manager.remove_orphan(UID)
        assert points == []
        assert not (tmp_path / "pods" / UID).exists()


async def test_parts_of_volumes_go_before_the_volumes(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.manager.mount(make_pod(MEMORY))
        top = rig.volume_dir("empty-dir")
        await rig.manager.sub_paths.prepare(UID, "main", 0, MountedVolume("v", str(top)), "")
        await rig.manager.unmount(UID)
        unmounts = [call for call in rig.mounter.calls if call.startswith("unmount")]
        pod = tmp_path / "pods" / UID
        assert unmounts == [f"unmount {pod}/volume-subpaths/v/main/0", f"unmount {top}"]


async def test_what_is_in_use_is_named_and_nothing_is_removed(tmp_path: Path) -> None:
    def busy(call: str) -> None:
        if call.startswith("unmount"):
            raise MountError(f"{call}: Device or resource busy")

    async with running(tmp_path) as rig:
        await rig.manager.mount(make_pod(MEMORY, DISK))
        rig.mounter.before = busy
        says = r"mounted volumes=\[v\]: unmount .*: Device or resource busy"
        with pytest.raises(SyncError, match=says) as caught:
            await rig.manager.unmount(UID)
        assert caught.value.reason == "FailedUnMount"
        assert rig.volume_dir("empty-dir").is_dir()
        rig.mounter.before = lambda _call: None
        await rig.manager.unmount(UID)
        assert not (tmp_path / "pods" / UID).exists()


async def test_a_volume_of_an_unknown_kind_is_not_touched_and_said_once(tmp_path: Path) -> None:
    unknown = tmp_path / "pods" / UID / "volumes/example.org~disk/v"
    unknown.mkdir(parents=True)
    (unknown / "precious").touch()
    async with running(tmp_path) as rig:
        with pytest.raises(SyncError, match=f"{unknown}: Directory not empty"):
            await rig.manager.remove_orphan(UID)
        assert not await rig.manager.remove_orphan(UID)
        await anyio.sleep(1)
        assert not await rig.manager.remove_orphan(UID)
        assert (unknown / "precious").exists()
        (unknown / "precious").unlink()
        await anyio.sleep(2)
        assert await rig.manager.remove_orphan(UID)
        assert not unknown.exists()


async def test_a_live_mount_in_an_orphans_directory_is_never_deleted_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = tmp_path / "pods" / UID / "volumes/example.org~disk/v"
    foreign.mkdir(parents=True)
    monkeypatch.setattr(
        "nodeagent.volumes.leftovers.mount_points_below",
        lambda path: frozenset({str(path)}),
    )
    async with running(tmp_path) as rig:
        with pytest.raises(SyncError, match=f"still mounted: {foreign}"):
            await rig.manager.remove_orphan(UID)
        assert not await rig.manager.remove_orphan(UID)
        assert foreign.is_dir()


class Broken:
    """A kind of volume that fails as a test says."""

    name = "example.org/broken"
    refreshes = False

    def __init__(self, error: Exception) -> None:
        self.error = error

    def handles(self, volume: Volume) -> bool:
        return volume.nfs is not None

    async def set_up(self, request: SetUp) -> MountedVolume:
        del request
        raise self.error

    async def refresh(self, request: SetUp) -> bool:
        raise NotImplementedError

    async def tear_down(self, request: TearDown) -> None:
        del request


NFS = Volume(name="v", nfs=NFSVolumeSource(server="fs", path="/x"))


async def with_plugin(rig: Rig, error: Exception, timeout: float = 1.0) -> SyncError:
    """What a pod gets to hear whose volume fails like that."""
    manager = VolumeManager(
        rig.root,
        plugins=PluginRegistry((Broken(error),)),
        record=lambda _pod, *event: rig.events.append(event),
        timeout=timeout,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(manager.run)
        with pytest.raises(SyncError) as caught:
            await manager.mount(make_pod(NFS))
        tasks.cancel_scope.cancel()
    return caught.value


async def test_what_cannot_be_processed_is_told_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        began = anyio.current_time()
        error = VolumeError("error processing PVC default/c: PVC is not bound", stage=Stage.PROCESS)
        told = await with_plugin(rig, error, timeout=60)
        assert not isinstance(told, DeadlineError)
        assert str(told) == (
            "unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: "
            "error processing PVC default/c: PVC is not bound"
        )
        assert rig.events == []
        assert anyio.current_time() - began < 5


async def test_what_is_not_attached_is_named_apart(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        told = await with_plugin(rig, VolumeError("volume not attached", stage=Stage.ATTACH))
        assert "unmounted volumes=[v], unattached volumes=[v]" in str(told)
        text = 'MountVolume.WaitForAttach failed for volume "v" : volume not attached'
        assert rig.events[0] == ("Warning", "FailedMount", text)


async def test_a_pod_that_can_never_run_here_is_told_why(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        error = VolumeError("no room for another volume", reject="VolumeAttachmentLimitExceeded")
        assert (await with_plugin(rig, error)).reason == "VolumeAttachmentLimitExceeded"


async def test_a_plugin_that_breaks_breaks_nobody_else(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        assert 'volume "v": boom' in str(await with_plugin(rig, RuntimeError("boom")))
        assert await rig.manager.mount(make_pod(MEMORY))


async def test_a_directory_of_a_server_is_mounted_by_the_systems_program(tmp_path: Path) -> None:
    """docs/behaviour/volumes.md, "nfs"."""
    mounter = RecordedMounter()
    manager = VolumeManager(tmp_path, mounter=mounter, plugins=PluginRegistry((NfsPlugin(),)))
    async with anyio.create_task_group() as tasks:
        await tasks.start(manager.run)
        volume = Volume(name="v", nfs=NFSVolumeSource(server="fs", path="/x", read_only=True))
        mounted = await manager.mount(make_pod(volume))
        path = tmp_path / "pods" / UID / "volumes/kubernetes.io~nfs/v"
        assert mounted["v"] == MountedVolume("v", str(path), read_only=True)
        assert mounter.calls == [f"mount_with_helper nfs fs:/x {path} ro"]
        await manager.unmount(UID)
        assert mounter.points == []
        assert not path.exists()
        tasks.cancel_scope.cancel()


def test_an_ipv6_server_is_in_brackets() -> None:
    assert export(NFSVolumeSource(server="fd00::1", path="/x")) == "[fd00::1]:/x"
    assert export(NFSVolumeSource(server="[fd00::1]", path="/x")) == "[fd00::1]:/x"
