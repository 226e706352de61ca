"""Volumes of pods (docs/behaviour/runtime.md, "Volumes")."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api import (
    ConfigMapVolumeSource,
    Container,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    ObjectMeta,
    Pod,
    PodSpec,
    Volume,
    VolumeMount,
)
from nodeagent.journal import Journal
from nodeagent.model import DeadlineError, PodUID, SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes import VolumeManager
from nodeagent.volumes.host_path import HostPathError, prepare_host_path

pytestmark = pytest.mark.anyio

UID = PodUID("uid-1")


def make_pod(*volumes: Volume, uid: str = UID) -> Pod:
    mounts = tuple(VolumeMount(name=v.name, mount_path=f"/{v.name}") for v in volumes)
    container = Container(name="main", image="busybox", volume_mounts=mounts)
    spec = PodSpec(volumes=volumes, containers=(container,))
    return Pod(metadata=ObjectMeta(name="web", uid=uid), spec=spec)


def empty_dir(name: str = "data", medium: str = "") -> Volume:
    return Volume(name=name, empty_dir=EmptyDirVolumeSource(medium=medium))


def host_path(path: Path, kind: str | None = None) -> Volume:
    return Volume(name="host", host_path=HostPathVolumeSource(path=str(path), type=kind))


@pytest.fixture
def journal() -> Journal:
    return Journal()


@asynccontextmanager
async def running(manager: VolumeManager) -> AsyncIterator[VolumeManager]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(manager.run)
        yield manager
        tasks.cancel_scope.cancel()


@pytest.fixture
async def manager(tmp_path: Path, journal: Journal) -> AsyncIterator[VolumeManager]:
    async with running(VolumeManager(tmp_path, journal, timeout=1)) as manager:
        yield manager


async def test_the_pods_directories_are_closed_to_others(
    manager: VolumeManager, tmp_path: Path
) -> None:
    assert await manager.mount(make_pod()) == {}
    pod = tmp_path / "pods" / UID
    assert {path.name for path in pod.iterdir()} == {"volumes", "plugins", "containers"}
    for path in (pod, *pod.iterdir()):
        assert path.stat().st_mode & 0o777 & ~0o750 == 0


async def test_an_empty_dir_is_open_to_all_whatever_the_umask(
    manager: VolumeManager, tmp_path: Path
) -> None:
    before = os.umask(0o077)
    try:
        mounted = await manager.mount(make_pod(empty_dir()))
    finally:
        os.umask(before)
    path = tmp_path / "pods" / UID / "volumes/kubernetes.io~empty-dir/data"
    assert mounted == {"data": MountedVolume("data", str(path), relabel=True)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o777


async def test_mounting_again_keeps_what_is_there(manager: VolumeManager, journal: Journal) -> None:
    pod = make_pod(empty_dir())
    path = Path((await manager.mount(pod))["data"].host_path)
    (path / "file").write_text("x")
    await manager.mount(pod)
    assert (path / "file").read_text() == "x"
    assert [r.what for r in journal.select(UID)] == ["VolumesMounted"]


async def test_directories_are_made_once_a_while_and_again_for_a_pod_that_comes_back(
    manager: VolumeManager, tmp_path: Path
) -> None:
    pod, home = make_pod(), tmp_path / "pods" / UID
    await manager.mount(pod)
    (home / "plugins").rmdir()
    await manager.mount(pod)
    assert not (home / "plugins").exists()
    await anyio.sleep(31)
    await manager.mount(pod)
    assert (home / "plugins").is_dir()
    await manager.unmount(UID)
    assert not home.exists()
    await manager.mount(pod)
    assert (home / "plugins").is_dir()


async def test_unmounting_removes_everything_and_can_be_repeated(
    manager: VolumeManager, tmp_path: Path
) -> None:
    await manager.mount(make_pod(empty_dir()))
    (tmp_path / "pods" / UID / "volumes/kubernetes.io~empty-dir/data/file").write_text("x")
    assert await manager.pods_on_disk() == [UID]
    await manager.unmount(UID)
    await manager.unmount(UID)
    assert await manager.pods_on_disk() == []
    assert not (tmp_path / "pods" / UID).exists()


async def test_no_pods_are_on_a_disk_without_a_directory(manager: VolumeManager) -> None:
    assert await manager.pods_on_disk() == []


async def test_a_host_path_is_given_as_it_is(manager: VolumeManager, tmp_path: Path) -> None:
    target = tmp_path / "anything"
    mounted = await manager.mount(make_pod(host_path(target)))
    assert mounted == {"host": MountedVolume("host", str(target))}
    assert not target.exists()


async def test_what_a_host_path_holds_outlives_the_pod(
    manager: VolumeManager, tmp_path: Path
) -> None:
    target = tmp_path / "kept"
    await manager.mount(make_pod(host_path(target, "DirectoryOrCreate")))
    await manager.unmount(UID)
    assert target.is_dir()


async def test_a_wrong_host_path_names_the_volume(manager: VolumeManager, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.touch()
    with pytest.raises(SyncError) as caught:
        await manager.mount(make_pod(host_path(target, "Directory")))
    assert caught.value.reason == "FailedMount"
    assert isinstance(caught.value, DeadlineError)
    assert str(caught.value) == (
        "unmounted volumes=[host], unattached volumes=[], failed to process volumes=[]: "
        f'timed out waiting for the condition; volume "host": '
        f"hostPath type check failed: {target} is not a directory"
    )


@pytest.mark.parametrize(
    "volume",
    [
        empty_dir(medium="Cloud"),
        Volume(name="data", config_map=ConfigMapVolumeSource(name="c")),
    ],
)
async def test_a_volume_that_is_not_supported_is_refused(
    manager: VolumeManager, volume: Volume
) -> None:
    with pytest.raises(SyncError, match='volume "data"') as caught:
        await manager.mount(make_pod(volume))
    assert caught.value.reason == "FailedMount"


@pytest.mark.parametrize("uid", ["", ".", "..", "../etc", "a/b", "a\0b", "u" * 256])
async def test_a_uid_that_is_no_file_name_is_refused_and_its_pod_can_end(
    manager: VolumeManager, tmp_path: Path, uid: str
) -> None:
    beside = tmp_path / "etc"
    beside.mkdir()
    with pytest.raises(SyncError, match="no file name"):
        await manager.mount(make_pod(uid=uid))
    await manager.unmount(PodUID(uid))
    assert beside.exists()


async def test_a_directory_that_cannot_be_made_is_an_error(
    manager: VolumeManager, tmp_path: Path
) -> None:
    (tmp_path / "pods").write_text("in the way")
    with pytest.raises(SyncError, match="error making pod data directories") as caught:
        await manager.mount(make_pod())
    assert caught.value.reason == "Failed"


@pytest.mark.realtime
async def test_a_path_that_hangs_fails_its_pod_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def hang(_path: Path, _kind: str) -> None:
        released.wait(30)

    monkeypatch.setattr("nodeagent.volumes.host_path.prepare_host_path", hang)
    says = r'timed out waiting for the condition; volume "host": mounting since \d.*no answer yet'
    async with running(VolumeManager(tmp_path, timeout=0.05)) as manager:
        try:
            with pytest.raises(DeadlineError, match=says) as caught:
                await manager.mount(make_pod(host_path(tmp_path, "Directory")))
            # Others are not affected.
            assert await manager.mount(make_pod(empty_dir(), uid="other"))
        finally:
            released.set()
    assert caught.value.reason == "FailedMount"


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
    (tmp_path / "to-dir").symlink_to("dir")
    return {
        "directory": tmp_path / "dir",
        "link": tmp_path / "to-dir",
        "file": tmp_path / "file",
        "socket": tmp_path / "sock",
        "device": Path("/dev/null"),
        "missing": tmp_path / "missing",
    }


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        ("", {"directory", "link", "file", "socket", "device", "missing"}),
        ("DirectoryOrCreate", {"directory", "link", "missing"}),
        ("Directory", {"directory", "link"}),
        ("FileOrCreate", {"file", "socket", "device", "missing"}),
        ("File", {"file", "socket", "device"}),
        ("Socket", {"socket"}),
        ("CharDevice", {"device"}),
        ("BlockDevice", set()),
    ],
)
def test_the_type_says_what_the_path_must_be(
    kind: str, fits: set[str], paths: dict[str, Path]
) -> None:
    for name, path in paths.items():
        if name in fits:
            prepare_host_path(path, kind)
        else:
            with pytest.raises(HostPathError, match="hostPath type check failed"):
                prepare_host_path(path, kind)


def test_an_unknown_type_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostPathError, match="Nonsense is an invalid volume type"):
        prepare_host_path(tmp_path, "Nonsense")


def test_what_is_created_has_the_usual_modes(tmp_path: Path) -> None:
    prepare_host_path(tmp_path / "a/b", "DirectoryOrCreate")
    prepare_host_path(tmp_path / "a/c", "FileOrCreate")
    assert (tmp_path / "a/b").is_dir()
    assert stat.S_IMODE((tmp_path / "a/c").stat().st_mode) == 0o644


def test_a_file_is_not_created_in_a_directory_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(HostPathError, match="it does not exist"):
        prepare_host_path(tmp_path / "missing/file", "FileOrCreate")


def test_a_path_below_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostPathError, match="hostPath type check failed"):
        prepare_host_path(tmp_path / "file/below", "DirectoryOrCreate")


@given(st.sampled_from(["a", "b"]))
def test_the_message_names_the_path(name: str) -> None:
    with pytest.raises(HostPathError, match=f"/missing/{name} is not a socket file"):
        prepare_host_path(Path("/missing") / name, "Socket")


async def test_a_host_path_may_not_step_back(manager: VolumeManager) -> None:
    """docs/behaviour/volumes.md, "hostPath"."""
    with pytest.raises(SyncError, match=r"invalid HostPath `/a/\.\./b`: must not contain '\.\.'"):
        await manager.mount(make_pod(host_path(Path("/a/../b"))))
