"""What volumes take of a disk (docs/behaviour/volumes.md, "Usage")."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.unit.volumes.content_lab import make_pod, running

from nodeagent.api import EmptyDirVolumeSource, HostPathVolumeSource, Volume
from nodeagent.model import PodUID
from nodeagent.volumes import usage
from nodeagent.volumes.threads import DiskThreads
from nodeagent.volumes.usage import VolumeUsage, VolumeUsages, measure

pytestmark = pytest.mark.anyio

UID = PodUID("uid-1")


def test_blocks_and_entries_are_counted_and_hard_links_once(tmp_path: Path) -> None:
    top = tmp_path / "volume"
    (top / "d").mkdir(parents=True)
    empty = measure(top)
    assert empty.inodes_used == 2
    (top / "d/file").write_bytes(b"x" * 100_000)
    (top / "again").hardlink_to(top / "d/file")
    (top / "link").symlink_to("/")
    found = measure(top)
    assert found.inodes_used == 4
    assert 100_000 <= found.used - empty.used < 120_000
    assert found.capacity >= found.available > 0
    assert not found.partial


def test_counting_ends_somewhere(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    found = measure(tmp_path, most=10)
    assert found.partial
    assert found.inodes_used == 10


async def test_it_is_measured_once_for_all_and_not_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []

    def counted(path: Path) -> VolumeUsage:
        calls.append(path)
        return measure(path)

    monkeypatch.setattr(usage, "measure", counted)
    usages = VolumeUsages(DiskThreads())
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(usages.of_pod, UID, {"a": tmp_path})
    await anyio.sleep(59)
    await usages.of_pod(UID, {"a": tmp_path})
    assert len(calls) == 1
    await anyio.sleep(2)
    assert set(await usages.of_pod(UID, {"a": tmp_path})) == {"a"}
    assert len(calls) == 2


async def test_what_cannot_be_measured_has_its_last_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usages = VolumeUsages(DiskThreads(), max_age=0)
    before = await usages.of_pod(UID, {"a": tmp_path})

    def broken(_path: Path) -> VolumeUsage:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(usage, "measure", broken)
    assert await usages.of_pod(UID, {"a": tmp_path, "b": tmp_path}) == before
    assert await usages.of_pod(UID, {}) == {}


async def test_only_volumes_of_the_pod_itself_are_measured(tmp_path: Path) -> None:
    host = Volume(name="host", host_path=HostPathVolumeSource(path=str(tmp_path)))
    own = Volume(name="own", empty_dir=EmptyDirVolumeSource())
    async with running(tmp_path) as rig:
        await rig.manager.mount(make_pod(host, own))
        assert set(await rig.manager.usage(UID)) == {"own"}
        assert await rig.manager.usage(PodUID("nobody")) == {}
        await rig.manager.unmount(UID)
        assert await rig.manager.usage(UID) == {}
