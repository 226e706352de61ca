"""Parts of volumes (docs/behaviour/volumes.md, "subPath")."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.model import PodUID, SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.testing import RecordedMounter
from nodeagent.volumes.mounter import MountError
from nodeagent.volumes.sub_path_service import SubPathService
from nodeagent.volumes.sub_paths import (
    SubPathError,
    bind_sub_path,
    clean_sub_paths,
    make_beneath,
    open_beneath,
)
from nodeagent.volumes.threads import DiskThreads

pytestmark = pytest.mark.anyio


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume, and a secret beside it."""
    (tmp_path / "secret").write_text("hands off")
    top = tmp_path / "volume"
    (top / "a/b").mkdir(parents=True)
    (top / "a/file").write_text("x")
    (top / "..data").symlink_to("a")
    (top / "file").symlink_to("..data/file")
    (top / "up").symlink_to("..")
    (top / "root").symlink_to("/")
    (top / "a/round").symlink_to("../a/b")
    (top / "deep").symlink_to("a/../../secret")
    (top / "loop").symlink_to("loop")
    return top


def reached(top: Path, sub_path: str) -> Path:
    descriptor = open_beneath(top, sub_path)
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("sub_path", "where"),
    [
        ("a", "a"),
        ("a/b", "a/b"),
        ("./a//b/", "a/b"),
        ("file", "a/file"),
        ("..data/b", "a/b"),
        ("a/round", "a/b"),
    ],
)
def test_links_that_stay_in_the_volume_are_followed(
    volume: Path, sub_path: str, where: str
) -> None:
    assert reached(volume, sub_path) == volume / where


@pytest.mark.parametrize("sub_path", ["root", "root/etc", "up", "up/secret", "deep", "a/../.."])
@pytest.mark.parametrize("act", [open_beneath, make_beneath])
def test_links_that_lead_out_are_refused(
    volume: Path, sub_path: str, act: Callable[[Path, str], object]
) -> None:
    with pytest.raises(SubPathError, match="leads out of the volume"):
        act(volume, sub_path)


def test_links_that_lead_in_circles_are_an_error(volume: Path) -> None:
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        open_beneath(volume, "loop")


def test_what_is_missing_is_made_like_the_volume(volume: Path) -> None:
    volume.chmod(0o2775)
    before = os.umask(0o077)
    try:
        make_beneath(volume, "..data/new/er")
    finally:
        os.umask(before)
    assert (volume / "a/new/er").is_dir()
    assert stat.S_IMODE((volume / "a/new/er").stat().st_mode) == 0o2775


def test_a_directory_below_a_file_cannot_be_made(volume: Path) -> None:
    with pytest.raises(NotADirectoryError):
        make_beneath(volume, "a/file/x")


def test_a_part_is_mounted_at_a_place_of_its_own(volume: Path, tmp_path: Path) -> None:
    mounter, pod_dir = RecordedMounter(), tmp_path / "pod"
    place = pod_dir / "volume-subpaths/data/main/0"
    assert bind_sub_path(mounter, pod_dir, volume, ("data", "main", 0), "a/b") == place
    assert mounter.calls == [f"bind {volume / 'a/b'} {place}"]
    assert place.is_dir()
    file = bind_sub_path(mounter, pod_dir, volume, ("data", "main", 1), "file")
    assert file.is_file()
    clean_sub_paths(mounter, pod_dir)
    clean_sub_paths(mounter, pod_dir)
    assert mounter.points == []
    assert not (pod_dir / "volume-subpaths").exists()


def test_a_part_that_is_another_one_by_now_is_mounted_anew(volume: Path, tmp_path: Path) -> None:
    mounter, pod_dir = RecordedMounter(), tmp_path / "pod"
    place = bind_sub_path(mounter, pod_dir, volume, ("data", "main", 0), "a/b")
    bind_sub_path(mounter, pod_dir, volume, ("data", "main", 0), "a/file")
    assert [p.source for p in mounter.points] == [str(volume / "a/file")]
    assert place.is_file()


async def test_the_service_says_why_it_cannot(volume: Path, tmp_path: Path) -> None:
    def refuse(_call: str) -> None:
        raise MountError("mount: only root may mount")

    service = SubPathService(tmp_path, RecordedMounter(before=refuse), DiskThreads())
    uid, whole = PodUID("u"), MountedVolume("data", str(volume))
    with pytest.raises(SyncError, match="leads out of the volume"):
        await service.prepare(uid, "main", 0, whole, "root")
    with pytest.raises(SyncError, match="No such file or directory"):
        await service.prepare(uid, "main", 0, whole, "missing")
    with pytest.raises(SyncError, match="only root may mount"):
        await service.prepare(uid, "main", 0, whole, "a")
    with pytest.raises(SyncError, match="Not a directory"):
        await service.make(whole, "a/file/x")
    await service.make(MountedVolume("data", str(volume), read_only=True), "not-made")
    assert not (volume / "not-made").exists()
